//! Reading the chain.

use async_trait::async_trait;
use futures_util::TryStreamExt as _;
use jiff::Timestamp;
use sqlx::{AssertSqlSafe, PgConnection, Row as _, postgres::PgRow};
use tokio::{sync::mpsc, task::JoinHandle};
use uuid::Uuid;

use super::{
    PostgresError,
    connection::{Connector, Role},
    content,
    copy::Rows,
    dead_letter::Letters,
    migration::Schema,
    row,
};
use crate::{
    audit::{
        FIELDS, FieldType, Record, Value,
        verify::{
            CHUNK_ROWS, ChainChunk, ChainError, ChainReader, ContentBounds, KeptSide, MissingSides,
            Span, Spot, StoredLink, Unchained,
        },
    },
    config::AuditConfig,
};

/// What is copied of a row: `epoch`, `chain_seq` and `hash`, then the record's fields.
const COLUMNS: usize = 3 + FIELDS.len();
/// Chunks that are read before they are asked for.
const READ_AHEAD: usize = 2;
/// For a reader that takes hours: its statements have no end, and rows come by the index and not
/// sorted, which would be done before the first comes.
const SESSION: &str = "SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; \
                       SET enable_sort = off; SET jit = off";
/// The columns of [`counted`].
const SPOT: &str = "writer::text, epoch, chain_seq, id::text, time_micros, count(*) OVER ()";

/// Reads the chains in a Postgres database, beside the gateways that write them.
#[derive(Debug)]
pub struct PostgresChain {
    connector: Connector,
    /// Away while a task reads with it.
    connection: Option<PgConnection>,
    reading: Option<Reading>,
    writers: Vec<String>,
}

/// A task that reads the rows of a span.
#[derive(Debug)]
struct Reading {
    chunks: mpsc::Receiver<ChainChunk>,
    task: JoinHandle<Result<PgConnection, PostgresError>>,
}

/// The numbers of the first and last rows of a writer.
const ENDS: &str = "SELECT min(chain_seq), max(chain_seq) FROM (\
    (SELECT chain_seq FROM audit WHERE writer = $1::uuid ORDER BY chain_seq LIMIT 1) UNION ALL \
    (SELECT chain_seq FROM audit WHERE writer = $1::uuid ORDER BY chain_seq DESC LIMIT 1) UNION ALL \
    (SELECT min(chain_seq) FROM audit_dead_letter WHERE writer = $1::uuid) UNION ALL \
    (SELECT max(chain_seq) FROM audit_dead_letter WHERE writer = $1::uuid)) AS ends";

impl PostgresChain {
    /// Connects to the database of `[audit]`, which must be migrated.
    ///
    /// # Errors
    /// [`PostgresError`].
    pub async fn open(config: &AuditConfig) -> Result<Self, PostgresError> {
        let connector = Connector::new(config)?;
        let mut connection = connect(&connector).await?;
        let schema = Schema::read(&mut connection).await?;
        if schema.as_ref().map(Schema::is_current).transpose()? != Some(true) {
            return Err(PostgresError::NotMigrated { role: connector.gateway_role().to_owned() });
        }
        Ok(Self { connector, connection: Some(connection), reading: None, writers: Vec::new() })
    }

    /// The connection, once what is being read is done with.
    async fn connection(&mut self) -> Result<&mut PgConnection, PostgresError> {
        if let Some(Reading { chunks, task }) = self.reading.take() {
            drop(chunks);
            // One that panicked has read not all: that is no end of the rows.
            let crashed = |_| PostgresError::Query(sqlx::Error::WorkerCrashed);
            self.connection = Some(task.await.map_err(crashed)??);
        }
        if self.connection.is_none() {
            self.connection = Some(connect(&self.connector).await?);
        }
        self.connection.as_mut().ok_or(PostgresError::Query(sqlx::Error::WorkerCrashed))
    }

