//! How many rows of the audit trail come to Postgres in a second, and what a row takes up there.

use std::{sync::Arc, time::Duration};

use criterion::{BatchSize, Criterion, Throughput};
use tokio::runtime::Runtime;
use tollgate::{
    audit::{AuditSink as _, Chain, Entry, EntryKind, Link, Linked, Record, encode},
    config::{AuditConfig, AuditStore},
    domain::{CallId, Caller, MicroUsd, TrustLevel, Usage, UsageSource, Vocabulary},
    storage::postgres,
};

#[path = "../../it/support/patience.rs"]
mod patience;
#[path = "../../it/support/postgres.rs"]
#[expect(
    dead_code,
    clippy::panic,
    reason = "tests do more with a server than start it, and fail by panicking"
)]
mod server;

use server::PostgresServer;

/// As many as the shipper sends at once.
const BATCH: usize = tollgate::audit::spool::BATCH_RECORDS;

/// An intent and its end, as a common call has them.
fn call(caller: &Arc<Caller>) -> [Entry; 2] {
    let mut intent = Entry::new(EntryKind::Intent, "create_chat_completion", "req-0af76519");
    intent.call_id = Some(CallId::generate());
    intent.caller = Some(Arc::clone(caller));
    intent.model = Some("reasoning".to_owned());
    intent.trace_id = Some(0x0af7_6519_16cd_43dd);
    let mut end = intent.follow_up(EntryKind::Settle);
    (end.provider, end.provider_model) = (Some("cerebras".to_owned()), Some("gpt-oss".to_owned()));
    end.usage = Some(Usage { input_tokens: 312, output_tokens: 118, ..Usage::default() });
    end.usage_source = Some(UsageSource::Provider);
    end.cost = Some(MicroUsd(198));
    (end.latency, end.time_to_first) =
        (Some(Duration::from_secs(1)), Some(Duration::from_millis(98)));
    (end.outcome, end.status) = (Some("ok"), Some(200));
    [intent, end]
}

fn caller(number: usize) -> Arc<Caller> {
    let vocabulary = Vocabulary::new(["model:reasoning"]);
    Arc::new(Caller {
        subject: format!("user-{number}"),
        issuer: "https://bff.example.com".to_owned(),
        tier: "pro".to_owned(),
        capabilities: vocabulary.get("model:reasoning").into_iter().collect(),
        agent: Some("support".to_owned()),
        trust: TrustLevel::L1,
        extra: [("cost_center".to_owned(), "42".to_owned())].into(),
    })
}

/// A server that syncs each batch, as in production, on this machine.
pub fn audit_ship(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime starts");
    let server = runtime.block_on(PostgresServer::start_own(true));
    let database = runtime.block_on(server.database());
    let config = AuditConfig {
        store: AuditStore::Postgres,
        url: Some(database.gateway_url()),
        owner_url: Some(database.owner_url()),
        ..AuditConfig::default()
    };
    let sink = postgres::sink(&config).expect("a URL");
    let callers: Vec<_> = (0..50).map(caller).collect();
    let mut chain = Chain::after(Link::origin(uuid::Uuid::now_v7()));
    let mut batch = || {
        let calls = (0..BATCH / 2).flat_map(|number| call(&callers[number % callers.len()]));
        let record = |entry| {
            let (link, record) = chain.link(|to| encode(&entry, to));
            (*link, record.to_vec())
        };
        calls.map(record).collect::<Vec<_>>()
    };
    let mut group = criterion.benchmark_group("audit_ship");
    group.throughput(Throughput::Elements(u64::try_from(BATCH).unwrap_or(u64::MAX)));
    group.measurement_time(Duration::from_secs(10));
    group.bench_function("postgres", |bencher| {
        bencher.iter_batched(
            &mut batch,
            |batch| {
                let records: Vec<_> = batch.iter().map(linked).collect();
                runtime.block_on(sink.append(&records)).expect("it is written");
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
    runtime.block_on(report(&database));
}

fn linked((link, record): &(Link, Vec<u8>)) -> Linked<'_> {
    Linked { link: *link, record: Record::decode(record).expect("a record") }
}

#[expect(clippy::print_stdout, reason = "its output is its result")]
async fn report(database: &server::Database) {
    let sizes = "SELECT (SELECT count(*) FROM tollgate.audit), \
                 (SELECT sum(pg_table_size(inhrelid))::int8 FROM pg_inherits \
                  WHERE inhparent = 'tollgate.audit'::regclass), \
                 (SELECT sum(pg_indexes_size(inhrelid))::int8 FROM pg_inherits \
                  WHERE inhparent = 'tollgate.audit'::regclass), \
                 pg_total_relation_size('tollgate.audit_closed')";
    let mut superuser = database.superuser().await;
    let sizes = sqlx::query_as(sizes).fetch_one(&mut superuser).await;
    let (rows, table, indexes, closed): (i64, i64, i64, i64) = sizes.expect("the sizes");
    let each = |bytes: i64| bytes / rows.max(1);
    println!(
        "audit_ship/postgres: {rows} rows; bytes a row: {} table, {} indexes, {} closed calls",
        each(table),
        each(indexes),
        each(closed)
    );
}
