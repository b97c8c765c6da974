//! Questions that take too long, that are too many, and that nobody waits for any more.

use std::time::Duration;

use serde_json::Value;
use sqlx::Connection as _;
use tokio::time::Instant;
use tollgate::{
    audit::{
        AuditSink as _, Entry,
        query::{AuditQuery, Field, Filter, Order, QueryError, QueryLimits},
    },
    storage::{
        postgres::{self, PostgresTrail},
        sqlite::{self, AuditReader},
    },
};

use super::{
    postgres::{Postgres, config},
    support::{Batch, TempDir, append, denial},
};
use crate::support::{app::TestApp, client::eventually, postgres::run};

const PATIENCE: Duration = Duration::from_secs(20);
/// One question at a time, and nobody waits long for it.
const ONE: QueryLimits =
    QueryLimits { answer: Duration::from_mins(1), wait: Duration::from_millis(50), at_once: 1 };
/// Questions that wait for a lock or work, of the gateway's role.
const ASKING: &str = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' \
    AND usename LIKE '%_gateway' AND datname = current_database() AND query LIKE '%ORDER BY time_micros%'";

async fn page(trail: &dyn AuditQuery) -> Result<usize, QueryError> {
    let mut filter = Filter::default();
    filter.set_field(Field::Tier, "none").unwrap();
    trail.page(&filter, Order::NewestFirst, None, 10).await.map(|page| page.len())
}

async fn in_sqlite(directory: &TempDir) {
    let sink = sqlite::open(&directory.file()).await.unwrap();
    let entries: Vec<_> = (0..4_000).map(|_| denial()).collect();
    sink.append(&Batch::of(&entries).linked()).await.unwrap();
}

#[tokio::test]
async fn sqlite_gives_up_what_takes_too_long() {
    let directory = TempDir::new();
    in_sqlite(&directory).await;
    let limits = QueryLimits { answer: Duration::ZERO, ..QueryLimits::default() };
    let hurried = AuditReader::open_with(&directory.file(), limits).await.unwrap();
    for _ in 0..2 * limits.at_once {
        let error = page(&hurried).await.unwrap_err();
        assert!(matches!(error, QueryError::TooSlow(0)), "{error:?}");
    }
    let patient = AuditReader::open(&directory.file()).await.unwrap();
    assert_eq!(page(&patient).await.unwrap(), 0);
}

#[tokio::test]
async fn sqlite_gives_up_what_nobody_waits_for() {
    let directory = TempDir::new();
    in_sqlite(&directory).await;
    let trail = AuditReader::open_with(&directory.file(), ONE).await.unwrap();
    for _ in 0..20 {
        // Answered or not, whoever asked has gone: the next one has its place.
        let asked = Box::pin(page(&trail));
        drop(futures_util::future::select(asked, std::future::ready(())).await);
    }
    assert_eq!(page(&trail).await.unwrap(), 0);
}

#[tokio::test]
async fn sqlite_answers_so_many_at_once() {
    let directory = TempDir::new();
    in_sqlite(&directory).await;
    let none = QueryLimits { at_once: 0, ..ONE };
    let trail = AuditReader::open_with(&directory.file(), none).await.unwrap();
    assert!(matches!(page(&trail).await, Err(QueryError::Busy)));
}

/// A store with an entry, whose table is locked against everybody until the connection is closed.
async fn locked() -> (Postgres, sqlx::PgConnection) {
    let store = Postgres::start().await;
    postgres::migrate(&store.config).await.unwrap();
    append(&store.sink, &[denial()]).await.unwrap();
    let mut superuser = store.database.superuser().await;
    run(&mut superuser, "BEGIN; LOCK TABLE tollgate.audit IN ACCESS EXCLUSIVE MODE").await;
    (store, superuser)
}

#[tokio::test]
async fn postgres_gives_up_what_takes_too_long() {
    let (store, locking) = locked().await;
    let limits = QueryLimits { answer: Duration::from_millis(50), ..QueryLimits::default() };
    let trail = PostgresTrail::with(&store.config, limits).unwrap();
    for _ in 0..2 * limits.at_once {
        let error = page(&trail).await.unwrap_err();
        assert!(matches!(error, QueryError::TooSlow(_)), "{error:?}");
    }
    locking.close().await.unwrap();
    assert_eq!(page(&trail).await.unwrap(), 0, "its connection is as good as before");
}

