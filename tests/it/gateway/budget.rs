//! Budgets of tokens and money as a client meets them.

use std::time::Duration;

use serde_json::{Value, json};
use tollgate::{
    budget::verify,
    config::{ClaimBudgetConfig, Config, LimitConfig},
};

use crate::notify::{self, Receiver};
use crate::support::{
    app::{TestApp, chat},
    client::{Client, Response},
    upstream::openai::{INPUT_TOKENS, OUTPUT_TOKENS},
    upstream::{fault, openai},
};

const USE: &str = "model:reasoning";
/// What the mock's answer costs: `m` is $1 a million tokens of input, cached or not, $2 of output.
const COST: u64 = INPUT_TOKENS + 2 * OUTPUT_TOKENS;

fn bounded(stream: bool, max_tokens: u64) -> Value {
    let mut body = chat(stream);
    body["max_tokens"] = json!(max_tokens);
    body
}

async fn post(client: &Client, body: &Value) -> Response {
    client.post("/v1/chat/completions").json(body).send().await
}

async fn error(response: Response) -> (u16, String, Value) {
    let status = response.status;
    let error = response.json().await["error"].clone();
    (status.as_u16(), error["code"].as_str().unwrap_or_default().to_owned(), error)
}

async fn budgets(client: &Client) -> Vec<Value> {
    let list = client.get("/v1/budgets/me").send().await.json().await;
    list["data"].as_array().expect("a list").clone()
}

async fn budget(client: &Client, name: &str) -> Value {
    let all = budgets(client).await;
    all.iter().find(|one| one["budget"] == name).unwrap_or_else(|| panic!("{all:?}")).clone()
}

/// Tier `pro` with so many tokens a minute for each model.
fn tokens_per_minute(config: &mut Config, tokens: u64) {
    config.tiers[0].limits = vec![LimitConfig {
        tokens_per_minute: Some(tokens),
        requests_per_minute: Some(100),
        ..config.tiers[0].limits[0].clone()
    }];
}

#[tokio::test]
async fn tokens_are_reserved_settled_and_shown_in_headers() {
    let app = TestApp::with(|config| tokens_per_minute(config, 1_000)).await;
    let alice = app.alice();
    let answer = post(&alice, &bounded(false, 500)).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("x-ratelimit-limit-tokens"), Some("1000"));
    let remaining: u64 = answer.header("x-ratelimit-remaining-tokens").unwrap().parse().unwrap();
    assert!((400..500).contains(&remaining), "the estimate is held: {remaining}");
    assert_eq!(
        answer.header("ratelimit-policy"),
        Some("\"requests-per-minute\";q=100;w=60, \"tokens-per-minute\";q=1000;w=60")
    );
    let standing = answer.header("ratelimit").unwrap().to_owned();
    assert!(standing.starts_with("\"requests-per-minute\";r=99;t="), "{standing}");
    answer.bytes().await;

    let settled = budget(&alice, "tokens-per-minute").await;
    let used = settled["used"].as_u64().unwrap();
    assert!(used <= INPUT_TOKENS + OUTPUT_TOKENS, "what was not spent is back: {settled}");
    app.shutdown().await;
}

#[tokio::test]
async fn a_client_that_waits_just_as_long_as_it_is_told_gets_in() {
    let app = TestApp::with(|config| tokens_per_minute(config, 60_000)).await;
    let alice = app.alice();
    app.upstream.enqueue(fault::stall_mid_stream());
    let held = post(&alice, &bounded(true, 59_000)).await;
    assert_eq!(held.status, 200);

    let refused = post(&alice, &bounded(false, 1_500)).await;
    let wait: u64 = refused.header("retry-after-ms").expect("a time").parse().unwrap();
    let (status, code, _) = error(refused).await;
    assert_eq!((status, &*code), (429, "rate_limited"));
    // 60 tokens leak in a millisecond, so this is no more than half a second.
    assert!((1..1_000).contains(&wait), "{wait}");
    let due = tokio::time::Instant::now() + Duration::from_millis(wait);
    tokio::time::sleep_until(due).await;
    assert_eq!(post(&alice, &bounded(false, 1_500)).await.status, 200);
    drop(held);
    app.until_idle().await;
    app.shutdown().await;
}