    async fn read_spans(&mut self) -> Result<Vec<Span>, PostgresError> {
        // From one writer to the next by the index: there are far fewer of them than rows.
        let next = |after: &str| {
            let least = |table: &str| {
                format!(
                    "(SELECT writer FROM {table} WHERE writer {after} $1::uuid ORDER BY writer LIMIT 1)"
                )
            };
            let (rows, letters) = (least("audit"), least("audit_dead_letter"));
            format!("SELECT min(writer::text) FROM ({rows} UNION ALL {letters}) AS next")
        };
        let (first, next) = (next(">="), next(">"));
        let connection = self.connection().await?;
        let (mut spans, mut writers) = (Vec::new(), Vec::new());
        let lowest = sqlx::query_scalar(AssertSqlSafe(first)).bind(Uuid::nil().to_string());
        let mut found: Option<String> = lowest.fetch_one(&mut *connection).await?;
        while let Some(writer) = found {
            let ends = sqlx::query_as(ENDS).bind(&writer).fetch_one(&mut *connection);
            let (first, last): (Option<i64>, Option<i64>) = ends.await?;
            if let (Some(first), Some(last)) = (first, last) {
                spans.push(Span { writer: writer.clone(), first, last });
            }
            let later = sqlx::query_scalar(AssertSqlSafe(&*next)).bind(&writer);
            found = later.fetch_one(&mut *connection).await?;
            writers.push(writer);
        }
        self.writers = writers;
        Ok(spans)
    }

    async fn begin(&mut self, span: &Span) -> Result<(), PostgresError> {
        let connection = self.connection().await?;
        let letters = if Letters::are_there(connection, span).await? {
            // A connection of their own, as the copy has this one.
            Some(Letters::new(connect(&self.connector).await?, span))
        } else {
            None
        };
        let (sender, chunks) = mpsc::channel(READ_AHEAD);
        if let (Some(connection), Ok(writer)) = (self.connection.take(), span.writer.parse()) {
            let (chunk, is_uuid) = (ChainChunk::default(), row::uuid_fields());
            let copying = Copying { sender, chunk, writer, letters, is_uuid };
            let task = tokio::spawn(copying.run(connection, span.clone()));
            self.reading = Some(Reading { chunks, task });
        }
        Ok(())
    }

    async fn read_next(&mut self, chunk: &mut ChainChunk) -> Result<(), PostgresError> {
        let Some(reading) = &mut self.reading else { return Ok(()) };
        match reading.chunks.recv().await {
            Some(next) => *chunk = next,
            // At the end, or where it has failed.
            None => drop(self.connection().await?),
        }
        Ok(())
    }

    async fn read_unchained(&mut self) -> Result<Unchained, PostgresError> {
        // No column of a link may be null; but whoever owns the table may change that.
        let nobodys = format!("SELECT {SPOT} FROM audit WHERE writer IS NULL LIMIT 1");
        let nowhere = format!(
            "SELECT {SPOT} FROM audit WHERE writer = $1::uuid AND chain_seq IS NULL LIMIT 1"
        );
        let writers = self.writers.clone();
        let connection = self.connection().await?;
        let row = sqlx::query(AssertSqlSafe(nobodys)).fetch_optional(&mut *connection).await?;
        let (mut after, mut first) = counted(row.as_ref())?;
        for writer in writers {
            let query = sqlx::query(AssertSqlSafe(&*nowhere)).bind(writer);
            let row = query.fetch_optional(&mut *connection).await?;
            let (count, spot) = counted(row.as_ref())?;
            first = if after == 0 { spot } else { first };
            after += count;
        }
        Ok(Unchained { before: 0, after, first })
    }

    async fn read_hidden(&mut self) -> Result<(u64, Spot), PostgresError> {
        let terminal = row::terminal();
        let hidden = format!(
            "SELECT {SPOT} FROM audit AS hidden WHERE superseded AND NOT ({terminal} AND EXISTS \
             (SELECT 1 FROM audit AS first WHERE first.call_id = hidden.call_id \
             AND first.kind IN ('settle', 'denied', 'canceled') AND NOT first.superseded)) ORDER BY writer, chain_seq LIMIT 1"
        );
        let connection = self.connection().await?;
        let row = sqlx::query(AssertSqlSafe(hidden)).fetch_optional(connection).await?;
        Ok(counted(row.as_ref())?)
    }

