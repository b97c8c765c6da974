//! A new configuration under calls that are on their way.

use std::{path::Path, sync::Arc};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tollgate::auth::mint::{SigningKey, TokenSpec, mint};

use crate::support::{
    app::{TestApp, chat},
    client::Client,
    native::{Native, assert_whole},
    process::Process,
    upstream::{MockUpstream, Step, openai},
};

const CHAT: &str = "/v1/chat/completions";
const ALL: &[&str] = &["model:reasoning", "model:embedding"];

async fn models(client: &Client) -> Vec<String> {
    let list = client.get("/v1/models").send().await.json().await;
    let models = list["data"].as_array().expect("a list").iter();
    models.map(|model| model["id"].as_str().expect("an id").to_owned()).collect()
}

async fn status(client: &Client, body: &Value) -> u16 {
    client.post(CHAT).json(body).send().await.status.as_u16()
}

#[tokio::test]
async fn models_tiers_tools_and_the_deny_list_are_live() {
    let app = TestApp::start().await;
    let bob = app.caller("bob", "tight", ALL);
    assert_eq!(models(&bob).await, ["m", "other"]);
    let mut with_tool = chat(false);
    with_tool["tools"] = json!([{ "type": "function", "function": { "name": "fleet_up" } }]);
    assert_eq!(status(&bob, &with_tool).await, 200, "a tool of the caller's own");

    let mut config = app.config.clone();
    config.models[1].name = "renamed".to_owned();
    config.models[0].routes[0].model = "upstream-2".to_owned();
    config.tools[0].name = "fleet_up".to_owned();
    config.tiers[1].limits[0].requests_per_minute = Some(50);
    config.auth.deny.sub = vec!["mallory".to_owned()];
    let mallory = app.caller("mallory", "pro", ALL);
    assert_eq!(status(&mallory, &chat(false)).await, 200);
    app.reload(&config);

    assert_eq!(models(&bob).await, ["m", "renamed"]);
    assert_eq!(status(&bob, &with_tool).await, 403);
    let answer = bob.post(CHAT).json(&chat(false)).send().await;
    assert_eq!(answer.header("x-ratelimit-limit-requests"), Some("50"));
    assert_eq!(app.upstream.requests().last().expect("a request").json()["model"], "upstream-2");
    let mut gone = chat(false);
    gone["model"] = json!("other");
    assert_eq!(status(&bob, &gone).await, 404);
    assert_eq!(status(&mallory, &chat(false)).await, 401, "also with a token that was seen before");

    app.until_idle().await;
    let rows = app.audit_rows_once(9).await;
    assert_eq!(rows.iter().filter(|row| row.kind == "reload").count(), 1, "{rows:?}");
    app.shutdown().await;
}

#[tokio::test]
async fn a_call_on_its_way_keeps_what_it_began_with() {
    let app = TestApp::start().await;
    let elsewhere = MockUpstream::start().await;
    let (before_head, mid_stream) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let held = Step::WaitFor(Arc::clone(&before_head));
    app.upstream.enqueue(openai::text_stream(["One"]).before_head(held));
    let held = Step::WaitFor(Arc::clone(&mid_stream));
    app.upstream.enqueue(openai::text_stream(["One", " two"]).insert(2, held));
    let alice = app.alice();
    let early = tokio::spawn(async move { Native::open(&alice, &chat(true)).await.rest().await });
    app.upstream.until(|counts| counts.open == 1).await;
    let mut native = Native::open(&app.alice(), &chat(true)).await;
    let mut frames = vec![native.frame().await];

    let mut config = app.config.clone();
    config.models.truncate(1);
    config.models[0].name = "only".to_owned();
    config.models[0].price = None;
    config.providers[0].base_url = Some(elsewhere.base_url());
    config.tiers.truncate(1);
    config.tiers[0].name = "another".to_owned();
    app.reload(&config);
    assert_eq!(status(&app.alice(), &chat(false)).await, 404, "the model is gone for new calls");

    before_head.notify_one();
    mid_stream.notify_one();
    frames.extend(native.rest().await);
    for frames in [frames, early.await.expect("the frames")] {
        assert_eq!(assert_whole(0, &frames).event, "done");
        let usage = frames.iter().find(|frame| frame.event == "usage").expect("usage");
        assert_eq!(usage.data["cost_usd"], "0.000013", "at the price that it began with");
    }
    assert_eq!(elsewhere.requests().len(), 0);
    app.shutdown().await;
}

