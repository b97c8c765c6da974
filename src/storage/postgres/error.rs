//! What can be wrong with the database, each with what to do.

use std::{borrow::Cow, io, path::PathBuf};

use crate::audit::SinkError;

/// The database can't be used as it is. Shows no URL: there is a password in it.
#[derive(Debug, thiserror::Error)]
pub enum PostgresError {
    #[error("{key} is not a URL of a Postgres database: {reason}")]
    Url { key: &'static str, reason: String },
    #[error("can't connect to Postgres: {0}")]
    Connect(#[source] sqlx::Error),
    #[error("Postgres did not answer within {0} s")]
    TimedOut(u64),
    #[error("Postgres is of version {0}: tollgate needs 15 or newer")]
    TooOld(i32),
    #[error(
        "the database's encoding is {0}, which can't hold all texts: make one with ENCODING 'UTF8'"
    )]
    Encoding(String),
    #[error(
        "the database has no audit trail of this version, and the role {role:?} may not make it: run \
         `tollgate migrate` with the URL of a role that may in audit.owner_url"
    )]
    NotMigrated { role: String },
    #[error(
        "the database was written by a newer tollgate, which older ones must not write beside \
         (migration {0}): use that version"
    )]
    Incompatible(i64),
    #[error(
        "the role {role:?} of audit.url is not there: make it (CREATE ROLE … LOGIN PASSWORD …) and \
         run `tollgate migrate`"
    )]
    NoRole { role: String },
    #[error("can't migrate the database: {0}")]
    Migrate(#[source] Box<sqlx::migrate::MigrateError>),
    #[error("audit.archive: can't write to {}: {source}", path.display())]
    Archive { path: PathBuf, source: io::Error },
    #[error("Postgres: {0}")]
    Query(#[from] sqlx::Error),
}

impl From<PostgresError> for SinkError {
    fn from(error: PostgresError) -> Self {
        Self::write(error)
    }
}

impl From<sqlx::migrate::MigrateError> for PostgresError {
    fn from(error: sqlx::migrate::MigrateError) -> Self {
        Self::Migrate(Box::new(error))
    }
}

/// The class and number of an error of the database's own (SQLSTATE).
pub(super) fn code(error: &sqlx::Error) -> Option<String> {
    let error = error.as_database_error();
    error.and_then(sqlx::error::DatabaseError::code).map(Cow::into_owned)
}

pub(super) const INSUFFICIENT_PRIVILEGE: &str = "42501";
pub(super) const UNDEFINED_TABLE: &str = "42P01";
pub(super) const INVALID_SCHEMA: &str = "3F000";
pub(super) const UNDEFINED_OBJECT: &str = "42704";
