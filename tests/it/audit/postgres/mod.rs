//! The Postgres store.

mod dead_letter;
mod gateway;
mod migration;
mod outage;
mod partition;
mod retention;
mod role;
mod support;
mod table;
mod usage;

pub use support::{Postgres, config};
