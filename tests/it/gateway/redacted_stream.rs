//! Secrets in answers do not reach the client, however the provider cuts them.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tollgate::config::{Config, ResponseRedaction};

use crate::support::{
    app::{TestApp, chat},
    native::{Native, assert_whole},
    upstream::{Script, Step, openai},
};

use super::seen::{End, PATH, Seen, Stream, call_with, read, streamed, whole};

/// Written apart, so that scanners of sources leave it alone.
fn secret() -> String {
    ["AKIA", "Z7Q2M4X6B3N5C7D2"].concat()
}

fn halves(secret: &str) -> (&str, &str) {
    secret.split_at(9)
}

fn is_placeholder(text: &str) -> bool {
    text.starts_with("[REDACTED:aws-access-key-id:") && text.ends_with(']')
}

fn assert_counted(seen: &Seen, count: u32) {
    assert_eq!(seen.terminal.redactions, Some(json!({ "aws-access-key-id": count })));
    let row = serde_json::to_string(&seen.terminal).unwrap();
    assert!(!row.contains(&secret()));
}

fn assert_clean(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let secret = secret();
    assert!(!text.contains(&secret[..12]) && !text.contains(&secret[8..]), "{text}");
}

/// What every field of a first choice says, put together.
fn said(stream: &Stream) -> Value {
    let mut said =
        json!({ "content": "", "reasoning": "", "refusal": "", "arguments": "", "name": "" });
    let mut add = |name: &str, text: &Value| {
        let both = format!("{}{}", said[name].as_str().unwrap(), text.as_str().unwrap_or_default());
        said[name] = Value::from(both);
    };
    for chunk in &stream.chunks {
        for choice in chunk["choices"].as_array().unwrap() {
            let delta = &choice["delta"];
            add("content", &delta["content"]);
            add("reasoning", &delta["reasoning"]);
            add("refusal", &delta["refusal"]);
            add("arguments", &delta["tool_calls"][0]["function"]["arguments"]);
            add("name", &delta["tool_calls"][0]["function"]["name"]);
        }
    }
    said
}

/// The secret cut in two, in every field.
fn in_every_field() -> Script {
    let secret = secret();
    let (left, right) = halves(&secret);
    openai::stream([
        openai::role(),
        openai::reasoning(&format!("hm {left}")),
        openai::reasoning(&format!("{right} so")),
        openai::text(&format!("Grüße {left}")),
        openai::text(&format!("{right} 東京")),
        openai::refusal(left),
        openai::refusal(&format!("{right}.")),
        openai::tool_call(0, "call_1", "look"),
        openai::tool_arguments(0, &format!("{{\"line\":\"a\\n{left}")),
        openai::tool_arguments(0, &format!("{right}\"}}")),
        openai::finish("tool_calls"),
    ])
}

#[tokio::test]
async fn no_field_of_a_stream_carries_a_secret() {
    let seen = streamed(in_every_field()).await;
    assert_clean(&seen.body);
    let stream = seen.stream();
    assert_eq!(stream.end, End::Done);
    assert_eq!(stream.finish_reasons(), [(0, "tool_calls".to_owned())]);
    let said = said(&stream);
    let inner = |text: &Value, before: &str, after: &str| {
        let text = text.as_str().unwrap();
        let inner = text.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
        assert!(inner.is_some_and(is_placeholder), "{text}");
    };
    inner(&said["reasoning"], "hm ", " so");
    inner(&said["content"], "Grüße ", " 東京");
    inner(&said["refusal"], "", ".");
    inner(&said["arguments"], "{\"line\":\"a\\n", "\"}");
    assert_eq!(said["name"], "look");
    assert_counted(&seen, 4);
    assert_eq!(seen.row(), ("settle", "ok", 200, Some("provider")));
    assert_eq!(seen.terminal.output_tokens, Some(2), "as the provider counts");
}

#[tokio::test]
async fn wherever_the_bytes_are_cut_the_client_gets_the_same() {
    let app = TestApp::with(|config| config.redaction.responses = ResponseRedaction::Redact).await;
    let mut bodies = Vec::new();
    let length = in_every_field().sent().len();
    for size in (1..=64).chain([length]) {
        app.upstream.enqueue(in_every_field().split_every(size));
        let answer = read(app.alice().post(PATH).json(&chat(true))).await;
        assert_clean(&answer.body);
        bodies.push(answer.body);
    }
    let secret = secret();
    let bytes = in_every_field().sent();
    let near =
        |at: &usize| at.is_multiple_of(40) || bytes[..*at].ends_with(&secret.as_bytes()[..9]);
    for cut in (1..length).filter(near) {
        let step = Step::SendSplit { bytes: bytes.clone(), cuts: vec![cut] };
        app.upstream.enqueue(in_every_field().only(0).then(step));
        bodies.push(read(app.alice().post(PATH).json(&chat(true))).await.body);
    }
    bodies.dedup();
    assert_eq!(bodies.len(), 1, "{bodies:?}");
    app.shutdown().await;
}