    async fn read_within(
        &mut self,
        writer: &str,
        from: Option<Timestamp>,
        to: Option<Timestamp>,
    ) -> Result<Option<Span>, PostgresError> {
        let ends = "SELECT min(chain_seq), max(chain_seq) FROM audit \
                    WHERE writer = $1::uuid AND time_micros BETWEEN $2 AND $3";
        let ends = sqlx::query_as(ends)
            .bind(writer)
            .bind(from.map_or(i64::MIN, Timestamp::as_microsecond))
            .bind(to.map_or(i64::MAX, Timestamp::as_microsecond))
            .fetch_one(self.connection().await?);
        let (first, last): (Option<i64>, Option<i64>) = ends.await?;
        Ok(first.zip(last).map(|(first, last)| Span { writer: writer.to_owned(), first, last }))
    }
}

async fn connect(connector: &Connector) -> Result<PgConnection, PostgresError> {
    let mut connection = connector.connect(Role::Gateway).await?;
    sqlx::raw_sql(SESSION).execute(&mut connection).await?;
    Ok(connection)
}

/// A row of [`SPOT`].
fn counted(row: Option<&PgRow>) -> sqlx::Result<(u64, Spot)> {
    let Some(row) = row else { return Ok((0, Spot::default())) };
    let writer: Option<&str> = row.try_get(0)?;
    let (epoch, seq): (Option<i64>, Option<i64>) = (row.try_get(1)?, row.try_get(2)?);
    let spot = Spot {
        writer: writer.and_then(|writer| writer.parse().ok()),
        epoch: epoch.and_then(|epoch| u32::try_from(epoch).ok()),
        seq: seq.and_then(|seq| u64::try_from(seq).ok()),
        entry: row.try_get(3)?,
        time: Timestamp::from_microsecond(row.try_get(4)?).ok(),
        ..Spot::default()
    };
    Ok((u64::try_from(row.try_get::<i64, _>(5)?).unwrap_or(0), spot))
}

/// Copies the rows of a span into chunks.
struct Copying {
    sender: mpsc::Sender<ChainChunk>,
    chunk: ChainChunk,
    writer: Uuid,
    letters: Option<Letters>,
    /// Which fields are UUIDs in the table.
    is_uuid: [bool; FIELDS.len()],
}

impl Copying {
    /// Gives the connection back, unless nobody wants the rest of the rows.
    async fn run(
        mut self,
        mut connection: PgConnection,
        span: Span,
    ) -> Result<PgConnection, PostgresError> {
        // What is put in are a UUID and numbers: COPY takes no parameters.
        let copy = format!(
            "COPY (SELECT epoch, chain_seq, hash, {} FROM audit WHERE writer = '{}' \
             AND chain_seq BETWEEN {} AND {} ORDER BY chain_seq) TO STDOUT (FORMAT binary)",
            FIELDS.map(|(name, _)| name).join(", "),
            self.writer,
            span.first,
            span.last
        );
        self.chunk.begin(self.writer);
        let mut rows = Rows::<COLUMNS>::default();
        let mut stream = connection.copy_out_raw(&copy).await?;
        while let Some(piece) = stream.try_next().await? {
            rows.push(&piece);
            let other = |error| sqlx::Error::Protocol(format!("{error}"));
            while let Some(row) = rows.next().map_err(other)? {
                let seq = row[1].and_then(number).unwrap_or_default();
                if self.letters.is_some() {
                    self.add_letters(seq, row[2]).await?;
                }
                push(&mut self.chunk, seq, &row, &self.is_uuid);
                self.send(CHUNK_ROWS).await?;
            }
        }
        drop(stream);
        self.add_letters(i64::MAX, None).await?;
        self.send(1).await?;
        Ok(connection)
    }

