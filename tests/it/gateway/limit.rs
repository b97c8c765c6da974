//! Budgets as a client meets them: requests a minute and calls at once.

use serde_json::{Value, json};
use tollgate::config::LimitConfig;

use crate::support::{
    app::{TestApp, chat},
    client::{Client, Response},
    native::Native,
    upstream::{Script, fault, openai},
};

const ALL: &[&str] = &["model:reasoning", "model:embedding"];

async fn post(client: &Client, stream: bool) -> Response {
    client.post("/v1/chat/completions").json(&chat(stream)).send().await
}

fn ratelimit(response: &Response) -> [Option<&str>; 3] {
    ["limit", "remaining", "reset"].map(|what| match what {
        "limit" => response.header("x-ratelimit-limit-requests"),
        "remaining" => response.header("x-ratelimit-remaining-requests"),
        _ => response.header("x-ratelimit-reset-requests"),
    })
}

async fn code(response: Response) -> Value {
    response.json().await["error"]["code"].clone()
}

#[tokio::test]
async fn every_answer_says_how_the_requests_stand() {
    let app = TestApp::start().await;
    let bob = app.caller("bob", "tight", ALL);
    let first = post(&bob, false).await;
    assert_eq!(first.status, 200);
    let [limit, remaining, reset] = ratelimit(&first);
    assert_eq!((limit, remaining), (Some("2"), Some("1")));
    assert!(matches!(reset, Some("30s")), "{reset:?}");
    let second = post(&bob, true).await;
    assert_eq!(ratelimit(&second)[..2], [Some("2"), Some("0")]);
    second.bytes().await;

    for path in ["/v1/chat/completions", "/v1/streams"] {
        let refused = bob.post(path).json(&chat(true)).send().await;
        assert_eq!(refused.status, 429);
        assert_eq!(ratelimit(&refused)[..2], [Some("2"), Some("0")]);
        let s: u64 = refused.header("retry-after").expect("a time").parse().expect("seconds");
        let ms: u64 = refused.header("retry-after-ms").expect("a time").parse().expect("ms");
        assert!((25_000..=30_000).contains(&ms), "{ms}");
        assert_eq!(s, ms.div_ceil(1_000));
        assert_eq!(refused.header("x-tollgate-source"), Some("gateway"));
        let error = refused.json().await["error"].clone();
        assert_eq!(
            (&error["code"], &error["type"]),
            (&json!("rate_limited"), &json!("rate_limit_error"))
        );
        assert_eq!(error["param"], "model");
    }
    let rows = app.audit_rows_once(8).await;
    let denied: Vec<_> = rows.iter().filter(|row| row.kind == "denied").collect();
    assert_eq!((rows.len(), denied.len()), (8, 2), "four calls of two rows each");
    assert!(denied.iter().all(|row| row.outcome.as_deref() == Some("rate_limited")));
    assert_eq!(app.upstream.requests().len(), 2);
    app.shutdown().await;
}

#[tokio::test]
async fn a_refusal_of_the_upstream_says_how_the_requests_stand_too() {
    let app = TestApp::start().await;
    app.upstream.enqueue(openai::rate_limited(7));
    let response = post(&app.caller("bob", "tight", ALL), false).await;
    assert_eq!(response.status, 429);
    assert_eq!(ratelimit(&response)[..2], [Some("2"), Some("1")], "ours, not the provider's");
    assert_eq!(response.header("retry-after"), Some("7"));
    app.shutdown().await;
}

