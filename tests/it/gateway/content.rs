//! Prompts and answers in the audit trail: their hashes always, their beginnings where asked for.

use aws_lc_rs::digest::{SHA256, digest};
use serde_json::{Value, json};
use tollgate::config::{AuditContent, ResponseRedaction};

use crate::support::{
    app::{TestApp, chat},
    secret::aws_key,
    upstream::openai,
};

fn sha256(text: &str) -> String {
    format!("{:?}", digest(&SHA256, text.as_bytes())).replace("SHA256:", "")
}

async fn app(content: AuditContent) -> TestApp {
    TestApp::with(|config| config.audit.content = content).await
}

async fn entries(app: &TestApp, query: &str) -> Vec<Value> {
    app.audit_rows_once(2).await;
    let auditor = app.caller("auditor", "pro", &["audit:read", "audit:content"]);
    let response = auditor.get(&format!("/v1/audit?kind=settle{query}")).send().await;
    assert_eq!(response.status, 200);
    response.json().await["data"].as_array().unwrap().clone()
}

#[tokio::test]
async fn without_content_the_rows_have_its_hashes_and_nothing_is_kept() {
    let app = app(AuditContent::None).await;
    let body = chat(false).to_string();
    let call = app.alice().post("/v1/chat/completions").json(&chat(false));
    let answer = call.send().await.json().await;
    let text = answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
    let [entry] = &entries(&app, "&content=true").await[..] else { panic!("one call") };
    assert_eq!(entry["input_hash"], sha256(&body));
    assert_eq!(entry["input_bytes"], body.len());
    assert_eq!(entry["output_hash"], sha256(&text));
    assert_eq!(entry["output_bytes"], text.len());
    assert_eq!((entry.get("input"), entry.get("output")), (None, None));
    app.shutdown().await;
}

#[tokio::test]
async fn with_content_what_was_asked_and_answered_can_be_read_without_its_secrets() {
    let (app, key) = (app(AuditContent::Redacted).await, aws_key());
    for stream in [false, true] {
        let mut body = chat(stream);
        body["messages"][0]["content"] = json!(format!("My key is {key}"));
        let response = app.alice().post("/v1/chat/completions").json(&body).send().await;
        assert_eq!(response.status, 200);
        response.bytes().await;
    }
    app.audit_rows_once(4).await;
    let found = entries(&app, "&content=true").await;
    assert_eq!(found.len(), 2);
    for entry in &found {
        let (asked, answered) = (&entry["input"], &entry["output"]);
        let text = asked["text"].as_str().unwrap();
        assert!(text.contains("My key is [REDACTED:") && !text.contains(&key), "{text}");
        assert_eq!(entry["input_hash"], sha256(text));
        assert_eq!((&asked["bytes"], &asked["truncated"]), (&json!(text.len()), &json!(false)));
        let text = answered["text"].as_str().unwrap();
        assert!(!text.is_empty() && !text.starts_with('{'), "{text}");
        assert_eq!(entry["output_hash"], sha256(text));
    }
    let plain = entries(&app, "").await;
    assert_eq!(plain[0].get("input"), None, "only when it is asked for");
    app.shutdown().await;
}

#[tokio::test]
async fn reading_content_takes_a_capability_of_its_own() {
    let app = app(AuditContent::Redacted).await;
    let call = app.alice().post("/v1/chat/completions").header("x-run-id", "r");
    call.json(&chat(false)).send().await.bytes().await;
    app.audit_rows_once(2).await;
    for path in ["/v1/audit?content=true", "/v1/runs/r?content=true"] {
        let reader = app.caller("reader", "pro", &["audit:read"]);
        let response = reader.get(path).send().await;
        assert_eq!(response.status, 403, "{path}");
        let body = response.json().await;
        assert!(body["error"]["message"].as_str().unwrap().contains("`audit:content`"), "{body}");
        let auditor = app.caller("auditor", "pro", &["audit:read", "audit:content"]);
        let told = auditor.get(path).send().await.text().await;
        assert!(told.contains("\"input\":{\"text\":"), "{told}");
        // The other one alone reads nothing.
        let other = app.caller("other", "pro", &["audit:content"]);
        assert_eq!(other.get(path).send().await.status, 403);
    }
    app.shutdown().await;
}

#[tokio::test]
async fn a_long_prompt_is_cut_and_its_hash_is_of_the_whole() {
    let app = app(AuditContent::Redacted).await;
    let mut body = chat(false);
    body["messages"][0]["content"] = json!("word ".repeat(30_000));
    let response = app.alice().post("/v1/chat/completions").json(&body).send().await;
    assert_eq!(response.status, 200);
    let [entry] = &entries(&app, "&content=true").await[..] else { panic!("one call") };
    assert_eq!(entry["input_hash"], sha256(&body.to_string()));
    assert_eq!(entry["input_bytes"], body.to_string().len());
    assert_eq!(entry["input"]["truncated"], true);
    let text = entry["input"]["text"].as_str().unwrap();
    assert!(
        text.len() <= 64 << 10 && text.contains("\u{1e}truncated: the first "),
        "{}",
        text.len()
    );
    app.shutdown().await;
}

#[tokio::test]
async fn answers_that_pass_with_their_secrets_are_kept_without_them() {
    let app = TestApp::with(|config| {
        config.audit.content = AuditContent::Redacted;
        config.redaction.responses = ResponseRedaction::Off;
    })
    .await;
    let key = aws_key();
    app.upstream.enqueue(openai::completion(&format!("Take {key} with you")));
    let response = app.alice().post("/v1/chat/completions").json(&chat(false)).send().await;
    assert!(response.text().await.contains(&key));
    let [entry] = &entries(&app, "&content=true").await[..] else { panic!("one call") };
    let text = entry["output"]["text"].as_str().unwrap();
    assert!(text.contains("[REDACTED:") && !text.contains(&key), "{text}");
    app.shutdown().await;
}
