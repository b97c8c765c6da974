//! A client that hangs up, at any moment: the upstream stops at once, and the call ends once.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::timeout;

use crate::support::{
    app::{TestApp, chat},
    client::RawConnection,
    upstream::{Framing, Script, Step, fault, openai},
};

use super::seen::{End, PATH, Stream, impatient_in_the_middle, read, read_rest};

const AT_ONCE: Duration = Duration::from_millis(100);

/// A raw connection on which this request was sent.
async fn call(app: &TestApp, stream: bool) -> RawConnection {
    let token = app.token("bob", "one", &["model:reasoning"]);
    let body = chat(stream).to_string();
    let mut connection = RawConnection::open(app.address()).await;
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    connection.send(&[head.as_bytes(), body.as_bytes()].concat()).await.unwrap();
    connection
}

/// Hangs up once `seen` has come (and the provider was asked), and looks at what follows.
async fn hang_up(script: Script, stream: bool, seen: &[u8]) -> tollgate::audit::StoredEntry {
    let app = TestApp::start().await;
    app.count_once().await;
    app.upstream.enqueue(script);
    let mut connection = call(&app, stream).await;
    app.upstream.until(|counts| counts.requests == 1).await;
    if !seen.is_empty() {
        connection.read_until(seen).await;
    }
    let hung_up = Instant::now();
    drop(connection);
    let counts = app.upstream.until(|counts| counts.aborted == 1).await;
    let after = counts.last_aborted_at.unwrap().saturating_duration_since(hung_up);
    assert!(after < AT_ONCE, "the upstream was stopped after {after:?}");

    app.until_idle().await;
    let (_, terminal) = app.the_call().await;
    assert_eq!(terminal.kind, "canceled");
    assert_eq!((terminal.outcome.as_deref(), terminal.status), (Some("canceled"), Some(499)));
    assert_eq!(terminal.detail.as_deref(), Some("hung_up"));
    assert_eq!(terminal.provider.as_deref(), Some("mock"));
    // The caller's one slot is free again.
    let bob = app.caller("bob", "one", &["model:reasoning"]);
    assert_eq!(read(bob.post(PATH).json(&chat(false))).await.status, 200);
    assert_eq!(app.audit_rows_once(4).await.len(), 4);
    app.shutdown().await;
    terminal
}

#[tokio::test]
async fn before_the_providers_head() {
    for stream in [true, false] {
        let row = hang_up(fault::stall_before_head(), stream, b"").await;
        assert_eq!((row.usage_source.as_deref(), row.output_tokens), (Some("estimate"), Some(0)));
        assert!(row.input_tokens > Some(10) && row.cost_micro_usd > Some(10));
    }
}

#[tokio::test]
async fn before_the_first_event() {
    let row = hang_up(fault::stall_after_head(), true, b"").await;
    assert_eq!((row.usage_source.as_deref(), row.output_tokens), (Some("estimate"), Some(0)));
}

#[tokio::test]
async fn in_a_stream_that_stands_still() {
    let row = hang_up(fault::stall_mid_stream(), true, "aus ".as_bytes()).await;
    assert_eq!(row.usage_source.as_deref(), Some("counted"));
    // "Grüße aus ", as the tokenizer has it.
    assert_eq!(row.output_tokens, Some(5));
}

#[tokio::test]
async fn in_a_stream_that_flows() {
    let pieces: Vec<_> = (0..10_000).map(|_| "word").collect();
    let script = openai::text_stream(pieces).paced(Duration::from_millis(1));
    let row = hang_up(script, true, b"word").await;
    assert_eq!(row.usage_source.as_deref(), Some("counted"));
    assert!(row.output_tokens >= Some(1) && row.output_tokens < Some(10_000), "{row:?}");
}

#[tokio::test]
async fn what_the_provider_has_counted_is_charged() {
    let counted = r#"{"id":"a","choices":[{"index":0,"delta":{"content":"counted"}}],"usage":{"prompt_tokens":50,"completion_tokens":70}}"#;
    let script = Script::events([openai::event(counted)]).then(Step::Stall);
    let row = hang_up(script, true, b"counted").await;
    assert_eq!(row.usage_source.as_deref(), Some("provider"));
    assert_eq!((row.input_tokens, row.output_tokens), (Some(50), Some(70)));
    assert_eq!(row.cost_micro_usd, Some(50 + 2 * 70));
}

