//! Two gateways on one Redis, and a gateway whose Redis goes away.

use std::time::Duration;

use serde_json::{Value, json};
use tollgate::config::{Config, LedgerKind, OnStoreFailure};

use crate::support::{
    app::{TestApp, chat},
    client::{Client, Response, eventually},
    redis::{PASSWORD, RedisServer},
};

const ALL: &[&str] = &["model:reasoning"];
const POOR: &[&str] = &["model:reasoning", "budget:usd-per-day:5"];
const PATIENCE: Duration = Duration::from_secs(15);

fn on(server: &RedisServer) -> impl Fn(&mut Config) {
    let url = server.url();
    move |config| {
        config.budget.store = LedgerKind::Redis;
        config.budget.redis_url = Some(url.clone());
    }
}

async fn post(client: &Client) -> Response {
    client.post("/v1/chat/completions").json(&chat(false)).send().await
}

async fn code(response: Response) -> Value {
    response.json().await["error"]["code"].clone()
}

#[tokio::test]
async fn two_gateways_share_a_limit() {
    let server = RedisServer::start().await;
    let (one, two) = (TestApp::with(on(&server)).await, TestApp::with(on(&server)).await);
    let answers = [
        post(&one.caller("bob", "tight", ALL)).await,
        post(&two.caller("bob", "tight", ALL)).await,
        post(&one.caller("bob", "tight", ALL)).await,
        post(&two.caller("bob", "tight", ALL)).await,
    ];
    assert_eq!(answers.map(|answer| answer.status.as_u16()), [200, 200, 429, 429]);
    one.until_idle().await;
    two.until_idle().await;
    one.shutdown().await;
    two.shutdown().await;
    let kept = server.keys().into_iter().filter(|key| key.ends_with("reservations")).count();
    assert_eq!(kept, 0, "all is settled");
}

#[tokio::test]
async fn a_redis_that_goes_away_refuses_calls_and_is_found_again() {
    let mut server = RedisServer::start().await;
    let app = TestApp::with(on(&server)).await;
    let alice = app.alice();
    assert_eq!(post(&alice).await.status, 200);
    server.stop();
    let refused = post(&alice).await;
    assert_eq!(refused.status, 503);
    assert!(refused.header("retry-after").is_some());
    let body = refused.json().await;
    assert_eq!(body["error"]["code"], json!("budget_unavailable"));
    assert!(!body.to_string().contains(PASSWORD) && !body.to_string().contains("127.0.0.1"));
    assert_eq!(app.upstream.requests().len(), 1, "nothing leaves without its budget");
    server.start_again().await;
    eventually(PATIENCE, async || post(&alice).await.status == 200).await;
    app.shutdown().await;
}

#[tokio::test]
async fn a_share_of_the_limits_lets_calls_in_that_cost_no_money() {
    let mut server = RedisServer::start().await;
    server.stop();
    let app = TestApp::with(|config| {
        on(&server)(config);
        config.budget.on_store_failure = OnStoreFailure::StaticShare;
        config.budget.replicas = 2;
        // What a call may cost is known then.
        config.models[0].max_output_tokens = Some(1_000);
    })
    .await;
    assert_eq!(post(&app.caller("bob", "tight", ALL)).await.status, 200);
    assert_eq!(code(post(&app.caller("bob", "tight", ALL)).await).await, json!("rate_limited"));
    let poor = app.caller("carol", "pro", POOR);
    assert_eq!(code(post(&poor).await).await, json!("budget_unavailable"));
    server.start_again().await;
    eventually(PATIENCE, async || post(&app.caller("bob", "tight", ALL)).await.status == 200).await;
    app.shutdown().await;
}
