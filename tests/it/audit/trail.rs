//! A store with the chains of two gateways in it and their logs of checkpoints, to be tampered with.

use std::{
    fmt::Write,
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use sqlx::{
    AssertSqlSafe, ColumnIndex, ConnectOptions, Decode, PgConnection, Row, SqliteConnection, Type,
    sqlite::SqliteConnectOptions,
};
use tokio::sync::Mutex;
use tollgate::{
    audit::{
        AuditSink, Chain, Entry, EntryKind, FIELDS, FieldType, KeptContent, Link, Linked,
        MAX_TEXT_BYTES, Record, Value,
        checkpoint::{CheckpointKey, CheckpointLog, Head},
        encode,
        verify::{self, ChainReader, Finding, FindingKind, Options, Report},
    },
    storage::{
        postgres::{PostgresChain, migrate},
        sqlite::{self, SqliteChain},
    },
};
use uuid::Uuid;

use super::{
    postgres::Postgres,
    support::{TempDir, denial, intent, settle},
};

/// Rows of one epoch, and epochs of one writer.
pub const EPOCH_ROWS: u64 = 24;
pub const EPOCHS: u32 = 3;
pub const WRITER_ROWS: u64 = EPOCH_ROWS * EPOCHS as u64;
/// A checkpoint is made after so many rows; one epoch's end has one.
pub const CHECKPOINT_ROWS: usize = 8;

/// A store that somebody who may do anything to it tampers with.
#[async_trait(?Send)]
pub trait TamperStore: Send + Sync + Sized {
    async fn make(directory: &Path) -> Self;
    /// An empty store: a new one, or `kept` without its rows where that is quicker.
    async fn renew(kept: Option<Arc<Self>>, directory: &Path) -> Arc<Self>;
    fn sink(&self) -> &dyn AuditSink;
    async fn chain(&self) -> Box<dyn ChainReader>;
    /// Whoever owns the store is stopped by no trigger.
    async fn execute(&self, sql: &str);
    /// The rows of a writer in the order of the chain.
    async fn rows(&self, writer: Uuid) -> Vec<Stored>;
    /// Bytes as a literal.
    fn blob(bytes: &[u8]) -> String;
}

/// A row: its place, and its record's bytes.
#[derive(Debug, Clone)]
pub struct Stored {
    pub link: Link,
    pub record: Vec<u8>,
}

pub struct Sqlite {
    path: PathBuf,
    sink: sqlite::SqliteSink,
}

impl Sqlite {
    async fn connect(&self) -> SqliteConnection {
        SqliteConnectOptions::new().filename(&self.path).connect().await.unwrap()
    }
}

#[async_trait(?Send)]
impl TamperStore for Sqlite {
    async fn make(directory: &Path) -> Self {
        let path = directory.join("tollgate.db");
        let sink = sqlite::open(&path).await.unwrap();
        let store = Self { path, sink };
        for trigger in ["audit_no_update", "audit_no_delete"] {
            store.execute(&format!("DROP TRIGGER {trigger}")).await;
        }
        store
    }

    async fn renew(_: Option<Arc<Self>>, directory: &Path) -> Arc<Self> {
        Arc::new(Self::make(directory).await)
    }

    fn sink(&self) -> &dyn AuditSink {
        &self.sink
    }

    async fn chain(&self) -> Box<dyn ChainReader> {
        Box::new(SqliteChain::open(&self.path).await.unwrap())
    }

    async fn execute(&self, sql: &str) {
        let done = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut self.connect().await).await;
        done.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    async fn rows(&self, writer: Uuid) -> Vec<Stored> {
        let fields = FIELDS.map(|(name, _)| name).join(", ");
        let query = format!(
            "SELECT epoch, chain_seq, hash, {fields} FROM audit WHERE writer = ? ORDER BY chain_seq"
        );
        let query = sqlx::query(AssertSqlSafe(query)).bind(writer.to_string());
        let rows = query.fetch_all(&mut self.connect().await).await.unwrap();
        let read = |row: &sqlx::sqlite::SqliteRow| {
            let link = Link {
                writer,
                epoch: row.get(0),
                seq: u64::try_from(row.get::<i64, _>(1)).unwrap(),
                hash: row.get::<Vec<u8>, _>(2).try_into().unwrap(),
            };
            Stored { link, record: record(row) }
        };
        rows.iter().map(read).collect()
    }

    fn blob(bytes: &[u8]) -> String {
        let mut literal = "x'".to_owned();
        for byte in bytes {
            write!(literal, "{byte:02x}").unwrap();
        }
        literal + "'"
    }
}

/// A database of which its superuser is the intruder.
pub struct InPostgres {
    postgres: Postgres,
    /// Kept, as it takes long to make one.
    superuser: Mutex<PgConnection>,
}

#[async_trait(?Send)]
impl TamperStore for InPostgres {
    async fn make(_: &Path) -> Self {
        let postgres = Postgres::start().await;
        migrate(&postgres.config).await.unwrap();
        let superuser = Mutex::new(postgres.database.superuser().await);
        Self { postgres, superuser }
    }

    async fn renew(kept: Option<Arc<Self>>, directory: &Path) -> Arc<Self> {
        let Some(kept) = kept else { return Arc::new(Self::make(directory).await) };
        kept.execute("TRUNCATE audit, audit_closed, audit_dead_letter, audit_usage, audit_content")
            .await;
        kept
    }

    fn sink(&self) -> &dyn AuditSink {
        &self.postgres.sink
    }

    async fn chain(&self) -> Box<dyn ChainReader> {
        Box::new(PostgresChain::open(&self.postgres.config).await.unwrap())
    }

    async fn execute(&self, sql: &str) {
        let sql = format!("SET search_path = tollgate; {sql}");
        let mut superuser = self.superuser.lock().await;
        let done = sqlx::raw_sql(AssertSqlSafe(&*sql)).execute(&mut *superuser).await;
        done.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    async fn rows(&self, writer: Uuid) -> Vec<Stored> {
        let fields = FIELDS.map(|(name, field)| match field {
            FieldType::Text => format!("{name}::text"),
            FieldType::Number => name.to_owned(),
        });
        let query = format!(
            "SELECT epoch, chain_seq, hash, {} FROM tollgate.audit WHERE writer = $1::uuid \
             ORDER BY chain_seq",
            fields.join(", ")
        );
        let query = sqlx::query(AssertSqlSafe(query)).bind(writer.to_string());
        let mut superuser = self.superuser.lock().await;
        let rows = query.fetch_all(&mut *superuser).await.unwrap();
        let read = |row: &sqlx::postgres::PgRow| {
            let link = Link {
                writer,
                epoch: u32::try_from(row.get::<i64, _>(0)).unwrap(),
                seq: u64::try_from(row.get::<i64, _>(1)).unwrap(),
                hash: row.get::<Vec<u8>, _>(2).try_into().unwrap(),
            };
            Stored { link, record: record(row) }
        };
        rows.iter().map(read).collect()
    }

    fn blob(bytes: &[u8]) -> String {
        Sqlite::blob(bytes).replace("x'", "'\\x")
    }
}

/// The bytes of a row's record, whose fields stand behind three columns of its link.
fn record<'r, R>(row: &'r R) -> Vec<u8>
where
    R: Row,
    usize: ColumnIndex<R>,
    Option<&'r str>: Decode<'r, R::Database> + Type<R::Database>,
    Option<i64>: Decode<'r, R::Database> + Type<R::Database>,
{
    let value = |at: usize| match FIELDS[at].1 {
        FieldType::Text => row.get::<Option<&str>, _>(at + 3).map(Value::Text),
        FieldType::Number => row.get::<Option<i64>, _>(at + 3).map(Value::Number),
    };
    let values = std::array::from_fn(|at| value(at).unwrap_or(Value::Null));
    let mut record = Vec::new();
    Record::new(&values).encode(&mut record);
    record
}

/// Where one trail after the other is made.
pub struct Stage<S> {
    kept: Option<Arc<S>>,
}

impl<S: TamperStore> Stage<S> {
    pub const fn new() -> Self {
        Self { kept: None }
    }

    /// An empty store.
    pub async fn store(&mut self, directory: &TempDir) -> Arc<S> {
        let store = S::renew(self.kept.take(), directory.path()).await;
        self.kept = Some(Arc::clone(&store));
        store
    }

    pub async fn trail(&mut self) -> Trail<S> {
        let directory = TempDir::new();
        let store = self.store(&directory).await;
        Trail::new(directory, store).await
    }
}

/// Both gateways' rows and checkpoints.
pub struct Trail<S> {
    pub directory: TempDir,
    pub store: Arc<S>,
    pub writers: [Uuid; 2],
}

impl<S: TamperStore> Trail<S> {
    /// As two gateways would have left it that were started a few times and drained.
    async fn new(directory: TempDir, store: Arc<S>) -> Self {
        let writers = [Uuid::now_v7(), Uuid::now_v7()];
        let trail = Self { directory, store, writers };
        for writer in 0..2 {
            trail.write(writer, Link::origin(trail.writers[writer]), 1..=EPOCHS).await;
        }
        trail
    }

    /// Goes on as the gateway would.
    pub async fn write(&self, writer: usize, last: Link, epochs: std::ops::RangeInclusive<u32>) {
        let key = CheckpointKey::open(&self.key(writer)).unwrap();
        let mut log = CheckpointLog::open(&self.log(writer)).unwrap();
        let mut last = last;
        for epoch in epochs {
            let mut chain = Chain::after(Link { epoch, ..last });
            for batch in entries(EPOCH_ROWS).chunks(CHECKPOINT_ROWS) {
                last = append(&*self.store, &mut chain, batch).await;
                log.add(&key, vec![Head { link: last, stored: last.seq }]).unwrap();
            }
        }
    }

    pub fn log(&self, writer: usize) -> PathBuf {
        self.directory.path().join(format!("checkpoints-{writer}.jsonl"))
    }

    pub fn key(&self, writer: usize) -> PathBuf {
        self.directory.path().join(format!("checkpoint-{writer}.pem"))
    }

    pub fn lines(&self, writer: usize) -> Vec<String> {
        let text = std::fs::read_to_string(self.log(writer)).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    pub fn set_lines(&self, writer: usize, lines: &[String]) {
        let end = if lines.is_empty() { "" } else { "\n" };
        std::fs::write(self.log(writer), lines.join("\n") + end).unwrap();
    }

    pub fn options(&self) -> Options {
        let keys = (0..2).map(|writer| CheckpointKey::load(&self.key(writer)).unwrap().public());
        Options {
            checkpoints: Some(vec![self.log(0), self.log(1)]),
            keys: keys.collect(),
            spool: None,
            from: None,
            to: None,
            retention_days: None,
            contents: false,
            now: Timestamp::now(),
        }
    }

    pub async fn verify(&self) -> Report {
        self.verify_with(self.options()).await
    }

    /// As it will be seen when no row is so new that its checkpoint may be waited for.
    pub async fn verify_later(&self) -> Report {
        let now = Timestamp::now() + SignedDuration::from_hours(1);
        self.verify_with(Options { now, ..self.options() }).await
    }

    pub async fn verify_with(&self, options: Options) -> Report {
        let mut chain = self.store.chain().await;
        verify::verify(&mut *chain, options, &|_, _| {}).await.unwrap()
    }

    pub async fn rows(&self, writer: usize) -> Vec<Stored> {
        self.store.rows(self.writers[writer]).await
    }

    /// The condition that one row fulfils.
    pub fn at(&self, writer: usize, seq: u64) -> String {
        format!("writer = '{}' AND chain_seq = {seq}", self.writers[writer])
    }

    /// Makes the hashes of a writer's rows from `first` on fit what they hold.
    pub async fn forge(&self, writer: usize, first: u64) {
        let rows = self.rows(writer).await;
        let mut last = Link::origin(self.writers[writer]);
        for Stored { link, record } in &rows {
            if link.seq < first {
                last = *link;
                continue;
            }
            let mut chain = Chain::after(Link { epoch: link.epoch, ..last });
            last = *chain.link(|to| to.extend(record)).0;
            let set = format!("UPDATE audit SET hash = {} WHERE ", S::blob(&last.hash));
            self.store.execute(&(set + &self.at(writer, link.seq))).await;
        }
    }
}

/// Entries of every kind: calls with two ends, fields at their longest, fields that are not set.
pub fn entries(count: u64) -> Vec<Entry> {
    let mut entries = Vec::new();
    while (entries.len() as u64) < count {
        let call = intent();
        let detail = Some(format!("{}\0", "é".repeat(MAX_TEXT_BYTES)));
        let cut = Entry { detail, request_id: "\0".to_owned(), ..denial() };
        let (end, later) = (settle(&call), call.follow_up(EntryKind::Canceled));
        entries.extend([call, end, later, cut]);
    }
    entries.truncate(usize::try_from(count).unwrap());
    entries
}

/// Appends as a shipper would; returns the last link.
pub async fn append<S: TamperStore>(store: &S, chain: &mut Chain, entries: &[Entry]) -> Link {
    let linked = |entry: &Entry| {
        let (link, record) = chain.link(|to| encode(entry, to));
        (*link, record.to_vec())
    };
    let records: Vec<_> = entries.iter().map(linked).collect();
    let mut batch = Vec::new();
    for (link, record) in &records {
        let (link, record) = (*link, Record::decode(record).unwrap());
        batch.push(Linked { link, record, content: KeptContent::default() });
    }
    store.sink().append(&batch).await.unwrap();
    *chain.last()
}

/// What was found, of this kind.
pub fn found(report: &Report, kind: FindingKind) -> &Finding {
    let finding = report.findings.iter().find(|finding| finding.kind == kind);
    assert!(!report.is_clean && finding.is_some(), "no {kind:?}: {report:#?}");
    finding.unwrap()
}

/// A test for each rule, of one store.
macro_rules! suite {
    ($name:ident, $store:ty: $($rule:ident),* $(,)?) => {
        mod $name {
            use super::*;

            $(#[tokio::test]
            async fn $rule() {
                super::$rule::<$store>(&mut Stage::new()).await;
            })*
        }
    };
}

pub(super) use suite;
