//! The caller's token never reaches a provider; the provider's key never reaches anybody else.

use serde_json::{Value, json};
use tollgate::{config::TelemetryConfig, telemetry::Telemetry};

use crate::{
    support::{
        app::{PROVIDER_KEY, TestApp, chat},
        client::Call,
        upstream::{Recorded, Script, Step, fault, openai},
    },
    telemetry::Log,
};

use super::seen::{PATH, impatient, read};

const PROMPT: &str = "the prompt that no log may quote";

/// Says back all that it was sent, headers too.
fn echo(request: &Recorded) -> Script {
    let said = format!("{request:?}");
    let echoed = json!({ "id": said, "model": said, "choices": [{ "index": 0, "delta": { "content": said }, "message": { "content": said }, "finish_reason": said }] });
    if request.json()["stream"] == true {
        Script::events([openai::event(&echoed.to_string()), openai::done()])
    } else {
        Script::body(200, "application/json", echoed.to_string())
    }
}

/// Whatever a provider may do with the key that it was given.
fn scripts() -> Vec<Script> {
    let error_event = |text: &str| {
        let error =
            json!({ "error": { "message": text, "type": "t", "param": null, "code": "c" } });
        Script::events([openai::text("a"), openai::event(&error.to_string())])
    };
    let quoted = format!("no such key: {PROVIDER_KEY}");
    let mut scripts = vec![
        openai::unauthorized(PROVIDER_KEY),
        openai::unauthorized("sk-provi**********************ghij"),
        openai::error(400, "t", Some(PROVIDER_KEY), &format!("\n{PROVIDER_KEY}\t")),
        openai::error(500, "t", None, &format!("Bearer {PROVIDER_KEY}")),
        Script::body(403, "text/plain", [b"\xFF\xFE ", PROVIDER_KEY.as_bytes(), b"\xFF"].concat()),
        Script::body(200, "application/json", format!("{{\"x\":\"{PROVIDER_KEY}\"}}")),
        openai::completion(&quoted),
        openai::server_error().header("retry-after", PROVIDER_KEY),
        openai::server_error().header("content-type", &format!("text/{PROVIDER_KEY}")),
        openai::completion("x").header("x-echo", PROVIDER_KEY),
        fault::redirect(&format!("/v1?key={PROVIDER_KEY}")),
        openai::stream([openai::text(&quoted), openai::finish(PROVIDER_KEY)]),
        error_event(&quoted),
        error_event("sk-provi*****ghij"),
        Script::events([openai::text("a"), openai::event(PROVIDER_KEY)]),
        Script::events([
            openai::text("a"),
            openai::event(&format!("{{\"choices\":\"{PROVIDER_KEY}\"}}")),
        ]),
        Script::events([format!(
            "event: {PROVIDER_KEY}\nid: {PROVIDER_KEY}\n: {PROVIDER_KEY}\ndata: {{\"choices\":[]}}\n\n"
        )]),
        Script::raw(format!("HTTP/1.1 200 {PROVIDER_KEY}\r\n{PROVIDER_KEY}: x\r\n\u{7F}\r\n\r\n")),
        openai::text_stream([PROVIDER_KEY]).only(2).then(Step::Reset),
        fault::stall_before_head(),
        fault::cut_mid_json(),
    ];
    scripts.extend([openai::completion("fine"), openai::text_stream(["fine"])]);
    scripts
}

/// The call's whole answer, heads and all.
async fn answered(call: Call) -> Vec<u8> {
    let answer = read(call).await;
    let heads = format!("{:?}\n", answer.headers);
    [heads.as_bytes(), &answer.body].concat()
}

fn assert_absent(what: &str, bytes: &[u8], secret: &str) {
    let found = memchr::memmem::find(bytes, secret.as_bytes());
    assert!(found.is_none(), "{what}: {}", String::from_utf8_lossy(bytes));
}