#[tokio::test]
async fn a_configuration_that_cannot_run_changes_nothing() {
    let app = TestApp::start().await;
    let mut config = app.config.clone();
    config.models[0].name = "renamed".to_owned();
    config.auth.deny.sub = vec!["alice".to_owned()];
    config.providers[0].base_url = Some("not a url".to_owned());
    assert!(app.try_reload(&config).is_err());

    assert_eq!(models(&app.alice()).await, ["m"]);
    assert_eq!(status(&app.alice(), &chat(false)).await, 200);
    app.shutdown().await;
}

/// A whole configuration with one model of this name.
fn file(dir: &Path, model: &str) -> String {
    format!(
        r#"
[server]
listen = "127.0.0.1:0"
admin_listen = "127.0.0.1:0"
[audit]
path = "{dir}/audit.db"
[telemetry]
log_format = "text"
[[auth.issuers]]
issuer = "https://issuer.test"
audience = ["tollgate"]
algorithms = ["EdDSA"]
jwks_file = "{dir}/jwks.json"
[[providers]]
name = "scripted"
kind = "scripted"
[[models]]
name = "{model}"
requires = ["model:reasoning"]
routes = [{{ provider = "scripted", model = "echo" }}]
[[tiers]]
name = "pro"
"#,
        dir = dir.display()
    )
}

/// `tollgate serve` with a file that the test changes, and a client that it lets in.
async fn serve() -> (Process, Client) {
    let mut token = String::new();
    let process = Process::start(|dir| {
        let key = SigningKey::generate_file(&dir.join("key.pem")).expect("a key");
        std::fs::write(dir.join("jwks.json"), key.public_jwks().to_string()).expect("written");
        std::fs::write(dir.join("tollgate.toml"), file(dir, "first")).expect("written");
        let spec = TokenSpec {
            issuer: "https://issuer.test".to_owned(),
            audience: vec!["tollgate".to_owned()],
            subject: "alice".to_owned(),
            tier: Some("pro".to_owned()),
            capabilities: vec!["model:reasoning".to_owned()],
            ttl: std::time::Duration::from_mins(10),
            ..TokenSpec::default()
        };
        token = mint(&key, &spec).expect("a token");
        let path = dir.join("tollgate.toml").display().to_string();
        vec!["serve".to_owned(), "--config".to_owned(), path]
    })
    .await;
    let client = Client::new(process.address()).with_token(token);
    (process, client)
}

#[tokio::test]
async fn sighup_reloads_the_file_and_a_bad_one_changes_nothing_and_names_each_error() {
    let (mut process, client) = serve().await;
    assert_eq!(models(&client).await, ["first"]);
    let path = process.dir().join("tollgate.toml");

    std::fs::write(&path, file(process.dir(), "second")).expect("written");
    process.signal(Signal::SIGHUP);
    process.until_logged("configuration reloaded").await;
    assert_eq!(models(&client).await, ["second"]);

    let bad = file(process.dir(), "third").replace("requires", "require");
    std::fs::write(&path, bad.replace("kind = \"scripted\"", "kind = \"scripte\""))
        .expect("written");
    process.signal(Signal::SIGHUP);
    process.until_logged("configuration not reloaded").await;
    process.until_logged("models[0].require").await;
    process.until_logged("providers[0].kind").await;
    assert_eq!(models(&client).await, ["second"]);

    // A file that is changed is seen without a signal too.
    std::fs::write(&path, file(process.dir(), "fourth")).expect("written");
    crate::support::client::eventually(std::time::Duration::from_secs(10), async || {
        models(&client).await == ["fourth"]
    })
    .await;
    process.signal(Signal::SIGTERM);
    assert_eq!(process.ended().await.code(), Some(0), "{}", process.log());
    let rows = process.audit_rows("audit.db").await;
    assert_eq!(rows.iter().filter(|row| row.kind == "reload").count(), 2, "{rows:?}");
}

#[tokio::test]
async fn a_sighup_right_after_the_start_does_not_kill() {
    let (mut process, client) = serve().await;
    for _ in 0..5 {
        process.signal(Signal::SIGHUP);
    }
    assert_eq!(models(&client).await, ["first"]);
    process.signal(Signal::SIGTERM);
    assert_eq!(process.ended().await.code(), Some(0), "{}", process.log());
}