/// Adds an end.
type EndOf = fn(Script) -> Script;

#[tokio::test]
async fn what_is_held_comes_before_the_end_however_that_comes() {
    let secret = secret();
    let ends: [(&str, EndOf, End); 4] = [
        (
            "a finish reason",
            |script| {
                script.then(Step::Send(openai::finish("stop"))).then(Step::Send(openai::done()))
            },
            End::Done,
        ),
        ("[DONE]", |script| script.then(Step::Send(openai::done())), End::Done),
        ("a break-off", |script| script.then(Step::Close), End::Error("upstream_lost".to_owned())),
        (
            "an error",
            |script| {
                script.then(Step::Send(openai::event(
                    r#"{"error":{"message":"m","code":"overloaded"}}"#,
                )))
            },
            End::Error("overloaded".to_owned()),
        ),
    ];
    for (how, end, wanted) in ends {
        for (text, is_secret) in [("see AKIAZ7Q2M", false), (&*format!("see {secret}"), true)] {
            let pieces = text.split_at(7);
            let script =
                Script::events([openai::role(), openai::text(pieces.0), openai::text(pieces.1)]);
            let seen = streamed(end(script)).await;
            let stream = seen.stream();
            assert_eq!(stream.end, wanted, "{how}");
            let rest = stream.text().strip_prefix("see ").unwrap().to_owned();
            if is_secret {
                assert!(is_placeholder(&rest), "{how}: {rest}");
                assert_clean(&seen.body);
                assert_counted(&seen, 1);
            } else {
                assert_eq!(rest, "AKIAZ7Q2M", "{how}");
                assert_eq!(seen.terminal.redactions, None);
            }
        }
    }
}

#[tokio::test]
async fn native_frames_and_their_replay_carry_no_secret() {
    let app = TestApp::start().await;
    app.upstream.enqueue(in_every_field());
    let mut native = Native::open(&app.alice(), &chat(true)).await;
    let frames = native.rest().await;
    assert_clean(&native.events.received);
    assert_eq!(assert_whole(0, &frames).data["finish_reason"], "tool_calls");
    let call = frames.iter().find(|frame| frame.event == "tool_call").unwrap();
    let line = call.data["arguments"]["line"].as_str().expect("the arguments are still JSON");
    assert!(line.strip_prefix("a\n").is_some_and(is_placeholder), "{line}");
    let tokens = frames.iter().filter(|frame| frame.event == "token");
    let text: String = tokens.map(|frame| frame.data["delta"].as_str().unwrap()).collect();
    assert!(text.starts_with("Grüße [REDACTED:") && text.ends_with("] 東京"), "{text}");
    let last = frames.iter().position(|frame| frame.event == "token").unwrap();
    assert!(last < frames.iter().position(|frame| frame.event == "tool_call").unwrap());

    for seq in 0..frames.len() {
        let mut again = Native::resume(&app.alice(), &native.id, seq as u64).await;
        assert_eq!(again.rest().await, frames[seq..]);
        assert_clean(&again.events.received);
    }
    let (_, terminal) = app.the_call().await;
    assert_eq!(terminal.redactions, Some(json!({ "aws-access-key-id": 4 })));
    app.shutdown().await;
}

#[tokio::test]
async fn a_native_stream_that_breaks_off_gives_what_it_held() {
    let secret = secret();
    for (text, is_secret) in [("see AKIAZ7Q2M", false), (&*format!("see {secret}"), true)] {
        let app = TestApp::start().await;
        app.count_once().await;
        let pieces = text.split_at(7);
        let script =
            Script::events([openai::role(), openai::text(pieces.0), openai::text(pieces.1)]);
        app.upstream.enqueue(script.then(Step::Close));
        let mut native = Native::open(&app.alice(), &chat(true)).await;
        let frames = native.rest().await;
        let last = assert_whole(0, &frames);
        assert_eq!((&*last.event, &last.data["code"]), ("error", &json!("upstream_lost")));
        let tokens = frames.iter().filter(|frame| frame.event == "token");
        let said: String = tokens.map(|frame| frame.data["delta"].as_str().unwrap()).collect();
        let rest = said.strip_prefix("see ").unwrap();
        if is_secret {
            assert!(is_placeholder(rest), "{rest}");
            assert_clean(&native.events.received);
        } else {
            assert_eq!(rest, "AKIAZ7Q2M");
        }
        let mut again = Native::resume(&app.alice(), &native.id, 0).await;
        assert_eq!(again.rest().await, frames);
        app.until_idle().await;
        let (_, terminal) = app.the_call().await;
        let counts = is_secret.then(|| json!({ "aws-access-key-id": 1 }));
        assert_eq!(terminal.redactions, counts);
        assert_eq!(terminal.outcome.as_deref(), Some("upstream_lost"));
        app.shutdown().await;
    }
}

