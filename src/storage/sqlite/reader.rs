//! Reading the audit trail, beside a gateway that writes it.

use std::path::Path;

use sqlx::{ConnectOptions, SqliteConnection, query::Query, sqlite::SqliteConnectOptions};

use super::{BUSY_TIMEOUT, StorageError, migration, row};
use crate::audit::StoredEntry;

/// The most rows that one call returns.
pub const PAGE_ROWS: u32 = 1_000;

/// A read-only connection. It never holds a lock that a writer waits for.
#[derive(Debug)]
pub struct AuditReader {
    connection: SqliteConnection,
}

impl AuditReader {
    /// Opens the database at `path`, which must be there.
    pub async fn open(path: &Path) -> Result<Self, StorageError> {
        if !tokio::fs::try_exists(path).await.unwrap_or(false) {
            return Err(StorageError::Missing(path.to_owned()));
        }
        let mut connection = SqliteConnectOptions::new()
            .filename(path)
            .read_only(true)
            .busy_timeout(BUSY_TIMEOUT)
            .disable_statement_logging()
            .connect()
            .await
            .map_err(|source| StorageError::Open { path: path.to_owned(), source })?;
        migration::check(path, &mut connection).await?;
        Ok(Self { connection })
    }

    /// The last `count` rows (at most [`PAGE_ROWS`]), oldest first.
    pub async fn tail(&mut self, count: u32) -> Result<Vec<StoredEntry>, StorageError> {
        let newest = "SELECT * FROM audit ORDER BY seq DESC LIMIT ?";
        let mut entries = self.read(newest, [i64::from(count.min(PAGE_ROWS))]).await?;
        entries.reverse();
        Ok(entries)
    }

    /// The rows that came after the one numbered `seq` (at most [`PAGE_ROWS`]), oldest first.
    pub async fn after(&mut self, seq: i64) -> Result<Vec<StoredEntry>, StorageError> {
        let next = "SELECT * FROM audit WHERE seq > ? ORDER BY seq LIMIT ?";
        self.read(next, [seq, i64::from(PAGE_ROWS)]).await
    }

    async fn read<const N: usize>(
        &mut self,
        query: &'static str,
        bound: [i64; N],
    ) -> Result<Vec<StoredEntry>, StorageError> {
        let query = bound.into_iter().fold(sqlx::query(query), Query::bind);
        let rows = query.fetch_all(&mut self.connection).await.map_err(StorageError::Read)?;
        rows.iter().map(row::read).collect::<sqlx::Result<_>>().map_err(StorageError::Read)
    }
}
