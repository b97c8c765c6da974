//! Answering questions about the trail.

use async_trait::async_trait;

use super::{PostgresError, content, page, pool::ReadPool, usage};
use crate::{
    audit::{
        StoredEntry,
        query::{
            Arrivals, AuditQuery, CONTENT_ENTRIES, Cursor, Filter, Order, QueryError, QueryLimits,
            StoredContent, Usage, UsageFilter,
        },
    },
    config::AuditConfig,
};

/// The trail in a Postgres database, to be asked.
#[derive(Debug)]
pub struct PostgresTrail {
    pool: ReadPool,
}

impl PostgresTrail {
    /// Connects to nothing yet: a gateway starts while its database is away.
    ///
    /// # Errors
    /// [`PostgresError::Url`].
    pub fn new(config: &AuditConfig) -> Result<Self, PostgresError> {
        Self::with(config, QueryLimits::default())
    }

    /// As [`PostgresTrail::new`], within other limits.
    ///
    /// # Errors
    /// [`PostgresError::Url`].
    pub fn with(config: &AuditConfig, limits: QueryLimits) -> Result<Self, PostgresError> {
        Ok(Self { pool: ReadPool::new(config, limits)? })
    }

    /// As [`PostgresTrail::new`], for who asks now or never.
    ///
    /// # Errors
    /// [`PostgresError`].
    pub async fn open(config: &AuditConfig) -> Result<Self, PostgresError> {
        let trail = Self::new(config)?;
        trail.pool.check().await?;
        Ok(trail)
    }

    /// How Postgres would find a page of these entries, a step a line: for tests to see that no
    /// question reads all there is.
    pub async fn plan(&self, filter: &Filter, order: Order) -> Result<Vec<String>, QueryError> {
        let loan = self.pool.borrow().await?;
        loan.ask(async |connection| page::plan(connection, filter, order).await).await
    }
}

#[async_trait]
impl AuditQuery for PostgresTrail {
    async fn page(
        &self,
        filter: &Filter,
        order: Order,
        behind: Option<Cursor>,
        limit: u32,
    ) -> Result<Vec<StoredEntry>, QueryError> {
        let loan = self.pool.borrow().await?;
        loan.ask(async |connection| page::read(connection, filter, order, behind, limit).await)
            .await
    }

    async fn arrivals(
        &self,
        filter: &Filter,
        seq: i64,
        limit: u32,
    ) -> Result<Arrivals, QueryError> {
        let loan = self.pool.borrow().await?;
        loan.ask(async |connection| page::arrivals(connection, filter, seq, limit).await).await
    }

    async fn last_arrival(&self) -> Result<i64, QueryError> {
        let loan = self.pool.borrow().await?;
        loan.ask(async |connection| page::settled(connection).await).await
    }

    async fn contents(&self, entry_ids: &[&str]) -> Result<Vec<StoredContent>, QueryError> {
        let entry_ids = &entry_ids[..entry_ids.len().min(CONTENT_ENTRIES as usize)];
        let loan = self.pool.borrow().await?;
        loan.ask(async |connection| content::read(connection, entry_ids).await).await
    }

    async fn usage(&self, filter: &UsageFilter) -> Result<Usage, QueryError> {
        let loan = self.pool.borrow().await?;
        loan.ask(async |connection| usage::read(connection, filter).await).await
    }
}
