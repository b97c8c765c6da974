//! Calls whose intent can't be recorded do not leave.

use std::time::Duration;

use serde_json::json;
use sqlx::{ConnectOptions, Connection, sqlite::SqliteConnectOptions};

use crate::support::{
    app::{TestApp, chat},
    client::{Client, Response, eventually},
};

const CHAT: &str = "/v1/chat/completions";
const PATIENCE: Duration = Duration::from_secs(20);
/// Room for a few calls.
const LIMIT_BYTES: u64 = 20_000;

async fn metric(admin: &Client, name: &str) -> u64 {
    let text = admin.get("/metrics").send().await.text().await;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.expect("the metric is there").parse().expect("a number")
}

async fn post(app: &TestApp) -> Response {
    app.alice().post(CHAT).json(&chat(false)).send().await
}

#[tokio::test]
async fn a_full_spool_is_a_503_and_readiness_and_the_metrics_say_so_until_the_store_is_back() {
    let app = TestApp::with(|config| config.audit.spool_limit_bytes = LIMIT_BYTES).await;
    let admin = Client::new(app.admin_address());
    assert_eq!(admin.get("/readyz").send().await.status, 200);
    // Whoever holds the database keeps the gateway from writing to it.
    let options = SqliteConnectOptions::new().filename(&app.config.audit.path);
    let mut holder = options.connect().await.expect("the database");
    let held = holder.begin_with("BEGIN IMMEDIATE").await.expect("its lock");

    let mut answered = 0;
    let refused = loop {
        let response = post(&app).await;
        if response.status != 200 {
            break response;
        }
        answered += 1;
        assert!(answered < 1_000, "it is bounded");
    };
    assert!(answered > 1, "while there is room, calls go on");
    assert_eq!(refused.status, 503);
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(refused.json().await["error"]["code"], "audit_unavailable");
    assert_eq!(app.upstream.counts().requests, answered, "nothing leaves unaudited");

    let ready = admin.get("/readyz").send().await;
    assert_eq!(ready.status, 503);
    let full = "the audit spool is full: the store has not taken what waits in it";
    assert_eq!(ready.json().await["reasons"], json!([full]));
    assert!(metric(&admin, "tollgate_audit_spool_bytes").await >= LIMIT_BYTES);
    assert_eq!(metric(&admin, "tollgate_audit_spool_limit_bytes").await, LIMIT_BYTES);
    assert_eq!(metric(&admin, "tollgate_audit_spool_full").await, 1);
    assert_eq!(metric(&admin, "tollgate_audit_spool_up").await, 1);

    held.rollback().await.expect("it is given back");
    eventually(PATIENCE, async || metric(&admin, "tollgate_audit_unshipped_entries").await == 0)
        .await;
    let rows = app.audit_rows().await;
    let intents = rows.iter().filter(|row| row.kind == "intent").count();
    let settled = rows.iter().filter(|row| row.outcome.as_deref() == Some("ok")).count();
    assert_eq!((intents, settled), (answered, answered));
    app.shutdown().await;
}
