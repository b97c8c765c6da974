//! Who counts what a call has spent, where its provider doesn't: the tokenizer, or its bytes.

use std::{future::poll_fn, task::Poll};

use serde_json::{Value, json};
use tollgate::budget::MAX_COUNTED_BYTES;

use crate::support::{
    app::{TestApp, chat},
    upstream::{Framing, Script, Step, openai},
};

use super::seen::{End, PATH, Seen, call_with, read, streamed, whole};

const SENTENCE: [&str; 4] = ["The capital", " of Fra", "nce is", " Paris."];
const SENTENCE_TOKENS: i64 = 7;

/// These events and no more, and the connection is closed.
fn cut(events: impl IntoIterator<Item = bytes::Bytes>) -> Script {
    Script::events(events).then(Step::Close)
}

fn sentence() -> impl Iterator<Item = bytes::Bytes> {
    [openai::role()].into_iter().chain(SENTENCE.map(openai::text))
}

#[tokio::test]
async fn a_cut_stream_is_counted() {
    let seen = streamed(cut(sentence())).await;
    assert_eq!(seen.stream().end, End::Error("upstream_lost".to_owned()));
    assert_eq!(seen.row(), ("settle", "upstream_lost", 502, Some("counted")));
    let row = &seen.terminal;
    assert_eq!(row.output_tokens, Some(SENTENCE_TOKENS));
    let input = row.input_tokens.expect("an estimate");
    assert_eq!(row.cost_micro_usd, Some(input + 2 * SENTENCE_TOKENS));
}

#[tokio::test]
async fn what_was_asked_is_estimated_by_its_bytes() {
    let app = TestApp::start().await;
    app.count_once().await;
    app.upstream.enqueue(cut(sentence()));
    let seen = read(app.alice().post(PATH).json(&chat(true))).await.recorded(&app).await;
    let sent = app.upstream.requests()[0].body.len();
    assert_eq!(seen.terminal.input_tokens, Some(i64::try_from(sent.div_ceil(4)).unwrap()));
    app.shutdown().await;
}

#[tokio::test]
async fn everything_that_the_model_writes_is_counted() {
    let pieces = ["Let me think.", "I cannot", " say that.", "fleet_ps", "{\"hours\":", "12}"];
    let events = [
        openai::role(),
        openai::reasoning(pieces[0]),
        openai::text(pieces[1]),
        openai::refusal(pieces[2]),
        openai::tool_call(0, "call_x", pieces[3]),
        openai::tool_arguments(0, pieces[4]),
        openai::tool_arguments(0, pieces[5]),
    ];
    let app = TestApp::start().await;
    let counter = &app.gateway().meter.counter;
    let wanted = counter.count(pieces.concat()).await.expect("a count");
    app.upstream.enqueue(cut(events));
    let seen = read(app.alice().post(PATH).json(&chat(true))).await.recorded(&app).await;
    assert_eq!(seen.row().3, Some("counted"));
    assert_eq!(seen.terminal.output_tokens, Some(i64::try_from(wanted).unwrap()));
    app.shutdown().await;
}

#[tokio::test]
async fn a_reasoning_that_is_told_twice_is_counted_once() {
    let delta = r#"{"choices":[{"index":0,"delta":{"reasoning":"Hello, world!","reasoning_content":"Hello, world!"}}]}"#;
    let seen = streamed(cut([openai::role(), openai::event(delta)])).await;
    assert_eq!((seen.row().3, seen.terminal.output_tokens), (Some("counted"), Some(4)));
}

#[tokio::test]
async fn a_long_text_is_counted_to_a_bound_and_scaled() {
    let pieces = (0..400).map(|_| openai::text(&" word".repeat(200)));
    let seen = streamed(cut([openai::role()].into_iter().chain(pieces))).await;
    assert_eq!(seen.row().3, Some("counted"));
    let tokens = seen.terminal.output_tokens.expect("a count");
    assert!((79_990..=80_010).contains(&tokens), "{tokens} of 80,000");
}

/// A whole answer, as from a server that tells no usage.
fn silent(message: &Value) -> Script {
    let choice = json!({ "index": 0, "message": message, "finish_reason": "stop" });
    let body = json!({ "id": "a", "object": "chat.completion", "choices": [choice] });
    Script::body(200, "application/json", body.to_string()).framing(Framing::ContentLength)
}

#[tokio::test]
async fn a_whole_answer_of_a_silent_provider_is_counted() {
    let seen = whole(silent(&json!({ "role": "assistant", "content": SENTENCE.concat() }))).await;
    assert_eq!(seen.row(), ("settle", "ok", 200, Some("counted")));
    assert_eq!(seen.terminal.output_tokens, Some(SENTENCE_TOKENS));

    let function = json!({ "name": "Hello, ", "arguments": "world!" });
    let calls = json!([{ "id": "x", "type": "function", "function": function }]);
    let seen = whole(silent(&json!({ "content": null, "tool_calls": calls }))).await;
    assert_eq!((seen.row().3, seen.terminal.output_tokens), (Some("counted"), Some(4)));

    // Of another shape than we know: by its bytes.
    let seen = whole(silent(&json!({ "content": [{ "type": "text", "text": "x" }] }))).await;
    assert_eq!(seen.row().3, Some("estimate"));
    assert!(seen.terminal.output_tokens > Some(3), "{seen:?}");
}

