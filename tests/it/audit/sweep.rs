//! Calls that a lost gateway left without an end are given one, in every store.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::time::Instant;
use tollgate::{
    audit::{Entry, EntryKind, OpenIntents, SweepError, Turn, UNKNOWN},
    storage::postgres,
};

use super::{
    contract::Sqlite,
    life::{Ended, Life, SweptStore, expect_sound},
    postgres::Postgres,
    support::{TempDir, append, denial, intent, kinds_of, settle},
};
use crate::support::{client::eventually, postgres::run};

const PATIENCE: Duration = Duration::from_secs(20);
const NEVER: Duration = Duration::from_hours(1);

/// The outcome of the one end that a call has.
async fn outcome(store: &impl SweptStore, call: &Entry) -> Option<String> {
    let lines = store.lines().await;
    let id = call.call_id.map(|id| id.to_string());
    assert_eq!(kinds_of(call, &lines), ["intent", "settle"]);
    let end = lines.into_iter().find(|line| line.call_id == id && line.kind == "settle");
    end.unwrap().outcome
}

async fn an_intent_is_open_until_its_call_has_an_end<S: SweptStore>() {
    let store = S::make().await;
    let sink = store.shared_sink().await;
    let calls: Vec<_> = (0..4).map(|_| intent()).collect();
    append(&*sink, &[&calls[..], &[denial()]].concat()).await.unwrap();
    let intents = store.intents();
    let mut turn = intents.turn().await.unwrap().expect("nobody else has it");
    let (swept, last) = turn.span().await.unwrap();
    assert_eq!(swept, 0);
    let found = turn.find(0, last).await.unwrap();
    let rows: Vec<i64> = found.iter().map(|intent| intent.row).collect();
    assert_eq!(rows.len(), 4);
    assert!(rows.is_sorted() && found.iter().all(|it| it.writer.is_some()), "{found:?}");
    assert_eq!(turn.find(rows[0], rows[2]).await.unwrap(), found[1..3], "only of the span");

    let ends = [EntryKind::Settle, EntryKind::Denied, EntryKind::Canceled];
    let ends: Vec<_> = calls.iter().zip(ends).map(|(call, kind)| call.follow_up(kind)).collect();
    append(&*sink, &ends).await.unwrap();
    append(&*sink, &[calls[3].follow_up(EntryKind::ToolCall)]).await.unwrap();
    let last = turn.span().await.unwrap().1;
    assert_eq!(turn.find(0, last).await.unwrap(), found[3..]);
    assert_eq!(turn.still_open(&rows).await.unwrap(), rows[3..]);
    let records = turn.records(&rows).await.unwrap();
    let [record] = &records[..] else { panic!("{} records", records.len()) };
    let mut expected = Vec::new();
    tollgate::audit::encode(&calls[3], &mut expected);
    assert_eq!(record, &expected);

    for (to, swept) in [(2, 2), (1, 2), (last, last)] {
        turn.advance(to).await.unwrap();
        assert_eq!(turn.span().await.unwrap().0, swept);
    }
}

async fn what_a_gateway_left_open_is_closed_at_once_when_it_is_back<S: SweptStore>() {
    let (store, directory) = (S::make().await, TempDir::new());
    let life = Life::begin(&store, &directory, NEVER).await;
    let (lost, ended) = (life.intent().await, life.intent().await);
    life.audit.record(settle(&ended)).await;
    life.end().await;

    let mut life = Life::begin(&store, &directory, NEVER).await;
    let running = life.intent().await;
    assert_eq!(life.sweep().await, [lost.call_id.unwrap()]);
    assert_eq!(life.audit.status().closed_unknown, 1);
    assert_eq!(life.sweep().await, []);
    assert_eq!(outcome(&store, &lost).await.as_deref(), Some(UNKNOWN));
    assert_eq!(outcome(&store, &ended).await.as_deref(), Some("ok"));
    life.audit.record(settle(&running)).await;
    life.end().await;
    assert_eq!(outcome(&store, &running).await.as_deref(), Some("ok"));

    let mut life = Life::begin(&store, &directory, NEVER).await;
    assert_eq!(life.sweep().await, [], "all of them have their end");
    life.end().await;
    expect_sound(&store, 6).await;
}

async fn an_end_that_comes_after_the_sweeper_is_stored_and_does_not_count<S: SweptStore>() {
    let (store, [here, there]) = (S::make().await, [TempDir::new(), TempDir::new()]);
    let away = Life::begin(&store, &there, NEVER).await;
    let call = away.intent().await;
    away.audit.flush(PATIENCE).await.unwrap();

    let mut patient = Life::begin(&store, &here, NEVER).await;
    assert_eq!(patient.sweep().await, [], "another's call may still run");
    patient.end().await;
    let mut hasty = Life::begin(&store, &here, Duration::ZERO).await;
    assert_eq!(hasty.sweep().await, [call.call_id.unwrap()]);
    hasty.end().await;

    away.audit.record(settle(&call)).await;
    away.end().await;
    assert_eq!(outcome(&store, &call).await.as_deref(), Some(UNKNOWN));
    expect_sound(&store, 3).await;
}

