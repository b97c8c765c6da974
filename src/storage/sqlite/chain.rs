//! Reading the chain.

use std::path::Path;

use async_trait::async_trait;
use futures_util::TryStreamExt as _;
use jiff::Timestamp;
use sqlx::{AssertSqlSafe, Row as _, SqliteConnection, sqlite::SqliteRow};

use super::{StorageError, content, migration, reader, row};
use crate::audit::verify::{
    CHUNK_ROWS, ChainChunk, ChainError, ChainReader, ContentBounds, KeptSide, MissingSides, Span,
    Spot, StoredLink, Unchained,
};

/// Reads the chain of a SQLite file, beside a gateway that writes it.
#[derive(Debug)]
pub struct SqliteChain {
    connection: SqliteConnection,
    /// The statement that reads the next rows.
    next: String,
    span: Option<Span>,
    /// The number in the chain and in the store of the row that was read last.
    last: (i64, i64),
}

/// What ends a call, and stands.
const TERMINAL: &str = "kind IN ('settle', 'denied', 'canceled')";
/// The columns of [`counted`].
const SPOT: &str = "writer, epoch, chain_seq, id, time_micros";

impl SqliteChain {
    /// Opens the database at `path`, which must be there and of this version's schema.
    pub async fn open(path: &Path) -> Result<Self, StorageError> {
        let mut connection = reader::connect(path).await?;
        migration::check_whole(path, &mut connection).await?;
        // One row may have the place of another: then their numbers in the store tell them apart.
        let next = format!(
            "SELECT seq, epoch, chain_seq, hash, {} FROM audit \
             WHERE writer = ? AND (chain_seq, seq) > (?, ?) AND chain_seq <= ? \
             ORDER BY chain_seq, seq LIMIT ?",
            row::fields()
        );
        Ok(Self { connection, next, span: None, last: (0, 0) })
    }

    async fn read_spans(&mut self) -> sqlx::Result<Vec<Span>> {
        // From one writer to the next by the index: there are far fewer of them than rows.
        let first = "SELECT min(writer) FROM audit";
        let next = "SELECT min(writer) FROM audit WHERE writer > ?";
        let ends = "SELECT (SELECT min(chain_seq) FROM audit WHERE writer = ?1), \
                    (SELECT max(chain_seq) FROM audit WHERE writer = ?1)";
        let mut spans = Vec::new();
        let connection = &mut self.connection;
        let mut found: Option<String> =
            sqlx::query_scalar(first).fetch_one(&mut *connection).await?;
        while let Some(writer) = found {
            let (first, last): (Option<i64>, Option<i64>) =
                sqlx::query_as(ends).bind(&writer).fetch_one(&mut *connection).await?;
            found = sqlx::query_scalar(next).bind(&writer).fetch_one(&mut *connection).await?;
            if let (Some(first), Some(last)) = (first, last) {
                spans.push(Span { writer, first, last });
            }
        }
        Ok(spans)
    }

    async fn read_next(&mut self, chunk: &mut ChainChunk) -> sqlx::Result<()> {
        let Some(span) = &self.span else { return Ok(()) };
        let query = sqlx::query(AssertSqlSafe(&*self.next))
            .bind(&span.writer)
            .bind(self.last.0)
            .bind(self.last.1)
            .bind(span.last)
            .bind(i64::try_from(CHUNK_ROWS).unwrap_or(i64::MAX));
        let mut rows = query.fetch(&mut self.connection);
        while let Some(found) = rows.try_next().await? {
            let seq = found.try_get(2)?;
            self.last = (seq, found.try_get(0)?);
            let link = StoredLink { epoch: found.try_get(1)?, seq, hash: found.try_get(3)? };
            chunk.push(link, row::record(&found, 4).ok().as_ref());
        }
        Ok(())
    }

    async fn read_unchained(&mut self) -> sqlx::Result<Unchained> {
        let connection = &mut self.connection;
        let first = "SELECT seq FROM audit WHERE writer IS NOT NULL ORDER BY seq LIMIT 1";
        let first: Option<i64> = sqlx::query_scalar(first).fetch_optional(&mut *connection).await?;
        let first = first.unwrap_or(i64::MAX);
        let old = "writer IS NULL AND chain_seq IS NULL AND epoch IS NULL AND hash IS NULL \
                   AND seq < ? AND time_micros <= coalesce((SELECT time_micros FROM audit WHERE seq = ?), \
                   9223372036854775807)";
        let count = format!("SELECT count(*) FROM audit WHERE {old}");
        let before: i64 = sqlx::query_scalar(AssertSqlSafe(count))
            .bind(first)
            .bind(first)
            .fetch_one(&mut *connection)
            .await?;
        let other = format!(
            "SELECT {SPOT}, count(*) OVER () FROM audit \
             WHERE (writer IS NULL OR chain_seq IS NULL) AND NOT ({old}) ORDER BY seq LIMIT 1"
        );
        let other = sqlx::query(AssertSqlSafe(other)).bind(first).bind(first);
        let other = other.fetch_optional(&mut *connection).await?;
        let (after, first) = counted(other.as_ref())?;
        Ok(Unchained { before: u64::try_from(before).unwrap_or(0), after, first })
    }