#[tokio::test]
async fn the_client_is_told_what_the_row_says() {
    let app = TestApp::start().await;
    app.count_once().await;
    app.upstream.enqueue(openai::text_stream_without_usage(SENTENCE));
    let call = app.alice().post("/v1/streams").json(&chat(true)).send().await;
    let body = String::from_utf8(call.bytes().await.to_vec()).unwrap();
    app.until_idle().await;
    let (_, row) = app.the_call().await;
    let told = format!(r#""input_tokens":{},"output_tokens":7"#, row.input_tokens.unwrap());
    assert!(body.contains(&told), "{told} in {body}");
    assert_eq!((row.usage_source.as_deref(), row.output_tokens), (Some("counted"), Some(7)));
    app.shutdown().await;
}

/// Texts that keep the counting thread busy for seconds, as many as it takes.
async fn cut_while_the_queue_is_full() -> Seen {
    let app = TestApp::start().await;
    app.count_once().await;
    let counter = &app.gateway().meter.counter;
    let slowest = " ".repeat(MAX_COUNTED_BYTES);
    let mut waiting = Vec::new();
    loop {
        let mut count = Box::pin(counter.count(slowest.clone()));
        match poll_fn(|context| Poll::Ready(count.as_mut().poll(context))).await {
            Poll::Pending => waiting.push(count),
            Poll::Ready(tokens) => break assert_eq!(tokens, None),
        }
    }
    assert_eq!(counter.refused(), 1);
    app.upstream.enqueue(cut(sentence()));
    let seen = read(app.alice().post(PATH).json(&chat(true))).await.recorded(&app).await;
    drop(waiting);
    app.shutdown().await;
    seen
}

#[tokio::test]
async fn while_too_many_texts_wait_bytes_are_counted() {
    let seen = cut_while_the_queue_is_full().await;
    assert_eq!(seen.row(), ("settle", "upstream_lost", 502, Some("estimate")));
    let bytes = i64::try_from(SENTENCE.concat().len()).unwrap();
    assert_eq!(seen.terminal.output_tokens, Some((bytes + 3) / 4));
}

/// A stream of a hundred bytes whose provider counts as it is told here.
fn counted_by_provider(input: u32, output: u32, reasoning: u32) -> Script {
    let usage = format!(
        r#"{{"choices":[],"usage":{{"prompt_tokens":{input},"completion_tokens":{output},"completion_tokens_details":{{"reasoning_tokens":{reasoning}}}}}}}"#
    );
    let text = openai::text(&"x".repeat(100));
    Script::events([text, openai::finish("stop"), openai::event(&usage), openai::done()])
}

#[tokio::test]
async fn what_a_provider_counts_corrects_the_estimates_of_its_model() {
    let app = TestApp::start().await;
    let estimator = &app.gateway().meter.estimator;
    let call = async |script| {
        app.upstream.enqueue(script);
        assert_eq!(read(app.alice().post(PATH).json(&chat(true))).await.status, 200);
        app.until_idle().await;
    };
    // All of the output's tokens but those of a reasoning that nobody was shown.
    call(counted_by_provider(1_000, 1_050, 1_000)).await;
    let (input, output) = (estimator.input_tokens("m", 4_000), estimator.output_tokens("m", 4_000));
    assert_eq!(output, 1_100, "a tenth of the way to 2,000");
    assert_eq!(input, 1_300, "a tenth of the way to the bound");
    assert_eq!(estimator.input_tokens("other", 4_000), 1_000);

    app.reload(&app.config);
    assert_eq!(estimator.output_tokens("m", 4_000), 1_100, "kept over a reload");

    // Told before the answer's end: of the output it may know only the beginning.
    let told = r#"{"choices":[{"index":0,"delta":{"content":"x"}}],"usage":{"prompt_tokens":1000,"completion_tokens":1}}"#;
    let text = openai::text(&"x".repeat(1_000));
    call(cut([openai::event(told), text])).await;
    assert_eq!(estimator.output_tokens("m", 4_000), 1_100);
    assert!(estimator.input_tokens("m", 4_000) > input);
    app.shutdown().await;
}

#[tokio::test]
async fn a_call_of_which_nothing_has_come_is_estimated() {
    let seen = call_with(|_| {}, cut([openai::role()]), &chat(true)).await;
    assert_eq!(seen.row().3, Some("estimate"));
    assert_eq!(seen.terminal.output_tokens, Some(0));
}
