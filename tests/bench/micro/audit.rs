//! How many rows of the audit trail are verified in a second.

use std::{fs, path::PathBuf, sync::Arc};

use criterion::{Criterion, Throughput};
use jiff::Timestamp;
use tokio::runtime::Runtime;
use tollgate::{
    audit::{
        AuditSink as _, Chain, Entry, EntryKind, KeptContent, Link, Linked, Record, encode,
        verify::{self, ChainReader, Options},
    },
    domain::{CallId, Caller, MicroUsd, TrustLevel, Usage, UsageSource, Vocabulary},
    storage::sqlite::{self, SqliteChain},
};

const ROWS: usize = 100_000;
/// Rows that are written at once.
const BATCH: usize = 500;

/// An intent and its end, as a common call has them.
fn call() -> [Entry; 2] {
    let vocabulary = Vocabulary::new(["model:reasoning"]);
    let caller = Caller {
        subject: "user-4711".to_owned(),
        issuer: "https://bff.example.com".to_owned(),
        tier: "pro".to_owned(),
        capabilities: vocabulary.get("model:reasoning").into_iter().collect(),
        agent: Some("support".to_owned()),
        trust: TrustLevel::L1,
        extra: [("cost_center".to_owned(), "42".to_owned())].into(),
    };
    let mut intent = Entry::new(EntryKind::Intent, "create_chat_completion", "req-0af76519");
    intent.call_id = Some(CallId::generate());
    intent.caller = Some(Arc::new(caller));
    intent.model = Some("reasoning".to_owned());
    intent.trace_id = Some(0x0af7_6519_16cd_43dd);
    let mut end = intent.follow_up(EntryKind::Settle);
    end.usage = Some(Usage { input_tokens: 312, output_tokens: 118, ..Usage::default() });
    end.usage_source = Some(UsageSource::Provider);
    end.cost = Some(MicroUsd(198));
    (end.outcome, end.status) = (Some("ok"), Some(200));
    [intent, end]
}

/// A SQLite file, gone with it.
struct Store(PathBuf);

impl Store {
    async fn new() -> Self {
        let directory =
            std::env::temp_dir().join(format!("tollgate-micro-{}", uuid::Uuid::new_v4()));
        let store = Self(directory);
        let sink = sqlite::open(&store.path()).await.expect("a database");
        let mut chain = Chain::after(Link::origin(uuid::Uuid::now_v7()));
        for _ in 0..ROWS / BATCH {
            let mut batch = Vec::with_capacity(BATCH);
            for entry in (0..BATCH / 2).flat_map(|_| call()) {
                let (link, record) = chain.link(|to| encode(&entry, to));
                batch.push((*link, record.to_vec()));
            }
            let records = batch.iter().map(|(link, record)| Linked {
                link: *link,
                record: Record::decode(record).expect("a record"),
                content: KeptContent::default(),
            });
            sink.append(&records.collect::<Vec<_>>()).await.expect("it is written");
        }
        store
    }

    fn path(&self) -> PathBuf {
        self.0.join("tollgate.db")
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // What can't be removed is in the system's temporary directory.
        let _ = fs::remove_dir_all(&self.0);
    }
}

async fn verified(reader: &mut dyn ChainReader) -> u64 {
    let options = Options {
        checkpoints: None,
        keys: Vec::new(),
        spool: None,
        from: None,
        to: None,
        retention_days: None,
        now: Timestamp::now(),
    };
    let report = verify::verify(reader, options, &|_, _| {}).await.expect("it is read");
    assert!(report.is_clean, "{:?}", report.findings);
    report.rows
}

pub fn audit_verify(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime starts");
    let store = runtime.block_on(Store::new());
    let mut group = criterion.benchmark_group("audit_verify");
    group.throughput(Throughput::Elements(u64::try_from(ROWS).unwrap_or(u64::MAX)));
    group.sample_size(10);
    group.bench_function("sqlite", |bencher| {
        let mut reader =
            runtime.block_on(SqliteChain::open(&store.path())).expect("the database opens");
        bencher.iter(|| {
            let rows = runtime.block_on(verified(&mut reader));
            assert_eq!(rows, u64::try_from(ROWS).unwrap_or(u64::MAX));
        });
    });
    group.finish();
}
