//! Reading the audit trail, beside a gateway that writes it.

use std::path::Path;

use async_trait::async_trait;
use sqlx::{AssertSqlSafe, ConnectOptions, SqliteConnection, sqlite::SqliteConnectOptions};

use super::{
    BUSY_TIMEOUT, StorageError, append::last_seq, content, page, pool::ReadPool, row, usage,
};
use crate::audit::{
    StoredEntry,
    query::{
        Arrivals, AuditQuery, CONTENT_ENTRIES, Cursor, Filter, Order, PAGE_ENTRIES, QueryError,
        QueryLimits, StoredContent, Usage, UsageFilter,
    },
};

/// Answers questions about the trail, by connections of its own.
#[derive(Debug)]
pub struct AuditReader {
    pool: ReadPool,
}

impl AuditReader {
    /// The most rows that one call returns.
    pub const PAGE_ROWS: u32 = 1_000;

    /// Opens the database at `path`, which must be there.
    pub async fn open(path: &Path) -> Result<Self, StorageError> {
        Self::open_with(path, QueryLimits::default()).await
    }

    /// As [`AuditReader::open`], within other limits.
    pub async fn open_with(path: &Path, limits: QueryLimits) -> Result<Self, StorageError> {
        Ok(Self { pool: ReadPool::open(path, limits).await? })
    }

    /// The rows that came after the one numbered `seq` (at most [`Self::PAGE_ROWS`]), oldest first.
    pub async fn after(&mut self, seq: i64) -> Result<Vec<StoredEntry>, QueryError> {
        let mut loan = self.pool.borrow().await?;
        let next = row::select("seq > ? ORDER BY seq LIMIT ?");
        let query = sqlx::query(AssertSqlSafe(next)).bind(seq).bind(Self::PAGE_ROWS);
        let rows = query.fetch_all(loan.connection()).await;
        loan.end(rows.and_then(|rows| rows.iter().map(row::read).collect()))
    }

    /// How SQLite would find a page of these entries, a step a line: for tests to see that no
    /// question reads all there is.
    pub async fn plan(&self, filter: &Filter, order: Order) -> Result<Vec<String>, QueryError> {
        let mut loan = self.pool.borrow().await?;
        let plan = page::plan(loan.connection(), filter, order).await;
        loan.end(plan)
    }
}

#[async_trait]
impl AuditQuery for AuditReader {
    async fn page(
        &self,
        filter: &Filter,
        order: Order,
        behind: Option<Cursor>,
        limit: u32,
    ) -> Result<Vec<StoredEntry>, QueryError> {
        let mut loan = self.pool.borrow().await?;
        let page = page::read(loan.connection(), filter, order, behind, limit).await;
        loan.end(page)
    }

    async fn arrivals(
        &self,
        filter: &Filter,
        seq: i64,
        limit: u32,
    ) -> Result<Arrivals, QueryError> {
        // One connection writes, so that numbers are given in the order of commits.
        let behind = Cursor { time_micros: 0, seq };
        let last = self.last_arrival().await?;
        let mut entries = self.page(filter, Order::OldestFirst, Some(behind), limit).await?;
        entries.retain(|entry| entry.seq <= last);
        let is_full = entries.len() >= limit.min(PAGE_ENTRIES) as usize;
        let seq = entries.last().filter(|_| is_full).map_or(last, |entry| entry.seq);
        Ok(Arrivals { entries, seq })
    }

    async fn last_arrival(&self) -> Result<i64, QueryError> {
        let mut loan = self.pool.borrow().await?;
        let last = last_seq(loan.connection()).await;
        loan.end(last)
    }

    async fn contents(&self, entry_ids: &[&str]) -> Result<Vec<StoredContent>, QueryError> {
        let entry_ids = &entry_ids[..entry_ids.len().min(CONTENT_ENTRIES as usize)];
        let mut loan = self.pool.borrow().await?;
        let contents = content::read(loan.connection(), entry_ids).await;
        loan.end(contents)
    }

    async fn usage(&self, filter: &UsageFilter) -> Result<Usage, QueryError> {
        let mut loan = self.pool.borrow().await?;
        let usage = usage::read(loan.connection(), filter).await;
        loan.end(usage)
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
