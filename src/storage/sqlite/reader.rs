//! Reading the audit trail, beside a gateway that writes it.

use std::path::Path;

use sqlx::{AssertSqlSafe, ConnectOptions, SqliteConnection, sqlite::SqliteConnectOptions};

use super::{BUSY_TIMEOUT, StorageError, migration, row};
use crate::audit::StoredEntry;

/// A read-only connection. It never holds a lock that a writer waits for.
#[derive(Debug)]
pub struct AuditReader {
    connection: SqliteConnection,
}

impl AuditReader {
    /// The most rows that one call returns.
    pub const PAGE_ROWS: u32 = 1_000;

    /// Opens the database at `path`, which must be there.
    pub async fn open(path: &Path) -> Result<Self, StorageError> {
        let mut connection = connect(path).await?;
        migration::check(path, &mut connection).await?;
        Ok(Self { connection })
    }

    /// The number to give to [`Self::after`] for the last `count` rows and those to come.
    pub async fn before_last(&mut self, count: u32) -> Result<i64, StorageError> {
        let skip = "SELECT seq FROM audit WHERE NOT superseded ORDER BY seq DESC LIMIT 1 OFFSET ?";
        let seq = sqlx::query_scalar(skip).bind(count).fetch_optional(&mut self.connection).await;
        Ok(seq.map_err(StorageError::Read)?.unwrap_or(0))
    }

    /// The rows that came after the one numbered `seq` (at most [`Self::PAGE_ROWS`]), oldest first.
    pub async fn after(&mut self, seq: i64) -> Result<Vec<StoredEntry>, StorageError> {
        let next = row::select("seq > ? ORDER BY seq LIMIT ?");
        let query = sqlx::query(AssertSqlSafe(next)).bind(seq).bind(Self::PAGE_ROWS);
        let rows = query.fetch_all(&mut self.connection).await.map_err(StorageError::Read)?;
        rows.iter().map(row::read).collect::<sqlx::Result<_>>().map_err(StorageError::Read)
    }
}

/// Opens the database at `path`, which must be there, for reading.
pub(super) async fn connect(path: &Path) -> Result<SqliteConnection, StorageError> {
    if !tokio::fs::try_exists(path).await.unwrap_or(false) {
        return Err(StorageError::Missing(path.to_owned()));
    }
    SqliteConnectOptions::new()
        .filename(path)
        .read_only(true)
        .busy_timeout(BUSY_TIMEOUT)
        .disable_statement_logging()
        .connect()
        .await
        .map_err(|source| StorageError::Open { path: path.to_owned(), source })
}
