//! POST /v1/streams: the frames, and the one end that each stream has.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{
    app::{TestApp, chat},
    native::{Frame, Native, assert_whole},
    upstream::{Script, Step, fault, openai},
};

/// The frames of a stream that the upstream answers so.
async fn frames_of(app: &TestApp, script: Script) -> Vec<Frame> {
    app.upstream.enqueue(script);
    let frames = Native::open(&app.alice(), &chat(true)).await.rest().await;
    assert_whole(0, &frames);
    frames
}

fn data_of<'a>(frames: &'a [Frame], event: &str) -> Vec<&'a Value> {
    frames.iter().filter(|frame| frame.event == event).map(|frame| &frame.data).collect()
}

#[tokio::test]
async fn the_frames_are_written_just_as_documented() {
    let app = TestApp::start().await;
    app.upstream.enqueue(openai::stream([
        openai::role(),
        openai::reasoning("Let me "),
        openai::reasoning_content("see"),
        openai::text("Grüße,\r\n\"you\""),
        openai::refusal("I will not"),
        openai::finish("stop"),
    ]));

    let response = app.alice().post("/v1/streams").json(&chat(false)).send().await;

    assert_eq!(response.status, 200);
    assert_eq!(response.header("content-type"), Some("text/event-stream; charset=utf-8"));
    assert_eq!(response.header("cache-control"), Some("no-cache"));
    let id = response.header("x-stream-id").expect("an id");
    assert_eq!(response.header("location"), Some(&*format!("/v1/streams/{id}")));
    let expected = "retry: 1000\n\n\
        id: 1\nevent: reasoning\ndata: {\"seq\":1,\"delta\":\"Let me \",\"model\":\"m\"}\n\n\
        id: 2\nevent: reasoning\ndata: {\"seq\":2,\"delta\":\"see\",\"model\":\"m\"}\n\n\
        id: 3\nevent: token\ndata: {\"seq\":3,\"delta\":\"Grüße,\\r\\n\\\"you\\\"\",\"model\":\"m\"}\n\n\
        id: 4\nevent: refusal\ndata: {\"seq\":4,\"delta\":\"I will not\"}\n\n\
        id: 5\nevent: usage\ndata: {\"seq\":5,\"input_tokens\":9,\"output_tokens\":2,\"cache_read\":4,\
        \"reasoning_tokens\":1,\"cost_usd\":\"0.000013\"}\n\n\
        id: 6\nevent: done\ndata: {\"seq\":6,\"finish_reason\":\"stop\"}\n\n";
    assert_eq!(response.text().await, expected);
    let sent = app.upstream.request().json();
    assert_eq!((&sent["stream"], &sent["model"]), (&json!(true), &json!("upstream-m")));
    assert_eq!(sent["stream_options"]["include_usage"], true);
    app.shutdown().await;
}

#[tokio::test]
async fn a_second_choice_is_told_apart() {
    let app = TestApp::start().await;
    let frames = frames_of(&app, openai::two_choice_stream()).await;

    let choices: Vec<_> = data_of(&frames, "token").iter().map(|data| &data["choice"]).collect();
    assert_eq!(choices, [&json!(null), &json!(1), &json!(null), &json!(1)]);
    assert_eq!(data_of(&frames, "done")[0]["finish_reason"], "length", "that of the first choice");
    app.shutdown().await;
}

#[tokio::test]
async fn a_tool_call_comes_whole_with_its_arguments_as_an_object() {
    let app = TestApp::start().await;
    let script = openai::tool_call_stream("fleet_ps", ["{\"all\":", "\n true, \"n\": 1.50e2", "}"]);
    let frames = frames_of(&app, script).await;

    let [call] = data_of(&frames, "tool_call")[..] else { panic!("{frames:?}") };
    assert_eq!((&call["id"], &call["name"]), (&json!("call_mock"), &json!("fleet_ps")));
    assert_eq!(call["arguments"], json!({ "all": true, "n": 150.0 }));
    assert_eq!(data_of(&frames, "done")[0]["finish_reason"], "tool_calls");
    app.shutdown().await;
}

