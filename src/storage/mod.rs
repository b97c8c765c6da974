//! All SQL. What is stored and read is the business of the module that the rows belong to.

pub mod postgres;
pub mod sqlite;

use std::sync::Arc;

use crate::{
    audit::query::AuditQuery,
    config::{AuditConfig, AuditStore},
};
use postgres::{PostgresError, PostgresTrail};
use sqlite::StorageError;

/// A store can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Sqlite(#[from] StorageError),
    #[error(transparent)]
    Postgres(#[from] PostgresError),
}

/// The trail that `[audit]` names, to be asked now.
///
/// # Errors
/// [`OpenError`], also where its database does not answer.
pub async fn open_trail(config: &AuditConfig) -> Result<Arc<dyn AuditQuery>, OpenError> {
    Ok(match config.store {
        AuditStore::Sqlite => Arc::new(sqlite::AuditReader::open(&config.path).await?),
        AuditStore::Postgres => Arc::new(PostgresTrail::open(config).await?),
    })
}
