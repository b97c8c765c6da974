//! Rows that Postgres takes in no batch: kept apart, so that those behind them go on.

use std::collections::VecDeque;

use sqlx::PgConnection;

use super::{PostgresError, error::code};
use crate::audit::{Linked, verify::Span};

/// Dead letters that are held at once.
const LETTERS: i64 = 256;

/// Is it the row that is refused, whatever the state of the database? Only then does it help to take
/// it out of its batch.
pub(super) fn is_of_a_row(error: &sqlx::Error) -> bool {
    // A row that no partition takes is of this class too, but that is the tables' fault.
    const CHECK_VIOLATION: &str = "23514";
    code(error).is_some_and(|code| {
        // Data that is none, a constraint, and a limit such as an index's.
        ["22", "23", "54"].iter().any(|class| code.starts_with(class)) && code != CHECK_VIOLATION
    })
}

/// Keeps a row as its chain has it, and says so.
pub(super) async fn keep(
    connection: &mut PgConnection,
    linked: &Linked<'_>,
    error: &sqlx::Error,
) -> sqlx::Result<()> {
    let link = &linked.link;
    let seq = i64::try_from(link.seq).map_err(|error| sqlx::Error::Encode(error.into()))?;
    let mut record = Vec::new();
    linked.record.encode(&mut record);
    let insert = "INSERT INTO audit_dead_letter (writer, epoch, chain_seq, hash, record, error) \
                  VALUES ($1::uuid, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING";
    sqlx::query(insert)
        .bind(link.writer.to_string())
        .bind(i64::from(link.epoch))
        .bind(seq)
        .bind(&link.hash[..])
        .bind(record)
        .bind(error.to_string().replace('\0', ""))
        .execute(connection)
        .await?;
    tracing::error!(
        %error, writer = %link.writer, seq = link.seq,
        "Postgres refuses an audit entry: it is in tollgate.audit_dead_letter"
    );
    Ok(())
}

/// Rows of a writer that Postgres took in no batch, by their number.
#[derive(Debug)]
pub(super) struct Letters {
    connection: PgConnection,
    writer: String,
    /// The place of the last that was read, and where they end.
    last: (i64, Vec<u8>),
    end: i64,
    page: VecDeque<Letter>,
}

#[derive(Debug)]
pub(super) struct Letter {
    pub(super) epoch: i64,
    pub(super) seq: i64,
    pub(super) hash: Vec<u8>,
    pub(super) record: Vec<u8>,
}

impl Letters {
    /// Are there any? There should be none.
    pub(super) async fn are_there(
        connection: &mut PgConnection,
        span: &Span,
    ) -> sqlx::Result<bool> {
        let any = "SELECT EXISTS (SELECT FROM audit_dead_letter WHERE writer = $1::uuid)";
        sqlx::query_scalar(any).bind(&span.writer).fetch_one(connection).await
    }

    pub(super) fn new(connection: PgConnection, span: &Span) -> Self {
        let (last, page) = ((span.first, Vec::new()), VecDeque::new());
        Self { connection, writer: span.writer.clone(), last, end: span.last, page }
    }

    /// The next one; it stays the next until it is taken from the page.
    pub(super) async fn next(&mut self) -> Result<Option<&Letter>, PostgresError> {
        if self.page.is_empty() {
            let next = "SELECT epoch, chain_seq, hash, record FROM audit_dead_letter \
                        WHERE writer = $1::uuid AND (chain_seq, hash) > ($2, $3) AND chain_seq <= $4 \
                        ORDER BY chain_seq, hash LIMIT $5";
            let rows = sqlx::query_as::<_, (i64, i64, Vec<u8>, Vec<u8>)>(next)
                .bind(&self.writer)
                .bind(self.last.0)
                .bind(&self.last.1)
                .bind(self.end)
                .bind(LETTERS)
                .fetch_all(&mut self.connection)
                .await?;
            let letter = |(epoch, seq, hash, record)| Letter { epoch, seq, hash, record };
            self.page = rows.into_iter().map(letter).collect();
            if let Some(last) = self.page.back() {
                self.last = (last.seq, last.hash.clone());
            }
        }
        Ok(self.page.front())
    }

    /// Goes on to the one after it.
    pub(super) fn pass(&mut self) {
        self.page.pop_front();
    }
}
