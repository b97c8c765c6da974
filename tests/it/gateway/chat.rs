//! POST /v1/chat/completions as a client, the provider and the audit trail see it.

use crate::support::{
    app::{PROVIDER_KEY, TestApp, chat},
    upstream::openai,
};

#[tokio::test]
async fn a_streamed_answer_is_forwarded_byte_for_byte_and_recorded() {
    let app = TestApp::start().await;
    let script = openai::text_stream_without_usage(["Hel", "lo"]);
    let sent = script.sent();
    app.upstream.enqueue(script);

    let mut body = chat(true);
    body["stream_options"] = serde_json::json!({ "include_usage": true });
    let response = app.alice().post("/v1/chat/completions").json(&body).send().await;
    assert_eq!(response.status, 200);
    assert_eq!(response.bytes().await, sent);

    let request = app.upstream.request();
    assert_eq!(request.json()["model"], "upstream-m");
    assert_eq!(request.json()["stream_options"]["include_usage"], true);
    assert_eq!(request.header("authorization"), Some(&*format!("Bearer {PROVIDER_KEY}")));
    let (_, terminal) = app.the_call().await;
    assert_eq!((&*terminal.kind, terminal.outcome.as_deref()), ("settle", Some("ok")));
    app.shutdown().await;
}

#[tokio::test]
async fn hanging_up_stops_the_upstream_and_is_recorded() {
    let app = TestApp::start().await;
    app.upstream.enqueue(crate::support::upstream::fault::stall_mid_stream());
    let response = app.alice().post("/v1/chat/completions").json(&chat(true)).send().await;
    assert_eq!(response.status, 200);
    drop(response);
    app.upstream.until(|counts| counts.aborted == 1).await;
    let (_, terminal) = app.the_call().await;
    assert_eq!(terminal.kind, "canceled");
    app.shutdown().await;
}
