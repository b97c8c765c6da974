//! What is not ours to change passes both ways as it is.

use serde_json::json;

use crate::support::{
    app::{TestApp, chat},
    upstream::{Script, openai},
};

use super::seen::{PATH, call_with, read};

/// What a client that did not ask for usage gets of these bytes.
fn without_usage(sent: &[u8]) -> String {
    let text = std::str::from_utf8(sent).unwrap();
    let counts = String::from_utf8(openai::usage().to_vec()).unwrap();
    text.replace(&counts, "").replace(r#""usage":null,"#, "")
}

/// The body as it leaves for the provider.
async fn sent_on(body: &str) -> String {
    let app = TestApp::start().await;
    // The mock's own answer would read the body, and such numbers are beyond it.
    app.upstream.respond_with(|request| {
        let text = String::from_utf8_lossy(&request.body).replace(' ', "");
        let stream = text.contains(r#""stream":true"#);
        if stream { openai::text_stream(["a"]) } else { openai::completion("a") }
    });
    let call = app.alice().post(PATH).header("content-type", "application/json");
    let answer = read(call.body(body.to_owned())).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let request = app.upstream.request();
    app.shutdown().await;
    String::from_utf8(request.body.to_vec()).unwrap()
}

/// No piece ends like the beginning of a secret: of such the end is held back for a moment.
fn scripts() -> Vec<Script> {
    vec![
        openai::text_stream(["Hel", "", "lo"]),
        openai::tool_call_stream("look", ["{\"a\"", ": 1.0", "}"]),
        openai::two_choice_stream(),
        openai::stream([
            openai::role(),
            openai::reasoning_content("hmm"),
            openai::reasoning("then"),
            openai::refusal("never"),
            openai::text_with_logprobs("yes"),
            openai::unknown_members(),
            openai::finish("content_filter"),
        ]),
    ]
}

#[tokio::test]
async fn chunks_pass_byte_for_byte_to_a_client_that_asks_for_usage() {
    for script in scripts() {
        let sent = script.sent();
        let mut body = chat(true);
        body["stream_options"] = json!({ "include_usage": true });
        let seen = call_with(|_| {}, script, &body).await;
        assert_eq!(seen.body, sent);
        assert_eq!(seen.row(), ("settle", "ok", 200, Some("provider")));
    }
}

#[tokio::test]
async fn only_usage_is_taken_out_for_a_client_that_does_not() {
    for script in scripts() {
        let sent = script.sent();
        let seen = call_with(|_| {}, script, &chat(true)).await;
        assert_eq!(std::str::from_utf8(&seen.body).unwrap(), without_usage(&sent));
        seen.stream();
        let row = &seen.terminal;
        assert_eq!(seen.row(), ("settle", "ok", 200, Some("provider")));
        assert_eq!((row.input_tokens, row.output_tokens), (Some(9), Some(2)));
    }
}

#[tokio::test]
async fn unknown_members_and_digits_reach_the_provider_as_they_are() {
    let body = r#" {"x_first": {"b":1.0,"a":[0.1000, 1e400, -0.0, 12345678901234567890]},
        "model" : "m", "temperature":1.0, "seed":12345678901234567890123, "x_exp": 1E+2,
        "messages":[{"role":"user","content":[{"type":"text","text":"\u00e9 \ud83d\ude00 é\/","x":null}],"x":{"y":[{}]}}],
        "tools":[{"type":"function","function":{"name":"look","parameters":{"type":"object","minimum":1.50}}}],
        "x_last":"\u0000" } "#;
    assert_eq!(sent_on(body).await, body.replace(r#""model" : "m""#, r#""model" : "upstream-m""#));
}

#[tokio::test]
async fn usage_is_always_asked_for_and_the_other_stream_options_are_kept() {
    let asked = |options: &str| {
        format!(r#"{{"stream":true,"stream_options":{options},"model":"m","messages":[]}}"#)
    };
    let given = [
        ("null", r#"{"include_usage":true}"#),
        ("{}", r#"{"include_usage":true}"#),
        (r#"{"include_usage":false}"#, r#"{"include_usage":true}"#),
        (r#"{ "include_usage" : null }"#, r#"{ "include_usage" : true }"#),
        (r#"{"include\u005fusage":false}"#, r#"{"include\u005fusage":true}"#),
        (
            r#"{"z":1.0,"include_usage":false,"a":12345678901234567890123,"x":1e400}"#,
            r#"{"z":1.0,"include_usage":true,"a":12345678901234567890123,"x":1e400}"#,
        ),
        (
            r#"{"include_obfuscation":false,"x":{"include_usage":false}}"#,
            r#"{"include_usage":true,"include_obfuscation":false,"x":{"include_usage":false}}"#,
        ),
    ];
    for (options, wanted) in given {
        let expected = asked(wanted).replace(r#""m""#, r#""upstream-m""#);
        assert_eq!(sent_on(&asked(options)).await, expected);
    }
    let bare = r#"{"model":"m","stream":true,"messages":[]}"#;
    let sent: serde_json::Value = serde_json::from_str(&sent_on(bare).await).unwrap();
    assert_eq!(sent["stream_options"], json!({ "include_usage": true }));
}

#[tokio::test]
async fn a_call_that_is_not_streamed_asks_for_nothing_more() {
    let body = r#"{"model":"m","stream":false,"messages":[],"stream_options":null}"#;
    assert_eq!(sent_on(body).await, body.replace(r#""m""#, r#""upstream-m""#));
}

#[tokio::test]
async fn a_body_that_is_deeply_nested_passes() {
    let deep = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
    let body = format!(r#"{{"model":"m","messages":[],"x":{deep}}}"#);
    assert_eq!(sent_on(&body).await, body.replace(r#""m""#, r#""upstream-m""#));
}
