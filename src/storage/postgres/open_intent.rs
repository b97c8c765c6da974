//! Finding intents without an end.

use async_trait::async_trait;
use sqlx::{AssertSqlSafe, PgConnection, Row as _, postgres::PgRow};

use super::{
    PostgresError,
    connection::{Connector, Role},
    row,
};
use crate::audit::{OpenIntent, OpenIntents, SweepError, Turn};

/// Of several gateways one looks at a time.
const LOCK: i64 = 0x7467_7377_6570;
/// A turn whose gateway is out of reach ends after this long, and the next gateway's begins: for the
/// server that connection lives on until the network says otherwise.
const LIMIT: &str = "SET idle_session_timeout = '60s'";
/// The rows of `audit` that are intents without an end: `audit_closed` knows of every end, in one row
/// for a call.
const OPEN: &str = "kind = 'intent' AND call_id IS NOT NULL AND NOT EXISTS \
                    (SELECT FROM audit_closed WHERE audit_closed.call_id = audit.call_id)";

/// The intents of a Postgres database.
#[derive(Debug)]
pub struct PostgresOpenIntents {
    connector: Connector,
}

impl PostgresOpenIntents {
    pub(super) const fn new(connector: Connector) -> Self {
        Self { connector }
    }

    async fn connect(&self) -> Result<Option<PostgresTurn>, PostgresError> {
        let mut connection = self.connector.connect(Role::Gateway).await?;
        let limited = sqlx::raw_sql(LIMIT).execute(&mut connection);
        self.connector.answered(limited).await?;
        // It ends with the connection, which ends with the turn.
        let lock = sqlx::query_scalar("SELECT pg_try_advisory_lock($1)").bind(LOCK);
        let is_ours: bool = self.connector.answered(lock.fetch_one(&mut connection)).await?;
        Ok(is_ours.then(|| PostgresTurn { connector: self.connector.clone(), connection }))
    }
}

struct PostgresTurn {
    connector: Connector,
    connection: PgConnection,
}

#[async_trait]
impl OpenIntents for PostgresOpenIntents {
    async fn turn(&self) -> Result<Option<Box<dyn Turn>>, SweepError> {
        let turn = self.connect().await.map_err(SweepError::store)?;
        Ok(turn.map(|turn| Box::new(turn) as Box<dyn Turn>))
    }
}

#[async_trait]
impl Turn for PostgresTurn {
    async fn span(&mut self) -> Result<(i64, i64), SweepError> {
        // The lock first, and for this statement alone: it waits for rows that have a number and are
        // not committed yet.
        let span = format!(
            "SELECT (SELECT seq FROM audit_swept), CASE WHEN is_called THEN last_value ELSE 0 END \
             FROM audit_seq_seq, (SELECT pg_advisory_xact_lock({})) AS lock",
            row::APPEND_LOCK
        );
        let span = sqlx::query_as(AssertSqlSafe(span)).fetch_one(&mut self.connection);
        self.connector.answered(span).await.map_err(SweepError::store)
    }

    async fn find(&mut self, after: i64, last: i64) -> Result<Vec<OpenIntent>, SweepError> {
        let find = format!(
            "SELECT seq, writer::text, chain_seq FROM audit WHERE seq > $1 AND seq <= $2 AND {OPEN} \
             ORDER BY seq"
        );
        let rows = sqlx::query(AssertSqlSafe(find)).bind(after).bind(last);
        let rows = self.connector.answered(rows.fetch_all(&mut self.connection)).await;
        let rows = rows.map_err(SweepError::store)?;
        rows.iter().map(found).collect::<sqlx::Result<_>>().map_err(SweepError::store)
    }

    async fn still_open(&mut self, rows: &[i64]) -> Result<Vec<i64>, SweepError> {
        let open = format!("SELECT seq FROM audit WHERE seq = ANY($1) AND {OPEN}");
        let open = sqlx::query_scalar(AssertSqlSafe(open)).bind(rows);
        let open = self.connector.answered(open.fetch_all(&mut self.connection)).await;
        open.map_err(SweepError::store)
    }

    async fn records(&mut self, rows: &[i64]) -> Result<Vec<Vec<u8>>, SweepError> {
        let records = row::select(&format!("seq = ANY($1) AND {OPEN} ORDER BY seq"));
        let records = sqlx::query(AssertSqlSafe(records)).bind(rows);
        let records = self.connector.answered(records.fetch_all(&mut self.connection)).await;
        let records = records.map_err(SweepError::store)?;
        records.iter().map(row::encoded).collect::<sqlx::Result<_>>().map_err(SweepError::store)
    }

    async fn advance(&mut self, swept: i64) -> Result<(), SweepError> {
        let advance = sqlx::query("SELECT mark_swept($1)").bind(swept);
        let advanced = self.connector.answered(advance.execute(&mut self.connection)).await;
        advanced.map(drop).map_err(SweepError::store)
    }
}

fn found(row: &PgRow) -> sqlx::Result<OpenIntent> {
    let writer: &str = row.try_get(1)?;
    Ok(OpenIntent { row: row.try_get(0)?, writer: writer.parse().ok(), chain_seq: row.try_get(2)? })
}
