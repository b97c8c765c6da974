//! Writing records.

use std::{array::from_fn, sync::Arc};

use async_trait::async_trait;
use sqlx::{
    Arguments, AssertSqlSafe, Connection, Sqlite, SqliteConnection, Transaction,
    sqlite::SqliteArguments,
};
use tokio::sync::Mutex;

use super::{block::Block, content, row, text::KnownTexts};
use crate::audit::{AuditSink, Linked, SinkError};

/// The row counts that there are statements for, as powers of two from 1 to 64. SQLite holds some
/// 5 KiB for each row of each statement, and a trip to the connection's thread costs as much as a few
/// rows do.
const STATEMENTS: usize = 7;

/// The audit trail in a SQLite file.
#[derive(Debug)]
pub struct SqliteSink {
    writing: Mutex<Writing>,
    /// For each count, that for a call's first terminal entry and that for later ones.
    statements: [[Arc<str>; 2]; STATEMENTS],
}

#[derive(Debug)]
struct Writing {
    connection: SqliteConnection,
    texts: KnownTexts,
    /// Taken out while a batch is written: after one that was not, it is read from the rows.
    block: Option<Block>,
}

impl SqliteSink {
    pub(super) fn new(connection: SqliteConnection) -> Self {
        let statement = |power, superseded| Arc::from(row::insert(1_usize << power, superseded));
        let statements = from_fn(|power| [false, true].map(|it| statement(power, it)));
        let writing = Writing { connection, texts: KnownTexts::default(), block: None };
        Self { writing: Mutex::new(writing), statements }
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
        let Writing { connection, texts, block } = &mut *self.writing.lock().await;
        texts.forget();
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        let mut before = last_seq(&mut transaction).await?;
        let mut filling = match block.take().filter(|block| block.last() == before) {
            Some(filling) => Some(filling),
            None => Some(Block::load(&mut transaction, before).await?),
        };
        let mut left = records;
        while let Some(most) = left.len().checked_ilog2() {
            let power = STATEMENTS.min(most as usize + 1) - 1;
            let (part, rest) = left.split_at(1 << power);
            let written = self.insert(&mut transaction, (part, &mut *texts), power, false).await?;
            let mut superseded = 0;
            if written < part.len() as u64 {
                // Those were there already, or are second ends of their calls: only the latter are
                // written now.
                let again = (part, &mut *texts);
                superseded = self.insert(&mut transaction, again, power, true).await?;
                tracing::debug!(sent = 1 << power, written, superseded, "audit entries sent again");
            }
            if written == part.len() as u64 {
                if let Some(filling) = &mut filling {
                    filling.add_all(&mut transaction, part, before).await?;
                }
            } else if written + superseded > 0 {
                // Which of them are new, and as what, the rows themselves say.
                filling = None;
            }
            before += written.saturating_add(superseded).cast_signed();
            left = rest;
        }
        content::write(&mut transaction, records).await?;
        transaction.commit().await?;
        *block = filling;
        Ok(())
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
