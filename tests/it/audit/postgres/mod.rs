//! The Postgres store.

mod dead_letter;
mod migration;
mod outage;
mod partition;
mod role;
mod support;
mod table;
mod usage;

pub use support::{Postgres, config};