#[tokio::test]
async fn a_stream_that_is_canceled_gives_what_it_held() {
    let app = TestApp::start().await;
    app.count_once().await;
    let gate = Arc::new(Notify::new());
    let script = openai::text_stream(["see ", "AKIAZ7", "Q2M"]).insert(4, Step::Stall);
    app.upstream.enqueue(script.insert(2, Step::WaitFor(Arc::clone(&gate))));
    let mut native = Native::open(&app.alice(), &chat(true)).await;
    assert_eq!(native.frame().await.data["delta"], "see ");
    gate.notify_one();
    app.upstream.until(|counts| counts.open == 1).await;
    // Until all was sent on, there is nothing to be seen of it: a second stream goes after it.
    let response = app.alice().delete(&format!("/v1/streams/{}", native.id)).send().await;
    assert_eq!(response.status, 202);
    let frames = native.rest().await;
    assert_eq!(assert_whole(1, &frames).event, "canceled");
    let tokens = frames.iter().filter(|frame| frame.event == "token");
    let held: String = tokens.map(|frame| frame.data["delta"].as_str().unwrap()).collect();
    assert!("AKIAZ7Q2M".starts_with(&held), "{held}");
    app.shutdown().await;
}

fn off(config: &mut Config) {
    config.redaction.responses = ResponseRedaction::Off;
}

#[tokio::test]
async fn where_it_is_off_answers_pass_byte_for_byte() {
    let script = in_every_field();
    let sent = script.sent();
    let mut body = chat(true);
    body["stream_options"] = json!({ "include_usage": true });
    let seen = call_with(off, script, &body).await;
    assert_eq!(seen.body, sent);
    assert_eq!(seen.terminal.redactions, None);
    let script = openai::completion(&secret());
    let sent = script.sent();
    assert_eq!(call_with(off, script, &chat(false)).await.body, sent);
}

#[tokio::test]
async fn more_texts_than_can_be_followed_fail_the_call() {
    let texts = (0..2_000).map(|index| openai::text_of(index, "x"));
    let seen = streamed(openai::stream(texts)).await;
    let stream = Stream::parse(&seen.body);
    assert_eq!(stream.end, End::Error("upstream_invalid".to_owned()));
    assert_eq!(seen.row().1, "upstream_invalid");
}

fn completion(content: &str) -> Bytes {
    Bytes::from(format!(
        r#"{{"id":"c","seed":12345678901234567890123,"choices":[{{"index":0,"message":{{"role":"assistant","content":"{content}"}},"logprobs":{{"content":[{{"token":"x"}}]}},"finish_reason":"stop"}},{{"index":1,"message":{{"role":"assistant","content":"42"}},"logprobs":{{"content":[]}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":9,"completion_tokens":2}},"score":1.10}}"#
    ))
}

#[tokio::test]
async fn whole_answers_are_redacted_where_they_stand() {
    let secret = secret();
    let spelled = secret.replace('K', "\\u004b");
    // Small ones here, large ones on another thread.
    for fill in ["", &"lorem ipsum ".repeat(20_000)] {
        for secret in [&secret, &spelled] {
            let body = completion(&format!("{fill}é {secret} end"));
            let seen = whole(Script::body(200, "application/json", body.clone())).await;
            assert_clean(&seen.body);
            let text = std::str::from_utf8(&seen.body).unwrap();
            let start = text.find("[REDACTED:aws-access-key-id:").expect("a placeholder");
            let placeholder = &text[start..=start + text[start..].find(']').unwrap()];
            let expected = std::str::from_utf8(&body).unwrap().replace(secret, placeholder);
            let expected = expected.replacen(r#"{"content":[{"token":"x"}]}"#, "null", 1);
            assert_eq!(text, expected);
            assert_eq!(seen.headers["content-length"], text.len().to_string().as_str());
            assert_counted(&seen, 1);
            assert_eq!(seen.terminal.output_tokens, Some(2));
        }
    }
    let clean = completion("nothing");
    let seen = whole(Script::body(200, "application/json", clean.clone())).await;
    assert_eq!((seen.body, seen.terminal.redactions), (clean, None));
}

#[tokio::test]
async fn what_a_provider_refuses_with_is_redacted_too() {
    let secret = secret();
    let json =
        format!(r#"{{"error":{{"message":"no {secret}","type":"t","param":null,"code":"c"}}}}"#);
    let html = format!("<p>no {secret}</p>");
    for stream in [false, true] {
        for (content_type, body) in [("application/json", &json), ("text/html", &html)] {
            let script = Script::body(400, content_type, body.clone());
            let seen = call_with(|_| {}, script, &chat(stream)).await;
            assert_eq!(seen.status, 400);
            assert_clean(&seen.body);
            assert_eq!(seen.body.len(), body.len() + 37 - secret.len());
            assert_counted(&seen, 1);
        }
    }
}

#[tokio::test]
async fn counts_of_the_request_and_of_the_answer_are_one() {
    let mut body = chat(true);
    body["messages"][0]["content"] = Value::from(secret());
    let seen = call_with(|_| {}, in_every_field(), &body).await;
    assert_counted(&seen, 5);
}
