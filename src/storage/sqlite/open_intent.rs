//! Finding intents without an end.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use serde_json::json;
use sqlx::{AssertSqlSafe, Row as _, SqliteConnection, sqlite::SqliteRow};

use super::{connect, row};
use crate::audit::{OpenIntent, OpenIntents, SweepError, Turn};

/// The rows of `audit` that are intents without an end; each condition of the index on calls' ends, so
/// that it is used.
const OPEN: &str = "kind = 'intent' AND NOT EXISTS (SELECT 1 FROM audit AS ending \
                    WHERE ending.call_id = audit.call_id AND ending.call_id IS NOT NULL \
                    AND ending.kind IN ('settle', 'denied', 'canceled') AND NOT ending.superseded)";
/// `?` is a JSON array of numbers.
const ROWS: &str = "seq IN (SELECT value FROM json_each(?))";

/// The intents of a SQLite file. One gateway writes it, so a turn is always to be had.
#[derive(Debug)]
pub struct SqliteOpenIntents {
    path: PathBuf,
}

impl SqliteOpenIntents {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }
}

struct SqliteTurn(SqliteConnection);

#[async_trait]
impl OpenIntents for SqliteOpenIntents {
    async fn turn(&self) -> Result<Option<Box<dyn Turn>>, SweepError> {
        // A connection for each turn: between two of them none is needed for long.
        let connection = connect(&self.path).await.map_err(SweepError::store)?;
        Ok(Some(Box::new(SqliteTurn(connection))))
    }
}

#[async_trait]
impl Turn for SqliteTurn {
    async fn span(&mut self) -> Result<(i64, i64), SweepError> {
        let span =
            "SELECT (SELECT seq FROM audit_swept), coalesce((SELECT max(seq) FROM audit), 0)";
        sqlx::query_as(span).fetch_one(&mut self.0).await.map_err(SweepError::store)
    }

    async fn find(&mut self, after: i64, last: i64) -> Result<Vec<OpenIntent>, SweepError> {
        let find = format!(
            "SELECT seq, writer, chain_seq FROM audit WHERE seq > ? AND seq <= ? AND {OPEN} ORDER BY seq"
        );
        let rows = sqlx::query(AssertSqlSafe(find)).bind(after).bind(last);
        let rows = rows.fetch_all(&mut self.0).await.map_err(SweepError::store)?;
        rows.iter().map(found).collect::<sqlx::Result<_>>().map_err(SweepError::store)
    }

    async fn still_open(&mut self, rows: &[i64]) -> Result<Vec<i64>, SweepError> {
        let open = format!("SELECT seq FROM audit WHERE {ROWS} AND {OPEN}");
        let open = sqlx::query_scalar(AssertSqlSafe(open)).bind(json!(rows).to_string());
        open.fetch_all(&mut self.0).await.map_err(SweepError::store)
    }

    async fn records(&mut self, rows: &[i64]) -> Result<Vec<Vec<u8>>, SweepError> {
        let fields = row::fields();
        let records = format!("SELECT {fields} FROM audit WHERE {ROWS} AND {OPEN} ORDER BY seq");
        let records = sqlx::query(AssertSqlSafe(records)).bind(json!(rows).to_string());
        let records = records.fetch_all(&mut self.0).await.map_err(SweepError::store)?;
        let encoded = |found: &SqliteRow| {
            let mut bytes = Vec::new();
            row::record(found, 0)?.encode(&mut bytes);
            Ok(bytes)
        };
        records.iter().map(encoded).collect::<sqlx::Result<_>>().map_err(SweepError::store)
    }

    async fn advance(&mut self, swept: i64) -> Result<(), SweepError> {
        let advance = "UPDATE audit_swept SET seq = ?1 WHERE seq < ?1";
        let advanced = sqlx::query(advance).bind(swept).execute(&mut self.0).await;
        advanced.map(drop).map_err(SweepError::store)
    }
}

fn found(row: &SqliteRow) -> sqlx::Result<OpenIntent> {
    let writer: Option<&str> = row.try_get(1)?;
    let chain_seq: Option<i64> = row.try_get(2)?;
    let writer = writer.and_then(|writer| writer.parse().ok());
    Ok(OpenIntent { row: row.try_get(0)?, writer, chain_seq: chain_seq.unwrap_or(i64::MAX) })
}