#[tokio::test]
async fn tool_calls_whose_pieces_come_by_turns_are_kept_apart() {
    let app = TestApp::start().await;
    let script = openai::stream([
        openai::tool_call(0, "a", "first"),
        openai::tool_call(1, "b", "second"),
        openai::tool_arguments(0, "{\"x\""),
        openai::tool_arguments(1, "{\"y\""),
        openai::tool_arguments(0, ":1}"),
        openai::tool_arguments(1, ":2}"),
        // As some servers do: another call under the same index.
        openai::tool_call(1, "c", "third"),
        openai::tool_arguments(1, "{\"z\":3}"),
        openai::finish("tool_calls"),
    ]);
    let frames = frames_of(&app, script).await;

    let calls: Vec<_> = data_of(&frames, "tool_call")
        .iter()
        .map(|call| json!([call["id"], call["name"], call["arguments"]]))
        .collect();
    let expected = [
        json!(["a", "first", { "x": 1 }]),
        json!(["b", "second", { "y": 2 }]),
        json!(["c", "third", { "z": 3 }]),
    ];
    assert_eq!(calls, expected);
    app.shutdown().await;
}

#[tokio::test]
async fn arguments_that_are_no_json_object_come_as_a_string_of_their_text() {
    let app = TestApp::start().await;
    for (text, expected) in [
        ("", json!({})),
        ("  \n", json!({})),
        ("{\"a\":", json!("{\"a\":")),
        ("{'a': 1}\n", json!("{'a': 1}\n")),
        ("\"quoted\"", json!("\"quoted\"")),
        ("[1]", json!("[1]")),
        ("null", json!("null")),
    ] {
        let frames = frames_of(&app, openai::tool_call_stream("t", [text])).await;
        assert_eq!(data_of(&frames, "tool_call")[0]["arguments"], expected, "of {text:?}");
    }
    app.shutdown().await;
}

#[tokio::test]
async fn a_half_tool_call_is_never_shown() {
    let app = TestApp::start().await;
    let script = openai::tool_call_stream("rm", ["{\"path\":\"/tmp\"}", ""]).only(3);
    let frames = frames_of(&app, script.then(Step::Close)).await;

    assert!(data_of(&frames, "tool_call").is_empty());
    assert_eq!(data_of(&frames, "error")[0]["code"], "upstream_lost");
    app.shutdown().await;
}

#[tokio::test]
async fn more_tool_calls_than_can_be_held_fail_the_stream_and_are_not_left_out() {
    let app = TestApp::start().await;
    let calls = (0..200).map(|index| openai::tool_call(index, &format!("call_{index}"), "t"));
    let frames = frames_of(&app, openai::stream(calls.chain([openai::finish("stop")]))).await;
    assert_eq!(data_of(&frames, "error")[0]["code"], "upstream_invalid");

    let piece = "x".repeat(512 << 10);
    let script = openai::tool_call_stream("t", std::iter::repeat_n(&*piece, 9));
    let frames = frames_of(&app, script).await;
    assert_eq!(data_of(&frames, "error")[0]["code"], "upstream_invalid");
    app.shutdown().await;
}

#[tokio::test]
async fn every_fault_of_an_upstream_ends_in_one_terminal_frame() {
    let app = TestApp::with(|config| config.providers[0].idle_timeout_ms = 150).await;
    let faults = [
        (fault::cut_between_events(), "upstream_lost", true),
        (fault::cut_mid_event(), "upstream_lost", true),
        (fault::cut_mid_json(), "upstream_lost", true),
        (fault::end_mid_json(), "upstream_lost", true),
        (fault::reset_mid_stream(), "upstream_lost", true),
        (fault::bad_chunk_framing(), "upstream_lost", true),
        (fault::stall_mid_stream(), "upstream_timeout", true),
        (fault::malformed_json(), "upstream_invalid", true),
        (fault::not_a_chunk(), "upstream_invalid", true),
        (fault::huge_event(2 << 20), "upstream_invalid", true),
        (fault::endless_line(2 << 20), "upstream_invalid", true),
        (fault::error_event(), "upstream_error", true),
    ];
    let count = faults.len();
    for (i, (script, code, retryable)) in faults.into_iter().enumerate() {
        let frames = frames_of(&app, script).await;
        let last = &frames.last().expect("a frame").data;
        assert_eq!((&last["code"], &last["retryable"]), (&json!(code), &json!(retryable)), "{i}");
        assert!(last["message"].is_string());
        app.until_idle().await;
    }
    let rows = app.audit_rows_once(2 * count).await;
    assert_eq!(rows.len(), 2 * count, "an intent and one terminal row each");
    app.shutdown().await;
}

