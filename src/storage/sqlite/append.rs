//! Writing entries.

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::{AssertSqlSafe, Connection, SqliteConnection, sqlite::SqliteArguments};
use tokio::sync::Mutex;

use super::row;
use crate::audit::{AuditSink, Entry, SinkError};

/// The row counts that there are statements for. Fewer rows use the next larger one, whose other
/// rows stay unbound and are left out: so a batch is one statement, which is a transaction of its
/// own, and one trip to the connection's thread.
const STATEMENT_ROWS: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
const MOST_ROWS: usize = STATEMENT_ROWS[STATEMENT_ROWS.len() - 1];

/// The audit trail in a SQLite file.
#[derive(Debug)]
pub struct SqliteSink {
    connection: Mutex<SqliteConnection>,
    statements: [Arc<str>; STATEMENT_ROWS.len()],
}

impl SqliteSink {
    pub(super) fn new(connection: SqliteConnection) -> Self {
        let statements = STATEMENT_ROWS.map(|rows| Arc::from(row::insert(rows)));
        Self { connection: Mutex::new(connection), statements }
    }

    /// The least statement for that many rows, of which there may be at most [`MOST_ROWS`].
    fn statement(&self, rows: usize) -> Arc<str> {
        let fits = STATEMENT_ROWS.partition_point(|size| *size < rows);
        Arc::clone(&self.statements[fits.min(STATEMENT_ROWS.len() - 1)])
    }

    async fn insert(
        &self,
        connection: &mut SqliteConnection,
        entries: &[Entry],
    ) -> sqlx::Result<()> {
        let mut arguments = SqliteArguments::default();
        for entry in entries {
            row::bind(entry, &mut arguments).map_err(sqlx::Error::Encode)?;
        }
        let statement = AssertSqlSafe(self.statement(entries.len()));
        let done = sqlx::query_with(statement, arguments).execute(connection).await?;
        if done.rows_affected() < entries.len() as u64 {
            tracing::debug!(
                sent = entries.len(),
                written = done.rows_affected(),
                "audit entries that were there already, or second ends of a call, are left out"
            );
        }
        Ok(())
    }
}

#[async_trait]
impl AuditSink for SqliteSink {
    async fn append(&self, entries: &[Entry]) -> Result<(), SinkError> {
        let mut connection = self.connection.lock().await;
        if entries.len() <= MOST_ROWS {
            return self.insert(&mut connection, entries).await.map_err(SinkError::write);
        }
        let written = async {
            let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
            for part in entries.chunks(MOST_ROWS) {
                self.insert(&mut transaction, part).await?;
            }
            transaction.commit().await
        };
        written.await.map_err(SinkError::write)
    }
}