    async fn read_hidden(&mut self) -> sqlx::Result<(u64, Spot)> {
        // Each condition of the index on calls' ends, so that it is used.
        let hidden = format!(
            "SELECT {SPOT}, count(*) OVER () FROM audit AS hidden \
             WHERE superseded AND NOT (hidden.{TERMINAL} AND EXISTS \
             (SELECT 1 FROM audit WHERE call_id = hidden.call_id AND call_id IS NOT NULL \
             AND {TERMINAL} AND NOT superseded)) ORDER BY writer, chain_seq LIMIT 1"
        );
        let row = sqlx::query(AssertSqlSafe(hidden)).fetch_optional(&mut self.connection).await?;
        counted(row.as_ref())
    }
}

/// A row of [`SPOT`], and how many there are.
fn counted(row: Option<&SqliteRow>) -> sqlx::Result<(u64, Spot)> {
    let Some(row) = row else { return Ok((0, Spot::default())) };
    let writer: Option<&str> = row.try_get(0)?;
    let (epoch, seq): (Option<i64>, Option<i64>) = (row.try_get(1)?, row.try_get(2)?);
    let time: i64 = row.try_get(4)?;
    let spot = Spot {
        writer: writer.and_then(|writer| writer.parse().ok()),
        epoch: epoch.and_then(|epoch| u32::try_from(epoch).ok()),
        seq: seq.and_then(|seq| u64::try_from(seq).ok()),
        entry: Some(row.try_get(3)?),
        time: Timestamp::from_microsecond(time).ok(),
        ..Spot::default()
    };
    Ok((u64::try_from(row.try_get::<i64, _>(5)?).unwrap_or(0), spot))
}

#[async_trait]
impl ChainReader for SqliteChain {
    async fn spans(&mut self) -> Result<Vec<Span>, ChainError> {
        self.read_spans().await.map_err(ChainError::new)
    }

    async fn within(
        &mut self,
        writer: &str,
        from: Option<Timestamp>,
        to: Option<Timestamp>,
    ) -> Result<Option<Span>, ChainError> {
        let ends = "SELECT min(chain_seq), max(chain_seq) FROM audit \
                    WHERE writer = ? AND time_micros BETWEEN ? AND ?";
        let ends = sqlx::query_as(ends)
            .bind(writer)
            .bind(from.map_or(i64::MIN, Timestamp::as_microsecond))
            .bind(to.map_or(i64::MAX, Timestamp::as_microsecond))
            .fetch_one(&mut self.connection);
        let (first, last): (Option<i64>, Option<i64>) = ends.await.map_err(ChainError::new)?;
        Ok(first.zip(last).map(|(first, last)| Span { writer: writer.to_owned(), first, last }))
    }

    async fn open(&mut self, span: &Span) -> Result<(), ChainError> {
        self.last = (span.first, i64::MIN);
        self.span = Some(span.clone());
        Ok(())
    }

    async fn read(&mut self, chunk: &mut ChainChunk) -> Result<(), ChainError> {
        self.read_next(chunk).await.map_err(ChainError::new)
    }

    async fn unchained(&mut self) -> Result<Unchained, ChainError> {
        self.read_unchained().await.map_err(ChainError::new)
    }

    async fn hidden(&mut self) -> Result<(u64, Spot), ChainError> {
        self.read_hidden().await.map_err(ChainError::new)
    }

    async fn contents(
        &mut self,
        after: Option<(&str, &str)>,
        bounds: ContentBounds,
    ) -> Result<Vec<KeptSide>, ChainError> {
        content::kept(&mut self.connection, after, bounds).await.map_err(ChainError::new)
    }

    async fn without_content(
        &mut self,
        expired_before: Option<Timestamp>,
        bounds: ContentBounds,
    ) -> Result<MissingSides, ChainError> {
        let missing = content::missing(&mut self.connection, expired_before, bounds).await;
        missing.map_err(ChainError::new)
    }
}
