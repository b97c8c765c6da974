//! Reading the audit trail, beside the gateways that write it.

use sqlx::{AssertSqlSafe, PgConnection};

use super::{
    PostgresError,
    connection::{Connector, Role},
    migration::Schema,
    row,
};
use crate::{audit::StoredEntry, config::AuditConfig};

/// A connection that reads.
#[derive(Debug)]
pub struct AuditReader {
    connector: Connector,
    connection: PgConnection,
}

impl AuditReader {
    /// The most rows that one call returns.
    pub const PAGE_ROWS: i64 = 1_000;

    /// Connects to the database of `[audit]`, which must be migrated.
    ///
    /// # Errors
    /// [`PostgresError`].
    pub async fn open(config: &AuditConfig) -> Result<Self, PostgresError> {
        let connector = Connector::new(config)?;
        let mut connection = connector.connect(Role::Gateway).await?;
        let schema = connector.answered(Schema::read(&mut connection)).await?;
        if schema.as_ref().map(Schema::is_current).transpose()? != Some(true) {
            return Err(PostgresError::NotMigrated { role: connector.gateway_role().to_owned() });
        }
        Ok(Self { connector, connection })
    }

    /// The number to give to [`Self::after`] for the last `count` rows and those to come.
    ///
    /// # Errors
    /// [`PostgresError`].
    pub async fn before_last(&mut self, count: u32) -> Result<i64, PostgresError> {
        let skip = "SELECT seq FROM audit WHERE NOT superseded ORDER BY seq DESC LIMIT 1 OFFSET $1";
        let seq = sqlx::query_scalar(skip).bind(i64::from(count));
        let seq = self.connector.answered(seq.fetch_optional(&mut self.connection)).await?;
        Ok(seq.unwrap_or(0))
    }

    /// The rows that came after the one numbered `seq` (at most [`Self::PAGE_ROWS`]), oldest first.
    /// None comes to be seen later than one with a greater number.
    ///
    /// # Errors
    /// [`PostgresError`].
    pub async fn after(&mut self, seq: i64) -> Result<Vec<StoredEntry>, PostgresError> {
        let Self { connector, connection } = self;
        // Waits for the rows that have a number and are not committed yet; nobody waits long for it,
        // as the lock ends with its statement.
        let settled = format!(
            "SELECT last_value FROM audit_seq_seq, (SELECT pg_advisory_xact_lock({})) AS lock",
            row::APPEND_LOCK
        );
        let settled = sqlx::query_scalar(AssertSqlSafe(settled)).fetch_one(&mut *connection);
        let settled: i64 = connector.answered(settled).await?;
        let next = row::select("seq > $1 AND seq <= $2 ORDER BY seq LIMIT $3");
        let next = sqlx::query(AssertSqlSafe(next)).bind(seq).bind(settled).bind(Self::PAGE_ROWS);
        let rows = connector.answered(next.fetch_all(connection)).await?;
        Ok(rows.iter().map(row::read).collect::<sqlx::Result<_>>()?)
    }
}