#[tokio::test]
async fn what_is_missing_at_the_end_is_no_fault() {
    let app = TestApp::start().await;
    for script in [
        fault::missing_done(),
        fault::missing_finish_reason(),
        fault::crlf_lines(),
        fault::extra_lines(),
        fault::split_every(1),
        fault::split_every(7),
    ] {
        let frames = frames_of(&app, script).await;
        let text: String =
            data_of(&frames, "token").iter().filter_map(|data| data["delta"].as_str()).collect();
        assert_eq!(text, fault::PIECES.concat());
        assert_eq!(data_of(&frames, "done")[0]["finish_reason"], "stop");
    }
    app.shutdown().await;
}

#[tokio::test]
async fn what_goes_wrong_before_the_first_frame_is_a_plain_http_error() {
    let app = TestApp::with(|config| config.providers[0].first_token_timeout_ms = 150).await;
    let faults = [
        (fault::reset_before_head(), 502, "upstream_lost"),
        (fault::not_http(), 502, "upstream_lost"),
        (fault::wrong_content_type(), 502, "upstream_invalid"),
        (fault::json_for_a_stream(), 502, "upstream_invalid"),
        (fault::redirect("http://127.0.0.1:9/"), 502, "upstream_invalid"),
        (fault::stall_before_head(), 504, "upstream_timeout"),
        (fault::stall_after_head(), 504, "upstream_timeout"),
    ];
    for (script, status, code) in faults {
        app.upstream.enqueue(script);
        let response = app.alice().post("/v1/streams").json(&chat(true)).send().await;
        assert_eq!(response.status, status, "{code}");
        assert_eq!(response.header("x-tollgate-source"), Some("gateway"));
        assert_eq!(response.header("x-stream-id"), None);
        assert_eq!(response.json().await["error"]["code"], code);
    }
    for (script, status) in [(openai::rate_limited(7), 429), (openai::server_error(), 500)] {
        let body = script.sent();
        app.upstream.enqueue(script);
        let response = app.alice().post("/v1/streams").json(&chat(true)).send().await;
        assert_eq!(response.status, status);
        assert_eq!(response.header("x-tollgate-source"), Some("upstream"));
        assert_eq!(response.bytes().await, body);
    }
    app.until_idle().await;
    assert_eq!(app.gateway().hub.len(), 0);
    app.shutdown().await;
}

#[tokio::test]
async fn a_call_that_is_refused_leaves_no_stream() {
    let app = TestApp::start().await;
    let all: &[&str] = &["model:reasoning"];
    let post = async |subject: &str, tier: &str, capabilities: &[&str]| {
        let client = app.caller(subject, tier, capabilities);
        client.post("/v1/streams").json(&chat(true)).send().await
    };

    assert_eq!(post("bob", "pro", &["model:embedding"]).await.status, 403);
    assert_eq!(post("bob", "platinum", all).await.status, 403);
    assert_eq!(app.gateway().hub.len(), 0);
    for _ in 0..2 {
        assert_eq!(post("bob", "tight", all).await.text().await.matches("event: done").count(), 1);
    }
    assert_eq!(post("bob", "tight", all).await.status, 429);
    assert_eq!(app.gateway().hub.len(), 2, "the two that were let in");
    app.shutdown().await;
}

#[tokio::test]
async fn a_stream_that_takes_too_long_ends_in_an_error_frame() {
    let app = TestApp::with(|config| config.server.request_timeout_s = 1).await;
    let frames = frames_of(&app, fault::stall_mid_stream()).await;
    assert_eq!(data_of(&frames, "error")[0]["code"], "call_timeout");
    app.until_idle().await;
    app.shutdown().await;
}

#[tokio::test]
async fn a_silent_stream_is_kept_alive_by_comments() {
    let app = TestApp::with(|config| config.stream.keepalive_s = 1).await;
    let pause = Duration::from_millis(1_200);
    app.upstream.enqueue(openai::text_stream(["One", " two"]).insert(2, Step::Delay(pause)));
    let mut native = Native::open(&app.alice(), &chat(true)).await;

    assert_whole(0, &native.rest().await);
    let text = String::from_utf8(native.events.received.clone()).expect("UTF-8");
    assert!(text.starts_with("retry: 1000\n\nid: 1\n"), "{text}");
    assert_eq!(native.events.comments, 1, "{text}");
    assert!(text.contains("\n\n: keep-alive\n\nid: 2\n"), "{text}");
    app.shutdown().await;
}

#[tokio::test]
async fn a_native_stream_goes_over_http2_too() {
    let app = TestApp::start().await;
    let frames = Native::open(&app.alice().http2(), &chat(true)).await.rest().await;
    assert_eq!(assert_whole(0, &frames).event, "done");
    app.shutdown().await;
}
