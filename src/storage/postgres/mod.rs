//! The production store: a Postgres database, written by any number of gateways.
//!
//! Everything is in the schema `tollgate`: `migrations/postgres/` says what each table is for.

mod append;
mod chain;
mod connection;
mod content;
mod copy;
mod dead_letter;
mod error;
mod migration;
mod open_intent;
mod page;
mod partition;
mod pool;
mod reader;
mod retention;
mod role;
mod row;
mod trail;
mod usage;

pub use append::PostgresSink;
pub use chain::PostgresChain;
use connection::Connector;
pub use error::PostgresError;
pub use open_intent::PostgresOpenIntents;
pub use reader::AuditReader;
pub use trail::PostgresTrail;

use jiff::Timestamp;

use crate::config::AuditConfig;

/// The sink that `[audit]` asks for. Connects to nothing yet.
///
/// # Errors
/// [`PostgresError::Url`].
pub fn sink(config: &AuditConfig) -> Result<PostgresSink, PostgresError> {
    Ok(PostgresSink::new(Connector::new(config)?))
}

/// The open intents of the database that `[audit]` names. Connects to nothing yet.
///
/// # Errors
/// [`PostgresError::Url`].
pub fn open_intents(config: &AuditConfig) -> Result<PostgresOpenIntents, PostgresError> {
    Ok(PostgresOpenIntents::new(Connector::new(config)?))
}

/// Brings the database up to date, and gives the role of `audit.url` what it needs.
///
/// Returns how many migrations were applied.
///
/// # Errors
/// [`PostgresError`].
pub async fn migrate(config: &AuditConfig) -> Result<usize, PostgresError> {
    migration::run(&Connector::new(config)?).await
}

/// Takes out of the database what `[audit]` says is too old, once it is in files of `audit.archive`.
/// Nothing where it says nothing of it.
///
/// Returns how many rows went.
///
/// # Errors
/// [`PostgresError`]; what had gone by then is in its files.
pub async fn retire(config: &AuditConfig, now: Timestamp) -> Result<i64, PostgresError> {
    let Some((days, directory)) = config.retention_days.zip(config.archive.as_deref()) else {
        return Ok(0);
    };
    retention::retire(&Connector::new(config)?, directory, days, now).await
}
