//! Writing records.

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::{
    AssertSqlSafe, Connection, Sqlite, SqliteConnection, Transaction, sqlite::SqliteArguments,
};
use tokio::sync::Mutex;

use super::row;
use crate::audit::{AuditSink, Linked, SinkError};

/// The row counts that there are statements for. Fewer rows use the next larger one, whose other
/// rows stay unbound and are left out: so a batch is one statement and one trip to the connection's
/// thread. SQLite takes 32,766 values at once, which would be 744 rows.
const STATEMENT_ROWS: [usize; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
const MOST_ROWS: usize = STATEMENT_ROWS[STATEMENT_ROWS.len() - 1];

/// The audit trail in a SQLite file.
#[derive(Debug)]
pub struct SqliteSink {
    connection: Mutex<SqliteConnection>,
    /// For each count, that for a call's first terminal entry and that for later ones.
    statements: [[Arc<str>; 2]; STATEMENT_ROWS.len()],
}

impl SqliteSink {
    pub(super) fn new(connection: SqliteConnection) -> Self {
        let statements =
            STATEMENT_ROWS.map(|rows| [false, true].map(|kind| Arc::from(row::insert(rows, kind))));
        Self { connection: Mutex::new(connection), statements }
    }

    /// Inserts at most [`MOST_ROWS`] rows; returns how many were not there.
    async fn insert(
        &self,
        transaction: &mut Transaction<'_, Sqlite>,
        records: &[Linked<'_>],
        superseded: bool,
    ) -> sqlx::Result<u64> {
        let mut arguments = SqliteArguments::default();
        for linked in records {
            row::bind(linked, &mut arguments).map_err(sqlx::Error::Encode)?;
        }
        let fits = STATEMENT_ROWS.partition_point(|size| *size < records.len());
        let [first, later] = &self.statements[fits.min(STATEMENT_ROWS.len() - 1)];
        let statement = AssertSqlSafe(Arc::clone(if superseded { later } else { first }));
        let done = sqlx::query_with(statement, arguments).execute(&mut **transaction).await?;
        Ok(done.rows_affected())
    }

    async fn write(&self, records: &[Linked<'_>]) -> sqlx::Result<()> {
        let mut connection = self.connection.lock().await;
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        for part in records.chunks(MOST_ROWS) {
            let written = self.insert(&mut transaction, part, false).await?;
            if written < part.len() as u64 {
                // Those were there already, or are second ends of their calls: only the latter are
                // written now.
                let superseded = self.insert(&mut transaction, part, true).await?;
                tracing::debug!(sent = part.len(), written, superseded, "audit entries sent again");
            }
        }
        transaction.commit().await
    }
}

#[async_trait]
impl AuditSink for SqliteSink {
    async fn append(&self, records: &[Linked<'_>]) -> Result<(), SinkError> {
        self.write(records).await.map_err(SinkError::write)
    }
}