#[tokio::test]
async fn no_more_calls_run_at_once_than_may() {
    let app = TestApp::start().await;
    let bob = app.caller("bob", "one", ALL);
    app.upstream.enqueue(fault::stall_mid_stream());
    let held = post(&bob, true).await;
    assert_eq!(held.status, 200);
    assert_eq!(ratelimit(&held), [None; 3], "this tier limits no requests");

    for path in ["/v1/chat/completions", "/v1/streams"] {
        let refused = bob.post(path).json(&chat(true)).send().await;
        assert_eq!(refused.status, 429);
        assert_eq!(refused.header("retry-after"), Some("1"));
        assert_eq!(code(refused).await, "concurrency_limited");
    }
    // The bucket is the tier's: another of its callers shares it, another tier's does not.
    assert_eq!(post(&app.caller("carol", "one", ALL), false).await.status, 429);
    assert_eq!(post(&app.alice(), false).await.status, 200);

    drop(held);
    app.upstream.until(|counts| counts.aborted == 1).await;
    app.until_idle().await;
    assert_eq!(post(&bob, false).await.status, 200, "hanging up frees the slot");
    app.shutdown().await;
}

/// Nothing is waited for between two calls: whoever has seen an answer's end has to find the slot
/// free. (On several threads, or the client could never be faster than the gateway.)
async fn call_in_a_row(app: &TestApp, count: usize, script: Option<fn() -> Script>, stream: bool) {
    let bob = app.caller("bob", "one", ALL);
    for i in 0..count {
        if let Some(script) = script {
            app.upstream.enqueue(script());
        }
        let response = post(&bob, stream).await;
        assert_ne!(response.status, 429, "call {i}");
        response.bytes().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_slot_is_free_once_the_end_of_an_answer_was_seen() {
    let app = TestApp::start().await;
    call_in_a_row(&app, 200, None, true).await;
    call_in_a_row(&app, 200, None, false).await;
    call_in_a_row(&app, 25, Some(fault::cut_between_events), true).await;
    call_in_a_row(&app, 25, Some(openai::server_error), true).await;
    call_in_a_row(&app, 25, Some(openai::bad_request), false).await;
    call_in_a_row(&app, 25, Some(fault::error_event), true).await;
    app.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_slot_is_free_once_a_native_streams_last_frame_was_seen() {
    let app = TestApp::start().await;
    let bob = app.caller("bob", "one", ALL);
    for _ in 0..100 {
        let mut native = Native::open(&bob, &chat(true)).await;
        while !native.frame().await.is_terminal() {}
    }
    for _ in 0..20 {
        app.upstream.enqueue(fault::stall_mid_stream());
        let mut native = Native::open(&bob, &chat(true)).await;
        assert_eq!(bob.delete(&format!("/v1/streams/{}", native.id)).send().await.status, 202);
        while !native.frame().await.is_terminal() {}
    }
    app.shutdown().await;
}

#[tokio::test]
async fn the_entry_that_names_the_model_wins_over_the_one_for_all() {
    let app = TestApp::with(|config| {
        let limit = |model: &str, requests| LimitConfig {
            model: model.to_owned(),
            requests_per_minute: Some(requests),
            ..config.tiers[1].limits[0].clone()
        };
        config.tiers[1].limits = vec![limit("*", 2), limit("m", 7)];
    })
    .await;
    let bob = app.caller("bob", "tight", ALL);
    assert_eq!(ratelimit(&post(&bob, false).await)[..2], [Some("7"), Some("6")]);
    let mut body = chat(false);
    body["model"] = json!("other");
    let other = bob.post("/v1/chat/completions").json(&body).send().await;
    assert_eq!(ratelimit(&other)[..2], [Some("2"), Some("1")]);
    app.shutdown().await;
}

#[tokio::test]
async fn a_tier_that_is_not_known_is_let_in_nowhere() {
    let app = TestApp::start().await;
    for tier in ["platinum", "PRO", "*"] {
        let response = post(&app.caller("bob", tier, ALL), false).await;
        assert_eq!(response.status, 403);
        assert_eq!(code(response).await, "unknown_tier");
    }
    let rows = app.audit_rows_once(3).await;
    assert!(rows.iter().all(|row| row.kind == "denied" && row.status == Some(403)), "{rows:?}");
    assert_eq!(rows.len(), 3, "once each");
    assert_eq!(app.upstream.requests().len(), 0);
    app.shutdown().await;
}