#[tokio::test]
async fn in_the_middle_of_a_whole_answers_body() {
    let script = openai::completion("x").cut_at(50, Step::Stall).framing(Framing::Claimed(400));
    let row = hang_up(script, false, b"").await;
    assert_eq!(row.usage_source.as_deref(), Some("estimate"));
}

/// hyper's own client and server, over HTTP/2: the stream is reset, the connection stays.
#[tokio::test]
async fn over_http2() {
    let app = TestApp::start().await;
    app.upstream.enqueue(fault::stall_mid_stream());
    let response = app.alice().http2().post(PATH).json(&chat(true)).send().await;
    let mut events = response.events();
    events.expect_event().await;
    let hung_up = Instant::now();
    drop(events);
    let counts = app.upstream.until(|counts| counts.aborted == 1).await;
    let after = counts.last_aborted_at.unwrap().saturating_duration_since(hung_up);
    assert!(after < AT_ONCE, "the upstream was stopped after {after:?}");
    assert_eq!(app.the_call().await.1.kind, "canceled");
    app.shutdown().await;
}

#[tokio::test]
async fn a_client_that_has_read_to_the_end_has_not_hung_up() {
    let app = TestApp::start().await;
    let mut connection = call(&app, true).await;
    connection.read_until(b"data: [DONE]\n\n").await;
    drop(connection);
    app.until_idle().await;
    assert_eq!(app.the_call().await.1.outcome.as_deref(), Some("ok"));
    app.shutdown().await;
}

/// More than all buffers between the provider and a client hold.
fn flood() -> Script {
    let piece = openai::text(&"x".repeat(100_000));
    let events = (0..400).map(|_| piece.clone());
    Script::events(events.chain([openai::finish("stop"), openai::done()]))
}

/// While the client does not read, it is not the provider that is late.
#[tokio::test]
async fn a_client_that_reads_slowly_is_no_idle_provider() {
    let app = TestApp::with(impatient_in_the_middle).await;
    app.upstream.enqueue(flood());
    let slow = app.alice().post(PATH).json(&chat(true)).send().await;
    for _ in 0..2 {
        // As long as the provider's idle timeout, and measured by it.
        app.upstream.enqueue(fault::stall_mid_stream());
        let other = read(app.alice().post(PATH).json(&chat(true))).await;
        assert_eq!(other.status, 200, "{other:?}");
        assert_eq!(Stream::parse(&other.body).end, End::Error("upstream_timeout".to_owned()));
    }
    let answer = read_rest(slow).await;
    let stream = Stream::parse(&answer.body);
    assert_eq!((stream.text().len(), stream.end), (40_000_000, End::Done));
    app.shutdown().await;
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_nothing_up_when_the_gateway_stops() {
    let app = TestApp::with(|config| config.server.drain_s = 1).await;
    app.upstream.enqueue(flood());
    let deaf = app.alice().post(PATH).json(&chat(true)).send().await;
    timeout(Duration::from_secs(15), app.shutdown()).await.expect("it stops");
    drop(deaf);
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut_off_with_its_time() {
    let app = TestApp::with(|config| config.server.request_timeout_s = 1).await;
    app.upstream.enqueue(flood());
    let deaf = app.alice().post(PATH).json(&chat(true)).send().await;
    app.until_idle().await;
    let (_, terminal) = app.the_call().await;
    assert_eq!((&*terminal.kind, terminal.outcome.as_deref()), ("settle", Some("call_timeout")));
    drop(deaf);
    app.shutdown().await;
}

#[tokio::test]
async fn a_call_that_takes_too_long_ends_in_an_error_event() {
    let app = TestApp::with(|config| config.server.request_timeout_s = 1).await;
    app.count_once().await;
    app.upstream.enqueue(fault::stall_mid_stream());
    let seen = read(app.alice().post(PATH).json(&chat(true))).await.recorded(&app).await;
    assert_eq!(seen.stream().end, End::Error("call_timeout".to_owned()));
    assert_eq!(seen.row(), ("settle", "call_timeout", 504, Some("counted")));
    app.shutdown().await;
}

#[tokio::test]
async fn a_refused_body_is_no_call() {
    let app = TestApp::start().await;
    let twice = r#"{"model":"m","messages":[],"model":"other"}"#;
    let call = app.alice().post(PATH).header("content-type", "application/json").body(twice);
    let answer = read(call).await;
    assert_eq!(answer.status, 400);
    assert_eq!(answer.headers["x-tollgate-source"], "gateway");
    let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(body["error"]["param"], json!("model"));
    assert_eq!(app.upstream.counts().connections, 0);
    app.shutdown().await;
}
