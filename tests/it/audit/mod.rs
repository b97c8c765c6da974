//! The audit trail: the handle over a sink that fails on demand, and each real sink.

mod contract;
mod faulty;
mod handle;
mod limit;
mod model;
mod redaction;
mod sqlite;
mod support;
mod tail;
