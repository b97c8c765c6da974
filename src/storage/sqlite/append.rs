//! Writing records.

use std::{array::from_fn, sync::Arc};

use async_trait::async_trait;
use sqlx::{
    Arguments, AssertSqlSafe, Connection, Sqlite, SqliteConnection, Transaction,
    sqlite::SqliteArguments,
};
use tokio::sync::Mutex;

use super::{block::BlockIndex, content, row, text::KnownTexts, usage};
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
    blocks: BlockIndex,
}

impl SqliteSink {
    pub(super) fn new(connection: SqliteConnection) -> Self {
        let statement = |power, superseded| Arc::from(row::insert(1_usize << power, superseded));
        let statements = from_fn(|power| [false, true].map(|it| statement(power, it)));
        let connection = Mutex::new((connection, KnownTexts::default()));
        Self { connection, statements, blocks: BlockIndex::new() }
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

    async fn write(&self, records: &[Linked<'_>]) -> sqlx::Result<()> {
        let (connection, texts) = &mut *self.connection.lock().await;
        texts.forget();
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        let first = last_seq(&mut transaction).await?;
        let (mut before, mut left) = (first, records);
        while let Some(most) = left.len().checked_ilog2() {
            let power = STATEMENTS.min(most as usize + 1) - 1;
            let (part, rest) = left.split_at(1 << power);
            let written = self.insert(&mut transaction, (part, &mut *texts), power, false).await?;
            if written < part.len() as u64 {
                // Those were there already, or are second ends of their calls: only the latter are
                // written now.
                let again = (part, &mut *texts);
                let superseded = self.insert(&mut transaction, again, power, true).await?;
                tracing::debug!(sent = 1 << power, written, superseded, "audit entries sent again");
            }
            let last = last_seq(&mut transaction).await?;
            self.blocks.note(&mut transaction, part, before, last).await?;
            before = last;
            left = rest;
        }
        content::write(&mut transaction, records).await?;
        usage::add(&mut transaction, first).await?;
        transaction.commit().await
    }
}

#[async_trait]
impl AuditSink for SqliteSink {
    async fn append(&self, records: &[Linked<'_>]) -> Result<(), SinkError> {
        self.write(records).await.map_err(SinkError::write)
    }
}

/// The number of the last row.
pub(super) async fn last_seq(connection: &mut SqliteConnection) -> sqlx::Result<i64> {
    let last = "SELECT coalesce(max(seq), 0) FROM audit";
    sqlx::query_scalar(last).fetch_one(connection).await
}
