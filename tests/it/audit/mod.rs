//! The audit trail: the handle over a sink that fails on demand, and each real sink.

mod chain;
mod contract;
mod faulty;
mod handle;
mod limit;
mod model;
mod record;
mod sqlite;
mod support;
mod tail;