#[tokio::test]
async fn a_call_that_never_fits_is_told_so_and_not_to_come_back() {
    let app = TestApp::with(|config| tokens_per_minute(config, 1_000)).await;
    let refused = post(&app.alice(), &bounded(false, 2_000)).await;
    assert_eq!(refused.header("retry-after"), None);
    assert_eq!(refused.header("x-should-retry"), Some("false"));
    let (status, code, error) = error(refused).await;
    assert_eq!((status, &*code, &error["param"]), (429, "rate_limited", &json!("max_tokens")));
    // One that does not say how much it wants may have the whole bucket.
    assert_eq!(post(&app.alice(), &chat(false)).await.status, 200);
    assert_eq!(app.upstream.requests().len(), 1);
    app.shutdown().await;
}

#[tokio::test]
async fn an_agents_budget_in_dollars_is_spent_to_the_last_and_not_beyond() {
    let app = TestApp::start().await;
    let body = bounded(false, OUTPUT_TOKENS);
    let worst = u64::try_from(body.to_string().len()).unwrap() + 2 * OUTPUT_TOKENS;
    // Enough for one worst case, and for three of what they really cost.
    let limit = worst + 2 * COST;
    let usd = format!("budget:usd-per-day:0.{limit:06}");
    let bob = app.caller("bob", "pro", &[USE, &usd]);
    let mut spent = 0;
    while spent + worst <= limit {
        assert_eq!(post(&bob, &body).await.status, 200, "{spent} of {limit}");
        spent += COST;
        let standing = budget(&bob, "usd-per-day").await;
        assert_eq!((&standing["used"], &standing["reserved"]), (&json!(spent), &json!(0)));
        assert_eq!((&standing["unit"], &standing["limit"]), (&json!("micro_usd"), &json!(limit)));
    }
    let refused = post(&bob, &body).await;
    assert_eq!(refused.header("x-should-retry"), Some("false"), "it ends with the day");
    let (status, code, error) = error(refused).await;
    assert_eq!((status, &*code), (429, "budget_exhausted"));
    assert!(error["message"].as_str().unwrap().contains("usd-per-day of agent tester"), "{error}");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("try again in ") && !message.contains("ms"), "{message}");
    let rows = app.audit_rows().await;
    let denied = rows.iter().find(|row| row.kind == "denied").expect("a denial is audited");
    assert_eq!(denied.outcome.as_deref(), Some("budget_exhausted"));
    let cost: i64 = rows.iter().filter_map(|row| row.cost_micro_usd).sum();
    assert_eq!(u64::try_from(cost).unwrap(), spent, "the trail and the ledger agree");
    // Nobody else pays for it.
    assert_eq!(post(&app.alice(), &body).await.status, 200);
    app.shutdown().await;
}

#[tokio::test]
async fn money_buys_nothing_without_a_price_or_an_end() {
    let app = TestApp::start().await;
    let bob = app.caller("bob", "pro", &[USE, "model:embedding", "budget:usd-per-month:5"]);
    let (status, code, error_) = error(post(&bob, &chat(false)).await).await;
    assert_eq!((status, &*code, &error_["param"]), (400, "invalid_request", &json!("max_tokens")));
    let mut other = bounded(false, 10);
    other["model"] = json!("other");
    let (status, code, _) = error(post(&bob, &other).await).await;
    assert_eq!((status, &*code), (403, "unpriced_model"));
    assert_eq!(app.upstream.requests().len(), 0);
    app.shutdown().await;

    let app = TestApp::with(|config| config.models[0].max_output_tokens = Some(1_000)).await;
    let bob = app.caller("bob", "pro", &[USE, "budget:usd-per-month:5"]);
    assert_eq!(post(&bob, &chat(false)).await.status, 200, "the model's own bound will do");
    app.shutdown().await;
}

