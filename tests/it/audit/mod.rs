//! The audit trail: the handle over a sink that fails on demand, and each real sink.

mod chain;
mod checkpoint;
mod contract;
mod crash;
mod fake_disk;
mod faulty;
mod full_disk;
mod handle;
mod kill;
mod limit;
mod model;
mod pace;
mod postgres;
mod record;
mod redaction;
mod sink_model;
mod spool;
mod spool_model;
mod sqlite;
mod support;
mod sweep;
mod tail;
mod tamper;
mod tamper_checkpoint;
mod trail;
mod verify;
