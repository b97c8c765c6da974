//! Secrets in requests do not leave, wherever they stand and however they are spelled.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tollgate::{
    config::RequestRedaction,
    domain::Kind,
    offload::{Lost, Offload},
    redact::RedactError,
};

use crate::support::{app::TestApp, upstream::openai};

use super::seen::{PATH, read};

/// One of each kind, and the rule that knows it. The mark is taken out when they are used: with
/// it they are nobody's keys, to hosts of sources either.
const SECRETS: [(&str, &str); 5] = [
    ("github-token", "ghp_⁞q7Xw2Lr9Zt4Vb6Nm1Kp8Jc3Hd5Gf0SaYePu2"),
    ("aws-access-key-id", "AKIA⁞Q3EGR7ZTJ2K5WLMN"),
    ("slack-bot-token", "xoxb-⁞7391845026173-7391845026174-q7Xw2Lr9Zt4Vb6Nm1Kp8Jc3H"),
    ("gitlab-token", "glpat-⁞q7Xw2Lr9Zt4Vb6Nm1Kp8"),
    ("stripe-live-key", "sk_live_⁞q7Xw2Lr9Zt4Vb6Nm1Kp8Jc3H"),
];

fn secrets() -> [String; 5] {
    SECRETS.map(|(_, secret)| secret.replace('⁞', ""))
}

/// Each place of a request that may have a secret, for which `@` stands.
const EVERYWHERE: &str = r#"{ "model": "m", "stream": STREAM, "user": "@", "seed": 1.50,
 "messages": [
  { "role": "system", "content": "use\n@" },
  { "role": "user", "content": [{ "type": "text", "text": "curl -H 'x-key: @'" }, { "type": "x", "x_unknown": { "@": ["@"] } }] },
  { "role": "assistant", "reasoning_content": "@", "tool_calls": [{ "id": "@", "type": "function", "function": { "name": "f", "arguments": "{\"token\":\"@\",\"path\":\"C:\\\\new\\n\"}" } }] },
  { "role": "tool", "tool_call_id": "c", "content": "[\"{\\\"deep\\\":\\\"@\\\"}\"]" }
 ],
 "tools": [{ "type": "function", "function": { "name": "f", "description": "@", "parameters": { "properties": { "@": { "enum": ["@"], "default": "@" } } } } }],
 "metadata": { "@": "as a name", "b": "@" }, "x_unknown": [{ "@": null }, "@"]
}"#;

fn everywhere(stream: bool, secret: &str) -> String {
    EVERYWHERE.replace("STREAM", &stream.to_string()).replace('@', secret)
}

/// A secret in other spellings, as they stand in JSON.
fn spellings(secret: &str) -> Vec<String> {
    let escaped = |from: usize| -> String {
        let spell = |(at, c): (usize, char)| {
            if at % 5 == from { format!("\\u{:04x}", c as u32) } else { c.to_string() }
        };
        secret.chars().enumerate().map(spell).collect()
    };
    let percent: String = secret
        .bytes()
        .flat_map(|byte| format!("%{byte:02x}").into_bytes())
        .map(char::from)
        .collect();
    vec![
        escaped(0),
        escaped(3).replace('\\', "\\\\"),
        percent,
        STANDARD.encode(secret),
        format!("{}\u{200b}{}", &secret[..2], &secret[2..]),
        format!("{}\\u2060{}", &secret[..3], &secret[3..]),
    ]
}

fn assert_absent(what: &str, bytes: &[u8], secrets: &[String]) {
    for secret in secrets {
        let found = memchr::memmem::find(bytes, secret.as_bytes());
        assert!(found.is_none(), "{what}: {}", String::from_utf8_lossy(bytes));
    }
}