#[tokio::test]
async fn a_tiers_and_a_claims_money_are_shared_by_its_callers() {
    let body = bounded(false, 5);
    let worst = u32::try_from(body.to_string().len()).unwrap() + 10;
    let enough_for_one = f64::from(worst + u32::try_from(COST).unwrap() - 1) / 1e6;
    let app = TestApp::with(|config| {
        config.tiers[0].usd_per_day = Some(enough_for_one);
        config.budget.claims = vec![ClaimBudgetConfig {
            claim: "cost_center".to_owned(),
            value: "*".to_owned(),
            usd_per_day: None,
            usd_per_month: Some(1.0),
        }];
    })
    .await;
    assert_eq!(post(&app.alice(), &body).await.status, 200);
    let (status, code, error) = error(post(&app.caller("bob", "pro", &[USE]), &body).await).await;
    assert_eq!((status, &*code), (429, "budget_exhausted"));
    assert!(error["message"].as_str().unwrap().contains("of tier pro"), "{error}");
    app.shutdown().await;
}

#[tokio::test]
async fn what_a_client_that_hangs_up_has_had_is_charged() {
    let app = TestApp::start().await;
    app.count_once().await;
    let bob = app.caller("bob", "pro", &[USE, "budget:usd-per-day:5"]);
    app.upstream.enqueue(fault::stall_mid_stream());
    let held = post(&bob, &bounded(true, 100)).await;
    assert_eq!(held.status, 200);
    let reserved = budget(&bob, "usd-per-day").await;
    assert!(reserved["reserved"].as_u64().unwrap() > 200, "{reserved}");
    drop(held);
    app.until_idle().await;
    let settled = budget(&bob, "usd-per-day").await;
    let (_, terminal) = app.the_call().await;
    assert_eq!(settled["reserved"], 0);
    assert_eq!(settled["used"].as_i64(), terminal.cost_micro_usd);
    assert!(terminal.cost_micro_usd.unwrap() > 0, "{terminal:?}");
    app.shutdown().await;
}

#[tokio::test]
async fn what_was_refused_upstream_costs_a_request_and_no_money() {
    let app = TestApp::start().await;
    let bob = app.caller("bob", "tight", &[USE, "budget:usd-per-day:5"]);
    app.upstream.enqueue(openai::bad_request());
    assert_eq!(post(&bob, &bounded(false, 5)).await.status, 400);
    assert_eq!(budget(&bob, "usd-per-day").await["used"], 0);
    assert_eq!(budget(&bob, "requests-per-minute").await["remaining"], 1);
    app.shutdown().await;
}

#[tokio::test]
async fn a_caller_sees_its_own_limits_of_the_models_that_it_may_use() {
    let app = TestApp::start().await;
    let seen = budgets(&app.caller("bob", "tight", &[USE])).await;
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_eq!((&seen[0]["model"], &seen[0]["owner"]), (&json!("m"), &json!("tier:tight")));
    assert!(seen[0]["resets_at"].is_string());
    assert_eq!(app.stranger().get("/v1/budgets/me").send().await.status, 401);
    let unknown = app.caller("bob", "nope", &[USE]).get("/v1/budgets/me").send().await;
    assert_eq!(unknown.status, 403);
    app.shutdown().await;
}

#[tokio::test]
async fn calls_wait_for_a_slot_and_one_caller_cannot_take_them_all() {
    let app = TestApp::with(|config| {
        config.models[0].concurrent = Some(2);
        config.budget.queue_wait_ms = 20_000;
    })
    .await;
    let crowd = || {
        let pieces: Vec<_> = (0..4).map(|_| openai::text("x")).collect();
        openai::stream(pieces).paced(Duration::from_millis(5))
    };
    for _ in 0..60 {
        app.upstream.enqueue(crowd());
    }
    let mut runaway = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let client = app.caller("runaway", "pro", &[USE]);
        runaway.spawn(async move { post(&client, &bounded(true, 5)).await.bytes().await.len() });
    }
    app.upstream.until(|counts| counts.open == 2).await;
    let mut others = tokio::task::JoinSet::new();
    for i in 0..5 {
        let client = app.caller(&format!("agent-{i}"), "pro", &[USE]);
        others.spawn(async move {
            let response = post(&client, &bounded(true, 5)).await;
            assert_eq!(response.status, 200);
            response.bytes().await;
        });
    }
    while others.join_next().await.transpose().unwrap().is_some() {}
    assert!(runaway.len() >= 20, "the five are through long before the forty: {}", runaway.len());
    runaway.abort_all();
    while runaway.join_next().await.is_some() {}
    app.until_idle().await;
    app.shutdown().await;
}

