//! The end of a gateway: what it lets finish, what it cuts, what it leaves.

use std::{sync::Arc, time::Duration};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::support::{
    app::{TestApp, chat},
    client::{Client, Response, eventually},
    event_stream::ServerSentEvent,
    native::{Native, assert_whole},
    process::Process,
    upstream::{Step, fault, openai},
};

const CHAT: &str = "/v1/chat/completions";
const PATIENCE: Duration = Duration::from_secs(5);

async fn post(client: &Client, stream: bool) -> Response {
    client.post(CHAT).json(&chat(stream)).send().await
}

#[tokio::test]
async fn what_ends_in_time_ends_as_if_nothing_were() {
    let mut app = TestApp::start().await;
    let gate = Arc::new(Notify::new());
    let held = openai::text_stream(["One", " two"]).insert(2, Step::WaitFor(Arc::clone(&gate)));
    app.upstream.enqueue(held);
    let (alice, admin) = (app.alice(), Client::new(app.admin_address()));
    let mut native = Native::open(&alice, &chat(true)).await;
    let first = native.frame().await;
    assert_eq!(admin.get("/readyz").send().await.status, 200);

    let meanwhile = async {
        eventually(PATIENCE, async || admin.get("/readyz").send().await.status == 503).await;
        let reasons = admin.get("/readyz").send().await.json().await["reasons"].clone();
        assert_eq!(reasons, json!(["starting or shutting down"]));
        assert_eq!(admin.get("/livez").send().await.status, 200);
        let refused = async || alice.get("/v1/models").try_send().await.is_err();
        eventually(PATIENCE, refused).await;
        gate.notify_one();
        let mut frames = vec![first];
        frames.extend(native.rest().await);
        assert_eq!(assert_whole(0, &frames).event, "done");
    };
    tokio::join!(app.drain(), meanwhile);

    let (_, terminal) = app.the_call().await;
    assert_eq!((&*terminal.kind, terminal.outcome.as_deref()), ("settle", Some("ok")));
    assert!(admin.get("/livez").try_send().await.is_err(), "the admin port is closed at last");
}

#[tokio::test]
async fn what_does_not_end_in_time_is_told_so_once() {
    let mut app = TestApp::with(|config| config.server.drain_s = 1).await;
    let alice = app.alice();
    for script in [fault::stall_mid_stream(), fault::stall_mid_stream(), fault::stall_before_head()]
    {
        app.upstream.enqueue(script);
    }
    let mut native = Native::open(&alice, &chat(true)).await;
    let mut late = Native::resume(&alice, &native.id, 0).await;
    let streamed = post(&alice, true).await;
    let whole = tokio::spawn(async move { post(&alice, false).await });
    app.upstream.until(|counts| counts.open == 3).await;

    app.drain().await;

    let frames = native.rest().await;
    let last = assert_whole(0, &frames);
    assert_eq!(
        (&last.data["code"], &last.data["retryable"]),
        (&json!("shutting_down"), &json!(true))
    );
    assert_eq!(late.rest().await, frames);
    let mut events = streamed.events();
    let events: Vec<Value> = events.rest().await.iter().map(ServerSentEvent::json).collect();
    let errors: Vec<_> = events.iter().filter(|event| !event["error"].is_null()).collect();
    assert_eq!(
        (errors.len(), &events.last().expect("events")["error"]["code"]),
        (1, &json!("shutting_down"))
    );
    let whole = whole.await.expect("an answer");
    assert_eq!(whole.status, 503);
    assert!(whole.header("retry-after").is_some());
    assert_eq!(whole.json().await["error"]["code"], "shutting_down");

    app.upstream.until(|counts| counts.aborted == 3).await;
    let rows = app.audit_rows().await;
    let ends: Vec<_> = rows.iter().filter(|row| row.kind != "intent").collect();
    assert_eq!((rows.len(), ends.len()), (6, 3));
    assert!(ends.iter().all(|row| row.outcome.as_deref() == Some("shutting_down")), "{ends:?}");
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_nothing_up_for_ever() {
    let mut app = TestApp::with(|config| config.server.drain_s = 0).await;
    // More than the sockets between here and there will hold.
    let piece = "x".repeat(256 << 10);
    let more = || openai::text_stream(std::iter::repeat_n(&*piece, 100)).then(Step::Stall);
    app.upstream.enqueue(more());
    app.upstream.enqueue(more());
    let streamed = post(&app.alice(), true).await;
    let native = Native::open(&app.alice(), &chat(true)).await;

    app.drain().await;

    drop((streamed, native));
    let rows = app.audit_rows().await;
    let ends = rows.iter().filter(|row| row.kind != "intent");
    assert!(ends.count() == 2 && rows.len() == 4, "{rows:?}");
}

/// Twenty words, which dev mode's provider says at the pace of somebody who types.
fn slow_prompt() -> Value {
    let words: Vec<String> = (0..20).map(|i| i.to_string()).collect();
    json!({ "model": "demo", "messages": [{ "role": "user", "content": words.join(" ") }] })
}

#[tokio::test]
async fn sigterm_lets_the_process_finish_its_calls_and_its_books() {
    let (mut process, token) = Process::dev().await;
    let client = Client::new(process.address()).with_token(token);
    let mut native = Native::open(&client, &slow_prompt()).await;
    let mut frames = vec![native.frame().await];
    process.signal(Signal::SIGTERM);
    process.until_logged("draining").await;
    frames.extend(native.rest().await);

    assert_eq!(assert_whole(0, &frames).event, "done");
    let said: String = frames.iter().filter_map(|frame| frame.data["delta"].as_str()).collect();
    assert!(said.ends_with(" 19"), "{said}");
    assert_eq!(process.ended().await.code(), Some(0), "{}", process.log());
    let rows = process.audit_rows("data/tollgate.db").await;
    let kinds: Vec<_> = rows.iter().map(|row| &*row.kind).collect();
    assert_eq!(kinds, ["intent", "settle"]);
}

#[tokio::test]
async fn a_second_signal_does_not_wait() {
    let (mut process, token) = Process::dev().await;
    let client = Client::new(process.address()).with_token(token);
    let mut native = Native::open(&client, &slow_prompt()).await;
    native.frame().await;
    process.signal(Signal::SIGTERM);
    process.until_logged("draining").await;
    process.signal(Signal::SIGINT);

    assert_eq!(process.ended().await.code(), Some(1));
    assert!(process.log().contains("told to stop twice"), "{}", process.log());
}

#[tokio::test]
async fn an_intent_survives_a_kill() {
    let (mut process, token) = Process::dev().await;
    let client = Client::new(process.address()).with_token(token);
    let mut native = Native::open(&client, &slow_prompt()).await;
    native.frame().await;
    process.signal(Signal::SIGKILL);
    process.ended().await;
    process.ship_spool("data/tollgate.db").await;

    let rows = process.audit_rows("data/tollgate.db").await;
    let [intent] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((&*intent.kind, intent.subject.as_deref()), ("intent", Some("dev")));
    assert_eq!(intent.stream_id.as_deref(), Some(&*native.id));
    assert_eq!(intent.model.as_deref(), Some("demo"));
}