#[tokio::test]
async fn secrets_anywhere_in_a_request_are_taken_out_and_counted() {
    let places = u32::try_from(EVERYWHERE.matches('@').count()).unwrap();
    for ((rule, _), secret) in SECRETS.into_iter().zip(secrets()) {
        for stream in [false, true] {
            let app = TestApp::start().await;
            let answer = read(
                app.alice()
                    .post(PATH)
                    .header("content-type", "application/json")
                    .body(everywhere(stream, &secret)),
            )
            .await;
            assert_eq!(answer.status, 200);
            let sent = app.upstream.request();
            let placeholder = sent.json()["user"].as_str().unwrap().to_owned();
            assert!(placeholder.starts_with(&format!("[REDACTED:{rule}:")), "{placeholder}");
            // Every other byte is the caller's.
            let expected = everywhere(stream, &placeholder)
                .replace(r#""model": "m""#, r#""model": "upstream-m""#);
            let got = sent
                .body
                .strip_prefix(b"{\"stream_options\":{\"include_usage\":true},")
                .map(|rest| [b"{", rest].concat());
            let got = got.unwrap_or_else(|| sent.body.to_vec());
            assert_eq!(String::from_utf8(got).unwrap(), expected);

            let seen = answer.recorded(&app).await;
            assert_eq!(seen.terminal.redactions, Some(json!({ rule: places })));
            let rows = serde_json::to_vec(&app.audit_rows().await).unwrap();
            assert_absent("the audit", &rows, std::slice::from_ref(&secret));
            assert_absent("the answer", &seen.body, std::slice::from_ref(&secret));
            app.shutdown().await;
        }
    }
}

#[tokio::test]
async fn no_spelling_hides_a_secret() {
    let app = TestApp::start().await;
    for secret in secrets() {
        let texts = spellings(&secret);
        let body = format!(
            r#"{{"model":"m","messages":[{{"content":"{}"}}],"user":"x {} y"}}"#,
            texts.join(" "),
            texts.join("&k=")
        );
        assert_eq!(
            read(app.alice().post(PATH).header("content-type", "application/json").body(body))
                .await
                .status,
            200
        );
        let sent = app.upstream.requests().pop().unwrap();
        assert_absent("the upstream", &sent.body, std::slice::from_ref(&secret));
        assert_absent("the upstream", &sent.body, &texts);
        let sent = sent.json();
        let content = sent["messages"][0]["content"].as_str().unwrap();
        let placeholders: Vec<&str> = content.split(' ').collect();
        assert_eq!(placeholders.len(), texts.len());
        let first = placeholders[0];
        assert!(
            first.starts_with("[REDACTED:") && placeholders.iter().all(|one| *one == first),
            "{content}"
        );
        assert_eq!(sent["user"], format!("x {} y", vec![first; texts.len()].join("&k=")));
    }
    app.shutdown().await;
}

#[tokio::test]
async fn a_body_without_secrets_and_an_image_reach_the_provider_byte_for_byte() {
    let image =
        STANDARD.encode([b"\0\x01\x02".repeat(50), secrets().concat().into_bytes()].concat());
    let body = format!(
        "{{ \"messages\" : [ {{\"content\":[{{\"type\":\"image_url\",\"image_url\":{{\"url\":\"data:image/png;base64,{image}\"}}}}, \
         {{\"type\":\"text\",\"text\":\"\\u0041 C:\\\\new \\/ %20 sk-short\"}}]}} ],\n\"model\":\"m\",\"temperature\":1.0,\"n\":1e0 }}"
    );
    let app = TestApp::start().await;
    assert_eq!(
        read(app.alice().post(PATH).header("content-type", "application/json").body(body.clone()))
            .await
            .status,
        200
    );
    let sent = app.upstream.request();
    let expected = body.replace("\"model\":\"m\"", "\"model\":\"upstream-m\"");
    assert_eq!(String::from_utf8(sent.body.to_vec()).unwrap(), expected);
    app.shutdown().await;
}

/// Such bodies are redacted on another thread.
#[tokio::test]
async fn secrets_in_a_large_request_are_taken_out() {
    let app = TestApp::start().await;
    let [github, aws, ..] = secrets();
    let filler = "It was a long day, and nothing was found.\n".repeat(6_000);
    for stream in [false, true] {
        let body = json!({ "model": "m", "stream": stream, "messages": [
            { "content": format!("{github}\n{filler}{aws}") }, { "content": filler }, { "content": github },
        ] });
        assert_eq!(read(app.alice().post(PATH).json(&body)).await.status, 200);
        let sent = app.upstream.requests().pop().unwrap();
        assert!(sent.body.len() > 500_000);
        assert_absent("the upstream", &sent.body, &secrets());
        assert_eq!(sent.json()["messages"][1]["content"], filler);
    }
    app.shutdown().await;
}

#[tokio::test]
async fn where_secrets_are_blocked_nothing_leaves() {
    for (stream, filler) in [(false, 0), (true, 0), (false, 100_000)] {
        let app = TestApp::with(|config| config.redaction.requests = RequestRedaction::Block).await;
        let [github, aws, ..] = secrets();
        let body = json!({ "model": "m", "stream": stream, "messages": [
            { "role": "user", "content": [{ "type": "text", "text": format!("{}{github}", " ".repeat(filler)) }] },
        ], "metadata": { &aws: STANDARD.encode(&aws) } });
        let answer = read(app.alice().post(PATH).json(&body)).await;
        let seen = answer.recorded(&app).await;
        assert_eq!((seen.status, seen.error()), (400, ("secret_in_request".to_owned(), "gateway")));
        assert_eq!(seen.row(), ("denied", "secret_in_request", 400, None));
        let error: Value = serde_json::from_slice(&seen.body).unwrap();
        let message = "The request holds secrets: github-token at `messages[0].content[0].text`, \
                       aws-access-key-id at `metadata.…`. Take them out.";
        assert_eq!(error["error"]["message"], message);
        assert_eq!(error["error"]["param"], "messages[0].content[0].text");
        let rows = serde_json::to_vec(&app.audit_rows().await).unwrap();
        for secret in [github, STANDARD.encode(&aws), aws] {
            assert_absent("the answer", &seen.body, std::slice::from_ref(&secret));
            assert_absent("the audit", &rows, std::slice::from_ref(&secret));
        }
        let counts = json!({ "github-token": 1, "aws-access-key-id": 2 });
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

#[tokio::test]
async fn work_that_panics_on_another_thread_fails_and_gives_its_slot_back() {
    let offload = Offload::new(1);
    for _ in 0..3 {
        assert_eq!(offload.run(|| -> u32 { panic!("a bug") }).await, Err(Lost));
        assert_eq!(offload.run(|| 1).await, Ok(1));
    }
    let denial = RedactError::Failed.to_denial();
    assert_eq!(denial.kind, Kind::Internal);
    assert!(RedactError::Failed.counts().is_empty());
}

#[tokio::test]
async fn no_more_work_runs_at_once_than_there_are_slots() {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    };
    let offload = Offload::new(2);
    let running = Arc::new(AtomicUsize::new(0));
    let (go, gate) = mpsc::channel::<()>();
    let gate = Arc::new(std::sync::Mutex::new(gate));
    let calls: Vec<_> = (0..6)
        .map(|_| {
            let (offload, running, gate) =
                (offload.clone(), Arc::clone(&running), Arc::clone(&gate));
            tokio::spawn(async move {
                let work = move || {
                    let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                    gate.lock().unwrap().recv().unwrap();
                    running.fetch_sub(1, Ordering::SeqCst);
                    now
                };
                offload.run(work).await.unwrap()
            })
        })
        .collect();
    // Who gives up waiting takes no slot with it.
    calls[5].abort();
    for _ in 0..6 {
        go.send(()).unwrap();
    }
    for call in calls {
        if let Ok(at_once) = call.await {
            assert!((1..=2).contains(&at_once), "{at_once}");
        }
    }
    assert_eq!(offload.run(|| 1).await, Ok(1));
}
