//! Secrets in requests do not leave.

use std::sync::LazyLock;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};
use tollgate::{
    config::{RedactionConfig, RequestRedaction},
    domain::ModelCall,
    redact::{Counts, Redactor},
};

use crate::support::{app::TestApp, upstream::openai};

use super::{
    seen::{PATH, read},
    usage::json_value,
};

/// One of each format, and the rule that knows it.
const SECRETS: [(&str, &str); 7] = [
    ("openai-key", "sk-proj-0123456789abcdefghijABCDEFGHIJ"),
    ("github-token", "ghp_0123456789abcdefghijABCDEFGHIJ012345"),
    ("aws-access-key-id", "AKIAIOSFODNN7EXAMPLE"),
    ("jwt", "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJlc2lnbmF0dXJl"),
    ("slack-bot-token", "xoxb-0123456789-abcdefghij"),
    ("google-api-key", "AIzaSyA0123456789abcdefghijABCDEFGHIJ01"),
    // Its alphabet has characters that some write with escapes.
    ("bearer-token", "Bearer abcdEFGH+ijkl/mnop=qrst~uvwx"),
];

static REDACTOR: LazyLock<Redactor> =
    LazyLock::new(|| Redactor::new(&RedactionConfig::default()).unwrap());

fn redacted(body: &str) -> (String, Counts) {
    let call = ModelCall::parse(Bytes::from(body.to_owned())).unwrap();
    let (call, counts) = REDACTOR.redact_call(call).unwrap();
    (String::from_utf8(call.body().to_vec()).unwrap(), counts)
}

