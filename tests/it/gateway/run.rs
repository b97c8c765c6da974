//! Which run of an agent a call belongs to, as `x-run-id` says it.

use serde_json::{Value, json};

use crate::support::{
    app::{TestApp, chat},
    client::{Call, Response},
};

async fn post(app: &TestApp, path: &str, run_ids: &[&str]) -> Response {
    let header = |request: Call, id: &&str| request.header_too("x-run-id", id);
    run_ids.iter().fold(app.alice().post(path), header).json(&chat(false)).send().await
}

#[tokio::test]
async fn the_rows_of_a_call_say_its_run_and_the_capability_that_admitted_it() {
    let app = TestApp::start().await;
    let longest = "~".repeat(128);
    assert_eq!(post(&app, "/v1/chat/completions", &[&longest]).await.status, 200);
    assert_eq!(post(&app, "/v1/chat/completions", &[]).await.status, 200);
    let carol = app.caller("carol", "pro", &["model:embedding"]);
    let denied = carol.post("/v1/chat/completions").header("x-run-id", "run-7").json(&chat(false));
    assert_eq!(denied.send().await.status, 403);
    let rows = app.audit_rows_once(5).await;
    let said: Vec<_> = rows
        .iter()
        .map(|row| (&*row.kind, row.run_id.as_deref(), row.capability.as_deref()))
        .collect();
    let admitted = Some("model:reasoning");
    for kind in ["intent", "settle"] {
        assert!(said.contains(&(kind, Some(&longest), admitted)), "{said:?}");
        assert!(said.contains(&(kind, None, admitted)), "{said:?}");
    }
    assert!(said.contains(&("denied", Some("run-7"), None)), "{said:?}");
    app.shutdown().await;
}

#[tokio::test]
async fn a_run_id_that_is_none_is_refused_by_name() {
    let app = TestApp::start().await;
    let too_long = "r".repeat(129);
    for ids in [&[""][..], &["two words"], &["é"], &[&too_long], &["one", "two"], &["t\tab"]] {
        for path in ["/v1/chat/completions", "/v1/streams"] {
            let refused = post(&app, path, ids).await;
            assert_eq!(refused.status, 400, "{ids:?}");
            let body: Value = refused.json().await;
            assert_eq!(body["error"]["code"], "invalid_request");
            assert_eq!(body["error"]["param"], json!("x-run-id"));
            let message = body["error"]["message"].as_str().expect("a message");
            assert!(message.contains("1 to 128 visible ASCII characters"), "{message}");
        }
    }
    assert_eq!(app.upstream.counts().requests, 0, "nothing left");
    app.shutdown().await;
}
