//! Writing records.

use std::{array::from_fn, sync::Arc};

use async_trait::async_trait;
use sqlx::{
    Arguments, AssertSqlSafe, Connection, Sqlite, SqliteConnection, Transaction,
    sqlite::SqliteArguments,
};
use tokio::sync::Mutex;

use super::{row, text::KnownTexts};
use crate::audit::{AuditSink, Linked, SinkError};

/// The row counts that there are statements for, as powers of two from 1 to 64. SQLite holds some
/// 5 KiB for each row of each statement, and a trip to the connection's thread costs as much as a few
/// rows do.
const STATEMENTS: usize = 7;

/// The audit trail in a SQLite file.
#[derive(Debug)]
pub struct SqliteSink {
    connection: Mutex<(SqliteConnection, KnownTexts)>,
    /// For each count, that for a call's first terminal entry and that for later ones.
    statements: [[Arc<str>; 2]; STATEMENTS],
}

impl SqliteSink {
    pub(super) fn new(connection: SqliteConnection) -> Self {
        let statement = |power, superseded| Arc::from(row::insert(1_usize << power, superseded));
        let statements = from_fn(|power| [false, true].map(|it| statement(power, it)));
        Self { connection: Mutex::new((connection, KnownTexts::default())), statements }
    }

    /// Inserts as many rows as the statement `power` takes; returns how many were not there.
    async fn insert(
        &self,
        transaction: &mut Transaction<'_, Sqlite>,
        (records, texts): (&[Linked<'_>], &mut KnownTexts),
        power: usize,
        superseded: bool,
    ) -> sqlx::Result<u64> {
        let mut arguments = SqliteArguments::default();
        arguments.reserve(records.len() * row::COLUMN_COUNT, 0);
        for linked in records {
            row::bind(linked, texts, &mut arguments).map_err(sqlx::Error::Encode)?;
        }
        let [first, later] = &self.statements[power];
        let statement = AssertSqlSafe(Arc::clone(if superseded { later } else { first }));
        let done = sqlx::query_with(statement, arguments).execute(&mut **transaction).await?;
        Ok(done.rows_affected())
    }

    async fn write(&self, mut records: &[Linked<'_>]) -> sqlx::Result<()> {
        let (connection, texts) = &mut *self.connection.lock().await;
        texts.forget();
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        while let Some(most) = records.len().checked_ilog2() {
            let power = STATEMENTS.min(most as usize + 1) - 1;
            let (part, rest) = records.split_at(1 << power);
            let written = self.insert(&mut transaction, (part, &mut *texts), power, false).await?;
            if written < part.len() as u64 {
                // Those were there already, or are second ends of their calls: only the latter are
                // written now.
                let part = (part, &mut *texts);
                let superseded = self.insert(&mut transaction, part, power, true).await?;
                tracing::debug!(sent = 1 << power, written, superseded, "audit entries sent again");
            }
            records = rest;
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