/// A body with this JSON text as a message's content.
fn body_of(content: &str) -> String {
    format!(r#"{{"model":"m","messages":[{{"role":"user","content":{content}}}]}}"#)
}

/// What a reader of `body` would find in its first message.
fn content_of(body: &str) -> Value {
    let body: Value = serde_json::from_str(body).expect("it is still JSON");
    body["messages"][0]["content"].clone()
}

/// The part that must not leave: `Bearer` itself may.
fn hidden_part(secret: &str) -> &str {
    secret.strip_prefix("Bearer ").unwrap_or(secret)
}

/// Every character of `text` for which `choose` says so, spelled `\u00XX`.
fn spelled(text: &str, mut choose: impl FnMut(usize) -> bool) -> String {
    let spell = |(at, c): (usize, char)| {
        if choose(at) { format!("\\u{:04x}", c as u32) } else { c.to_string() }
    };
    text.chars().enumerate().map(spell).collect()
}

#[test]
fn a_secret_is_found_whatever_stands_before_it() {
    for (rule, secret) in SECRETS {
        for before in ["", " ", "key=", "\\n", "\\t", "\\\"", "\\\\", "é", "\\u00e9", "(", "\\/"] {
            let (body, counts) = redacted(&body_of(&format!("\"{before}{secret} after\"")));
            assert!(!body.contains(hidden_part(secret)), "{before:?} {body}");
            let content = content_of(&body);
            let content = content.as_str().unwrap();
            assert!(content.contains(&format!("[REDACTED:{rule}:")), "{before:?} {content}");
            assert!(content.ends_with("] after"), "{content}");
            assert_eq!(counts[rule], 1);
        }
    }
}

#[test]
fn a_word_that_only_ends_like_a_prefix_is_left_alone() {
    for content in [
        r#""a task-0123456789abcdefghijABCDEFGHIJ""#,
        r#""disk-0123456789abcdefghijABCDEFGHIJ""#,
        r#""sk-short""#,
        r#""Bearer of news""#,
        r#""\u0064isk-0123456789abcdefghijABCDEFGHIJ""#,
    ] {
        let body = body_of(content);
        assert_eq!(redacted(&body), (body.clone(), Counts::new()));
    }
}

#[test]
fn escapes_hide_no_secret() {
    for (rule, secret) in SECRETS {
        for choose in [|_| true, |at| at == 0, |at| at % 3 == 1, |at| at > 12] {
            let content = format!("\"{} after\"", spelled(secret, choose));
            let (body, counts) = redacted(&body_of(&content));
            let content = content_of(&body);
            let content = content.as_str().unwrap();
            assert!(!content.contains(&hidden_part(secret)[4..]), "{content}");
            assert!(content.ends_with("] after"), "{content}");
            assert_eq!(counts[rule], 1);
        }
        let slashes = secret.replace('/', "\\/");
        let (body, _) = redacted(&body_of(&format!("\"{slashes}\"")));
        assert!(content_of(&body).as_str().unwrap().ends_with(']'), "{body}");
    }
}

#[test]
fn json_within_json_strings_hides_no_secret() {
    for (rule, secret) in SECRETS {
        let mut inner = format!("{{\"key\":\"line\\n{}\"}}", secret.replace('/', "\\/"));
        for depth in 1..=3 {
            inner = json!({ "depth": depth, "arguments": inner }).to_string();
            let (body, counts) = redacted(&body_of(&Value::from(inner.clone()).to_string()));
            assert!(!body.contains(&hidden_part(secret)[16..]), "depth {depth}: {body}");
            assert_eq!(counts[rule], 1, "depth {depth}: {body}");
            // And each layer is still JSON.
            let mut layer = content_of(&body);
            for _ in 0..=depth {
                let parsed: Value = serde_json::from_str(layer.as_str().unwrap()).unwrap();
                layer = parsed.get("arguments").unwrap_or(&parsed["key"]).clone();
            }
            assert!(layer.as_str().unwrap().starts_with("line\n"), "{layer}");
        }
    }
}

#[test]
fn equal_secrets_have_equal_placeholders_however_they_are_spelled() {
    let (_, secret) = SECRETS[0];
    let (_, other) = SECRETS[1];
    let content = format!("[\"{secret}\",\"{}\",\"{other}\"]", spelled(secret, |at| at % 2 == 0));
    let (body, _) = redacted(&body_of(&content));
    let content = content_of(&body);
    assert_eq!(content[0], content[1]);
    assert_ne!(content[0], content[2]);
}

/// A message somewhere in which the secrets stand, among anything else.
fn haystack() -> impl Strategy<Value = (Value, Vec<&'static str>)> {
    let secrets = prop::collection::vec(prop::sample::select(SECRETS.to_vec()), 1..4);
    (json_value(), json_value(), secrets, "[ .:,\"\n\t\\\\]{1,3}", any::<bool>()).prop_map(
        |(before, after, secrets, mark, as_key)| {
            let secrets: Vec<&str> = secrets.into_iter().map(|(_, secret)| secret).collect();
            let texts = secrets.iter().map(|secret| format!("{mark}{secret}{mark}"));
            let texts = Value::from(texts.collect::<Vec<_>>());
            let nested = json!({ "arguments": texts.to_string() });
            let keyed = if as_key { json!({ secrets[0]: 1 }) } else { json!(1) };
            (json!([before, texts, nested, keyed, after]), secrets)
        },
    )
}

proptest! {
    #[test]
    fn no_secret_is_left_in_any_body_and_it_is_still_json(
        (content, secrets) in haystack(),
        pretty in any::<bool>(),
    ) {
        let body = json!({ "messages": [{ "content": content }], "model": "m" });
        let body = if pretty { serde_json::to_string_pretty(&body) } else { serde_json::to_string(&body) };
        let (redacted, counts) = redacted(&body.unwrap());
        let value: Value = serde_json::from_str(&redacted).expect("it is still JSON");
        let again = value.to_string();
        for secret in &secrets {
            prop_assert!(!again.contains(hidden_part(secret)), "{}", again);
        }
        prop_assert!(counts.values().sum::<u32>() as usize >= 2 * secrets.len());
        // Shape and all that has no secret stay.
        prop_assert_eq!(&value["messages"][0]["content"][0], &content[0]);
        prop_assert_eq!(&value["messages"][0]["content"][4], &content[4]);
        let counted: Vec<_> = content[1].as_array().unwrap().iter().collect();
        prop_assert_eq!(value["messages"][0]["content"][1].as_array().unwrap().len(), counted.len());
    }

    #[test]
    fn a_body_without_secrets_is_not_touched(content in json_value()) {
        let body = json!({ "model": "m", "messages": [content] }).to_string();
        prop_assert_eq!(redacted(&body), (body.clone(), Counts::new()));
    }
}

fn request(stream: bool) -> Value {
    let [openai, github, aws, .., bearer] = SECRETS.map(|(_, secret)| secret);
    let arguments = json!({ "token": github, "path": "C:\\new\n" }).to_string();
    json!({
        "model": "m", "stream": stream, "user": aws, "metadata": { openai: "as a name" },
        "messages": [
            { "role": "system", "content": format!("use\n{openai}") },
            { "role": "user", "content": [{ "type": "text", "text": format!("curl -H 'Authorization: {bearer}'") }] },
            { "role": "assistant", "tool_calls": [{ "id": "c", "type": "function", "function": { "name": "f", "arguments": arguments } }] },
        ],
    })
}

#[tokio::test]
async fn secrets_anywhere_in_a_request_are_taken_out_and_counted() {
    for stream in [false, true] {
        let app = TestApp::start().await;
        let answer = read(app.alice().post(PATH).json(&request(stream))).await;
        assert_eq!(answer.status, 200);
        let sent = app.upstream.request();
        for (_, secret) in SECRETS {
            assert!(!sent.contains(hidden_part(secret)), "{sent:?}");
        }
        let body = sent.json();
        assert_eq!(body["model"], "upstream-m");
        let system = body["messages"][0]["content"].as_str().unwrap();
        assert!(system.starts_with("use\n[REDACTED:openai-key:"), "{system}");
        let arguments = &body["messages"][2]["tool_calls"][0]["function"]["arguments"];
        let arguments: Value = serde_json::from_str(arguments.as_str().unwrap()).unwrap();
        assert_eq!(arguments["path"], "C:\\new\n");
        let seen = answer.recorded(&app).await;
        let counts = json!({ "openai-key": 2, "github-token": 1, "aws-access-key-id": 1, "bearer-token": 1 });
        assert_eq!(seen.terminal.redactions, Some(counts));
        app.shutdown().await;
    }
}

#[tokio::test]
async fn where_secrets_are_blocked_nothing_leaves() {
    for stream in [false, true] {
        let app = TestApp::with(|config| config.redaction.requests = RequestRedaction::Block).await;
        let answer = read(app.alice().post(PATH).json(&request(stream))).await;
        let seen = answer.recorded(&app).await;
        assert_eq!((seen.status, seen.error()), (400, ("secret_in_request".to_owned(), "gateway")));
        assert_eq!(seen.row(), ("denied", "secret_in_request", 400, None));
        let row = serde_json::to_string(&seen.terminal).unwrap();
        let body = std::str::from_utf8(&seen.body).unwrap();
        for (_, secret) in SECRETS {
            assert!(!body.contains(secret) && !row.contains(secret));
        }
        let counts = json!({ "openai-key": 2, "github-token": 1, "aws-access-key-id": 1, "bearer-token": 1 });
        assert_eq!(seen.terminal.redactions, Some(counts));
        assert_eq!(seen.terminal.provider, None);
        assert_eq!(app.upstream.counts().connections, 0);
        // Without a secret a call goes through.
        app.upstream.enqueue(openai::completion("well"));
        let clean = json!({ "model": "m", "messages": [] });
        assert_eq!(read(app.alice().post(PATH).json(&clean)).await.status, 200);
        app.shutdown().await;
    }
}