async fn the_time_starts_anew_when_the_store_was_out_of_reach<S: SweptStore>() {
    let (store, [here, there]) = (S::make().await, [TempDir::new(), TempDir::new()]);
    let away = Life::begin(&store, &there, NEVER).await;
    let call = away.intent().await;
    away.audit.flush(PATIENCE).await.unwrap();

    let after = Duration::from_secs(2);
    let intents = Arc::new(Failing { inner: store.intents(), fails: false.into() });
    let sink = store.shared_sink().await;
    let mut life = Life::begin_with(sink, Arc::clone(&intents) as _, &here, after);
    let started = Instant::now();
    assert_eq!(life.sweep().await, []);
    intents.fails.store(true, std::sync::atomic::Ordering::Relaxed);
    let ended = Ended::default();
    eventually(PATIENCE, async || {
        assert!(life.sweeper.sweep(&ended).await.is_err());
        started.elapsed() > after
    })
    .await;
    intents.fails.store(false, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(life.sweep().await, [], "its end may be on its way");
    eventually(PATIENCE, async || life.sweeper.sweep(&ended).await.unwrap() == Some(1)).await;
    assert_eq!(*ended.0.lock().unwrap(), [call.call_id.unwrap()]);
    life.end().await;
    away.end().await;
}

/// Intents of a store that is away at times.
struct Failing {
    inner: Arc<dyn OpenIntents>,
    fails: std::sync::atomic::AtomicBool,
}

#[async_trait]
impl OpenIntents for Failing {
    async fn turn(&self) -> Result<Option<Box<dyn Turn>>, SweepError> {
        if self.fails.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(SweepError::store(std::io::Error::other("it is away")));
        }
        self.inner.turn().await
    }
}

/// One test a rule for one store.
macro_rules! suite {
    ($name:ident, $store:ty) => {
        mod $name {
            use super::*;

            suite!(@ $store, an_intent_is_open_until_its_call_has_an_end);
            suite!(@ $store, what_a_gateway_left_open_is_closed_at_once_when_it_is_back);
            suite!(@ $store, an_end_that_comes_after_the_sweeper_is_stored_and_does_not_count);
            suite!(@ $store, the_time_starts_anew_when_the_store_was_out_of_reach);
        }
    };
    (@ $store:ty, $rule:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $rule() {
            super::$rule::<$store>().await;
        }
    };
}

suite!(in_sqlite, Sqlite);
suite!(in_postgres, Postgres);

#[tokio::test]
async fn of_several_gateways_one_is_at_it() {
    let store = Postgres::start().await;
    postgres::migrate(&store.config).await.unwrap();
    let intents = [store.intents(), store.intents()];
    let turn = intents[0].turn().await.unwrap();
    assert!(turn.is_some());
    assert!(intents[1].turn().await.unwrap().is_none());
    drop(turn);
    // The server sees in its own time that a connection has ended.
    eventually(PATIENCE, async || intents[1].turn().await.unwrap().is_some()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_counts_once_in_the_sums_with_all_that_its_intent_says() {
    let (store, directory) = (Postgres::start().await, TempDir::new());
    let life = Life::begin(&store, &directory, NEVER).await;
    let call = life.intent().await;
    life.end().await;
    let mut life = Life::begin(&store, &directory, NEVER).await;
    assert_eq!(life.sweep().await.len(), 1);
    life.audit.record(settle(&call)).await;
    life.end().await;
    let sums = "SELECT subject, tier, agent, model, calls::text, cost_micro_usd::text \
                FROM tollgate.audit_usage";
    let sums: Vec<[Option<String>; 6]> = store
        .rows::<(Option<String>, Option<String>, Option<String>, Option<String>, String, Option<String>)>(sums)
        .await
        .into_iter()
        .map(|(a, b, c, d, e, f)| [a, b, c, d, Some(e), f])
        .collect();
    let expected = ["user-1", "pro", "coder", "demo", "1", "0"];
    assert_eq!(sums, [expected.map(|text| Some(text.to_owned()))]);
}

/// As many rows as a planner would not read for nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn to_look_at_the_newest_rows_reads_no_others() {
    let store = Postgres::start().await;
    postgres::migrate(&store.config).await.unwrap();
    append(&*store.shared_sink().await, &[denial()]).await.unwrap();
    let mut superuser = store.database.superuser().await;
    let fill = "SET session_replication_role = replica; SET search_path = tollgate; \
        INSERT INTO audit (time_micros, id, call_id, writer, epoch, chain_seq, hash, kind, superseded) \
        SELECT (SELECT min(time_micros) FROM audit), gen_random_uuid(), \
            md5((i / 2)::text)::uuid, md5('w')::uuid, 1, i, '', \
            CASE WHEN i % 2 = 0 THEN 'intent' ELSE 'settle' END, false \
        FROM generate_series(0, 99999) AS i; \
        INSERT INTO audit_closed SELECT md5(i::text)::uuid, gen_random_uuid() \
        FROM generate_series(0, 49998) AS i; ANALYZE audit; ANALYZE audit_closed";
    run(&mut superuser, fill).await;
    let read =
        "SELECT sum(seq_tup_read)::int8 FROM pg_stat_user_tables WHERE relname LIKE 'audit%'";
    let looked =
        "SELECT sum(idx_scan)::int8 FROM pg_stat_user_tables WHERE relname = 'audit_closed'";
    // The server counts in its own time, when a connection ends.
    drop(superuser);
    let before = (store.number(read).await, store.number(looked).await);
    let intents = store.intents();
    let mut turn = intents.turn().await.unwrap().unwrap();
    let last = turn.span().await.unwrap().1;
    let found = turn.find(last - 20, last).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(turn.still_open(&[found[0].row]).await.unwrap(), [found[0].row]);
    assert_eq!(turn.records(&[found[0].row]).await.unwrap().len(), 1);
    drop(turn);
    eventually(PATIENCE, async || store.number(looked).await > before.1).await;
    let rows = store.number(read).await - before.0;
    assert!(rows < 100, "{rows} rows were read one after the other");
}