    /// Adds the dead letters that come before row `seq`. One that was taken after all is that row.
    async fn add_letters(&mut self, seq: i64, hash: Option<&[u8]>) -> Result<(), PostgresError> {
        while let Some(letters) = &mut self.letters {
            let Some(letter) = letters.next().await? else {
                self.letters = None;
                break;
            };
            if letter.seq > seq {
                break;
            }
            if letter.seq != seq || hash != Some(&*letter.hash) {
                let link = StoredLink {
                    epoch: Some(letter.epoch),
                    seq: letter.seq,
                    hash: Some(&letter.hash),
                };
                self.chunk.push_encoded(link, &letter.record);
            }
            letters.pass();
            self.send(CHUNK_ROWS).await?;
        }
        Ok(())
    }

    /// Sends the chunk if it has so many rows.
    async fn send(&mut self, least: usize) -> Result<(), PostgresError> {
        if self.chunk.len() >= least {
            let full = std::mem::take(&mut self.chunk);
            self.chunk.begin(self.writer);
            // Nobody wants more.
            let gone = |_| PostgresError::Query(sqlx::Error::WorkerCrashed);
            self.sender.send(full).await.map_err(gone)?;
        }
        Ok(())
    }
}

/// Adds a row as it was copied.
fn push(
    chunk: &mut ChainChunk,
    seq: i64,
    row: &[Option<&[u8]>; COLUMNS],
    is_uuid: &[bool; FIELDS.len()],
) {
    let link = StoredLink { epoch: row[0].and_then(number), seq, hash: row[2] };
    let mut uuids = [[0; uuid::fmt::Hyphenated::LENGTH]; row::UUID_FIELDS.len()];
    chunk.push(link, record(row, is_uuid, &mut uuids).as_ref());
}

fn record<'a>(
    row: &[Option<&'a [u8]>; COLUMNS],
    is_uuid: &[bool; FIELDS.len()],
    uuids: &'a mut [[u8; uuid::fmt::Hyphenated::LENGTH]; row::UUID_FIELDS.len()],
) -> Option<Record<'a>> {
    let mut values = [Value::Null; FIELDS.len()];
    let mut uuids = uuids.iter_mut();
    for (at, (value, (_, field))) in values.iter_mut().zip(FIELDS).enumerate() {
        let Some(bytes) = row[3 + at] else { continue };
        *value = match field {
            FieldType::Number => Value::Number(number(bytes)?),
            FieldType::Text if is_uuid[at] => {
                let id = Uuid::from_slice(bytes).ok()?;
                Value::Text(id.hyphenated().encode_lower(uuids.next()?))
            }
            FieldType::Text => Value::Text(std::str::from_utf8(bytes).ok()?),
        };
    }
    Some(Record::new(&values))
}

fn number(bytes: &[u8]) -> Option<i64> {
    bytes.try_into().ok().map(i64::from_be_bytes)
}

#[async_trait]
impl ChainReader for PostgresChain {
    async fn spans(&mut self) -> Result<Vec<Span>, ChainError> {
        self.read_spans().await.map_err(ChainError::new)
    }

    async fn within(
        &mut self,
        writer: &str,
        from: Option<Timestamp>,
        to: Option<Timestamp>,
    ) -> Result<Option<Span>, ChainError> {
        self.read_within(writer, from, to).await.map_err(ChainError::new)
    }

    async fn open(&mut self, span: &Span) -> Result<(), ChainError> {
        self.begin(span).await.map_err(ChainError::new)
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
        let connection = self.connection().await.map_err(ChainError::new)?;
        content::kept(connection, after, bounds).await.map_err(ChainError::new)
    }

    async fn without_content(
        &mut self,
        expired_before: Option<Timestamp>,
        bounds: ContentBounds,
    ) -> Result<MissingSides, ChainError> {
        let connection = self.connection().await.map_err(ChainError::new)?;
        content::missing(connection, expired_before, bounds).await.map_err(ChainError::new)
    }
}