#[tokio::test]
async fn tokens_and_keys_stay_where_they_belong() {
    let log = Log::default();
    let config = TelemetryConfig { log: "trace".to_owned(), ..TelemetryConfig::default() };
    let (telemetry, dispatch) = Telemetry::build(&config, log.clone(), false).unwrap();
    // This test's runtime has no other thread than this one.
    let logging = tracing::dispatcher::set_default(&dispatch);

    let app = TestApp::with(impatient).await;
    let token = app.token("alice", "pro", &["model:reasoning"]);
    let client = app.stranger().with_token(token.as_str());
    let mut seen = Vec::new();
    for stream in [false, true] {
        let mut body = chat(stream);
        body["messages"][0]["content"] = PROMPT.into();
        for script in scripts() {
            app.upstream.enqueue(script);
            seen.push(answered(client.post(PATH).json(&body)).await);
        }
        app.upstream.respond_with(echo);
        seen.push(answered(client.post(PATH).json(&body)).await);
        // The token, wherever else a confused client puts it.
        body["user"] = token.clone().into();
        body["messages"] = json!([{ "role": "user", "content": format!("Bearer {token}") }]);
        let call =
            client.post(PATH).json(&body).header("x-api-key", &token).header("cookie", &token);
        seen.push(answered(call).await);
        body["model"] = "other".into();
        seen.push(answered(client.post(PATH).json(&body)).await);
    }
    app.until_idle().await;
    let rows = app.audit_rows().await;
    let requests = app.upstream.requests();
    app.shutdown().await;
    drop(logging);
    drop((telemetry, dispatch));

    let [header, claims, signature]: [&str; 3] =
        token.split('.').collect::<Vec<_>>().try_into().unwrap();
    assert!(requests.len() > 40 && seen.len() > 40 && rows.len() > 80);
    for request in &requests {
        assert_eq!(request.header("authorization"), Some(&*format!("Bearer {PROVIDER_KEY}")));
        for part in [&token, header, claims, signature] {
            assert!(!request.contains(part), "{request:?}");
        }
    }
    let rows = serde_json::to_string(&rows).unwrap();
    let log = log.text();
    assert!(log.contains("no answer") && log.contains("a stream broke off"), "{log}");
    for secret in [PROVIDER_KEY, signature, PROMPT] {
        assert_absent("the log", log.as_bytes(), secret);
        assert_absent("the audit", rows.as_bytes(), secret);
    }
    for answer in &seen {
        assert_absent("an answer", answer, PROVIDER_KEY);
        assert_absent("an answer", answer, "sk-provi");
        assert_absent("an answer", answer, "ghij");
    }
}

/// A 401 whose message is this JSON text; gives what the client reads of it.
async fn refused_with(status: u16, message: &str) -> String {
    let app = TestApp::start().await;
    let body =
        format!(r#"{{"error":{{"message":"{message}","type":"t","param":null,"code":"c"}}}}"#);
    app.upstream.enqueue(Script::body(status, "application/json", body));
    let answer = read(app.alice().post(PATH).json(&chat(false))).await;
    app.shutdown().await;
    assert_eq!(answer.status, status);
    let body: Value = serde_json::from_slice(&answer.body).expect("it is still JSON");
    body["error"]["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_key_that_a_refusal_quotes_is_hidden_whole_or_masked() {
    let hidden = "[REDACTED:provider-key]";
    for (quoted, shown) in [
        (PROVIDER_KEY, hidden.to_owned()),
        ("key: sk-provi************ghij.", format!("key: {hidden}.")),
        ("key:\\nsk-provi****ghij\\n", format!("key:\n{hidden}\n")),
        ("sk-p...ghij", hidden.to_owned()),
        ("sk-...ghij!", format!("{hidden}!")),
        ("sk-p…ghij", hidden.to_owned()),
        ("sk-p\\u2026ghij", hidden.to_owned()),
        ("••••ghij", hidden.to_owned()),
        ("****************ghij", hidden.to_owned()),
        ("sk-XXXXXXXXghij", hidden.to_owned()),
        ("\\u0073k-provider-0123456789abcdefghij", hidden.to_owned()),
        ("two: sk-p***ij, sk-p...ij", format!("two: {hidden}, {hidden}")),
    ] {
        assert_eq!(refused_with(401, quoted).await, shown, "{quoted}");
    }
    assert_eq!(
        refused_with(429, "key sk-provi***ghij is busy").await,
        format!("key {hidden} is busy")
    );
}

#[tokio::test]
async fn a_refusal_that_quotes_no_key_is_left_as_it_is() {
    for message in ["a ** b *** c", "wait...", "Use **bold**", "so ... on", "Rate limit of the key"]
    {
        assert_eq!(refused_with(400, message).await, message);
    }
}

/// Such "keys" are given to servers that want none; they are words like others.
#[tokio::test]
async fn a_key_too_short_to_be_secret_is_no_reason_to_change_an_answer() {
    let app =
        TestApp::with(|config| config.providers[0].api_key = Some("EMPTY".to_owned().into())).await;
    for script in [openai::completion("The list is EMPTY."), openai::text_stream(["EMPTY"])] {
        let stream = script.sent().starts_with(b"data:");
        app.upstream.enqueue(script);
        let answer = read(app.alice().post(PATH).json(&chat(stream))).await;
        assert!(memchr::memmem::find(&answer.body, b"EMPTY").is_some(), "{answer:?}");
    }
    app.shutdown().await;
}

#[tokio::test]
async fn a_key_cut_in_two_by_the_network_is_hidden_all_the_same() {
    let app = TestApp::start().await;
    for script in [openai::text_stream([PROVIDER_KEY]), openai::completion(PROVIDER_KEY)] {
        for size in [1, 7, 16] {
            let stream = script.sent().starts_with(b"data:");
            let script = script.clone().framing(crate::support::upstream::Framing::Chunked);
            app.upstream.enqueue(script.split_every(size));
            let answer = read(app.alice().post(PATH).json(&chat(stream))).await;
            assert_absent("an answer", &answer.body, PROVIDER_KEY);
            assert!(memchr::memmem::find(&answer.body, b"provider-key").is_some(), "{answer:?}");
        }
    }
    app.shutdown().await;
}