#[tokio::test]
async fn what_was_refused_is_counted_on_the_admin_port() {
    let app = TestApp::start().await;
    let bob = app.caller("bob", "tight", &[USE]);
    for _ in 0..3 {
        post(&bob, &chat(false)).await.bytes().await;
    }
    let admin = Client::new(app.admin_address());
    let metrics = admin.get("/metrics").send().await;
    assert_eq!(metrics.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let text = String::from_utf8(metrics.bytes().await.to_vec()).unwrap();
    for line in [
        "# TYPE tollgate_budget_refusals_total counter",
        "tollgate_budget_refusals_total{code=\"rate_limited\"} 1",
        "tollgate_budget_refusals_total{code=\"budget_exhausted\"} 0",
        "tollgate_budget_reservations 0",
        "tollgate_budget_reservations_leaked_total 0",
        "tollgate_audit_spool_up 1",
        "tollgate_audit_store_up 1",
        "tollgate_audit_spool_limit_bytes 1073741824",
    ] {
        assert!(text.lines().any(|one| one == line), "{line}\n{text}");
    }
    assert_eq!(app.stranger().get("/metrics").send().await.status, 404, "never in public");

    let of_bob = admin.get("/budgets?agent=tester").send().await.json().await;
    assert_eq!(of_bob["data"][0]["budget"], "requests-per-minute");
    assert_eq!(admin.get("/budgets?agent=nobody").send().await.status, 404);
    assert_eq!(app.stranger().get("/budgets?agent=tester").send().await.status, 404);
    app.shutdown().await;
}

#[tokio::test]
async fn a_spent_budget_is_told_of_once_and_signed() {
    let mut receiver = Receiver::start([]).await;
    let app = TestApp::with(|config| {
        config.budget.notify_url = Some(receiver.url());
        config.budget.notify_secret = Some(notify::secret());
    })
    .await;
    let bob = app.caller("bob", "pro", &[USE, "budget:usd-per-day:0.000300"]);
    // The first leaves less than a second one might cost.
    assert_eq!(post(&bob, &bounded(false, 50)).await.status, 200);
    for _ in 0..3 {
        assert_eq!(post(&bob, &bounded(false, 100)).await.status, 429);
    }
    let hit = receiver.hit().await;
    let now = jiff::Timestamp::now();
    verify(&notify::secret(), &hit.headers, &hit.body, now).expect("it is signed");
    let notice: Value = serde_json::from_slice(&hit.body).unwrap();
    assert_eq!(
        (&notice["type"], &notice["budget"], &notice["subject"], &notice["limit"]),
        (&json!("budget.exhausted"), &json!("usd-per-day"), &json!("bob"), &json!(300))
    );
    app.shutdown().await;
    assert!(receiver.rest().is_empty(), "once in its window");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_asks_for_an_agents_budgets_from_the_shell() {
    let app = TestApp::start().await;
    post(&app.caller("bob", "tight", &[USE]), &chat(false)).await.bytes().await;
    let admin = app.admin_address().to_string();
    let show = |agent: &'static str| {
        let admin = admin.clone();
        tokio::task::spawn_blocking(move || {
            std::process::Command::new(env!("CARGO_BIN_EXE_tollgate"))
                .args(["budget", "show", "--agent", agent, "--admin", &admin])
                .output()
                .unwrap()
        })
    };
    let shown = show("tester").await.unwrap();
    let text = String::from_utf8(shown.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("BUDGET  "), "{text}");
    assert!(lines[1].starts_with("requests-per-minute  tier:tight  "), "{text}");
    let unknown = show("nobody").await.unwrap();
    assert!(!unknown.status.success());
    assert!(String::from_utf8(unknown.stderr).unwrap().contains("No call of an agent"));
    app.shutdown().await;
}
