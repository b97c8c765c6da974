//! The Postgres store.

mod support;
mod table;

pub use support::Postgres;