#[tokio::test]
async fn postgres_answers_so_many_at_once_and_gives_up_what_nobody_waits_for() {
    let (store, locking) = locked().await;
    let trail = PostgresTrail::with(&store.config, ONE).unwrap();
    let asked = async {
        tokio::select! {
            answered = page(&trail) => panic!("the table is locked: {answered:?}"),
            () = eventually(PATIENCE, async || store.number(ASKING).await == 1) => {}
        }
    };
    asked.await;
    // Dropped, it waits for the lock no more, long before its time is over.
    eventually(PATIENCE, async || store.number(ASKING).await == 0).await;

    let mut first = Box::pin(page(&trail));
    tokio::select! {
        answered = &mut first => panic!("the table is locked: {answered:?}"),
        () = eventually(PATIENCE, async || store.number(ASKING).await == 1) => {}
    }
    assert!(matches!(page(&trail).await, Err(QueryError::Busy)));
    locking.close().await.unwrap();
    assert_eq!(first.await.unwrap(), 0);
}

async fn gateway_on(store: &Postgres) -> TestApp {
    TestApp::with(|gateway| {
        let path = gateway.audit.path.clone();
        gateway.audit = config(&store.database);
        gateway.audit.path = path;
    })
    .await
}

#[tokio::test]
async fn a_client_that_hangs_up_has_its_question_canceled() {
    let (store, locking) = locked().await;
    let app = gateway_on(&store).await;
    let auditor = app.caller("auditor", "pro", &["audit:read"]);
    let asking = tokio::spawn(auditor.get("/v1/audit").try_send());
    eventually(PATIENCE, async || store.number(ASKING).await == 1).await;
    let began = std::time::Instant::now();
    asking.abort();
    eventually(PATIENCE, async || store.number(ASKING).await == 0).await;
    assert!(began.elapsed() < QueryLimits::default().answer, "not for its time being over");
    locking.close().await.unwrap();
    app.shutdown().await;
}

#[tokio::test]
async fn the_api_says_that_a_question_was_too_slow_or_one_too_many() {
    let (store, locking) = locked().await;
    let app = gateway_on(&store).await;
    let auditor = app.caller("auditor", "pro", &["audit:read"]);
    let limits = QueryLimits::default();
    let first: Vec<_> = (0..limits.at_once)
        .map(|_| tokio::spawn(auditor.get("/v1/audit?from=1h").try_send()))
        .collect();
    let all = i64::try_from(limits.at_once).unwrap();
    eventually(PATIENCE, async || store.number(ASKING).await == all).await;
    let refused = auditor.get("/v1/audit").send().await;
    assert_eq!(refused.status, 503);
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(refused.json().await["error"]["code"], "overloaded");
    for asked in first {
        let slow = asked.await.unwrap().unwrap();
        let status = slow.status;
        let body = slow.json().await;
        assert_eq!(
            (status.as_u16(), &body["error"]["param"]),
            (504, &Value::from("from")),
            "{body}"
        );
        assert_eq!(body["error"]["code"], "query_too_slow", "{body}");
    }
    locking.close().await.unwrap();
    assert_eq!(auditor.get("/v1/audit").send().await.status, 200);
    app.shutdown().await;
}

#[tokio::test]
async fn lines_that_can_not_go_on_end_with_an_error() {
    let store = Postgres::start().await;
    postgres::migrate(&store.config).await.unwrap();
    // More than the sockets between them hold, so that the reader decides when the next page is read.
    let entry = |number: usize| Entry {
        request_id: format!("r-{number}"),
        detail: Some("x".repeat(8_000)),
        ..denial()
    };
    let entries: Vec<_> = (0..4_000).map(entry).collect();
    for part in Batch::of(&entries).linked().chunks(500) {
        store.sink.append(part).await.unwrap();
    }
    let app = gateway_on(&store).await;
    let auditor = app.caller("auditor", "pro", &["audit:read"]);
    let asked = auditor.get("/v1/audit").header("accept", "application/x-ndjson");
    let mut response = asked.send().await;
    assert_eq!(response.status, 200);
    let first = response.next_piece(Instant::now() + PATIENCE).await.unwrap().unwrap();
    let mut superuser = store.database.superuser().await;
    run(&mut superuser, "ALTER TABLE tollgate.audit RENAME TO away").await;
    let text = String::from_utf8(first.to_vec()).unwrap() + &response.text().await;
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (last, entries) = lines.split_last().unwrap();
    assert_eq!(last["error"]["code"], "audit_unavailable", "{last}");
    assert!((1..4_000).contains(&entries.len()), "{} entries", entries.len());
    let newest = (0..4_000).rev().map(|number| format!("r-{number}"));
    assert!(newest.zip(entries).all(|(id, entry)| entry["request_id"] == id.as_str()));
    app.shutdown().await;
}
