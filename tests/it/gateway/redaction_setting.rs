//! `[redaction]` of a gateway that runs: reloads, the key, and what `/metrics` says.

use serde_json::{Value, json};
use tollgate::config::{Config, OwnRuleConfig};

use super::seen::{PATH, read};
use crate::support::{
    app::TestApp,
    client::Client,
    secret::{aws_key, github_token},
    upstream::openai,
};

const ACME: &str = "acme_0123456789ab";

fn acme_rule() -> OwnRuleConfig {
    OwnRuleConfig {
        name: "acme-key".to_owned(),
        prefixes: vec!["acme_".to_owned()],
        pattern: "acme_[0-9a-f]{12}".to_owned(),
        max: None,
        boundary: true,
        needs: Vec::new(),
        entropy: None,
        allow: Vec::new(),
        source: None,
    }
}

/// What the provider gets for this text.
async fn sent(app: &TestApp, text: &str) -> String {
    let body = json!({ "model": "m", "messages": [{ "role": "user", "content": text }] });
    assert_eq!(read(app.alice().post(PATH).json(&body)).await.status, 200);
    let requests = app.upstream.requests();
    let body: Value = requests.last().unwrap().json();
    body["messages"][0]["content"].as_str().unwrap().to_owned()
}

fn with_rule(app: &TestApp) -> Config {
    let mut config = app.config.clone();
    config.redaction.rules.push(acme_rule());
    config
}

#[tokio::test]
async fn rules_and_the_allow_list_are_live_and_the_key_outlives_a_reload() {
    let app = TestApp::start().await;
    let text = format!("{} {ACME}", aws_key());
    let before = sent(&app, &text).await;
    assert!(before.starts_with("[REDACTED:aws") && before.ends_with(ACME), "{before}");

    std::fs::remove_file(app.config.audit.path.with_file_name("redaction.key")).unwrap();
    let mut config = with_rule(&app);
    app.reload(&config);
    let after = sent(&app, &text).await;
    assert_eq!(after.split_once(' ').unwrap().0, before.split_once(' ').unwrap().0);
    assert!(after.contains(" [REDACTED:acme-key:"), "{after}");

    let allowed = vec![aws_key().into()];
    config.redaction.allow.insert("aws-access-key-id".to_owned(), allowed);
    app.reload(&config);
    assert!(sent(&app, &text).await.starts_with(&aws_key()));

    config.redaction.rules[0].pattern = "acme_[".to_owned();
    let error = app.try_reload(&config).unwrap_err().to_string();
    assert!(error.starts_with("redaction.rules[0]: rule `acme-key`: "), "{error}");
    assert!(sent(&app, &text).await.starts_with(&aws_key()), "the running one stays");
    app.shutdown().await;
}

#[tokio::test]
async fn metrics_count_by_rule_and_direction() {
    let app = TestApp::with(|config| config.redaction.rules.push(acme_rule())).await;
    let admin = Client::new(app.admin_address());
    let metrics = async || admin.get("/metrics").send().await.text().await;
    assert!(metrics().await.contains("# TYPE tollgate_redactions_total counter\n"));
    app.upstream.enqueue(openai::completion(&format!("here: {}", github_token())));
    sent(&app, &format!("{ACME} {ACME}")).await;
    app.upstream.enqueue(openai::text_stream([&*github_token(), " and ", &*github_token()]));
    let body = json!({ "model": "m", "stream": true, "messages": [] });
    read(app.alice().post(PATH).json(&body)).await;
    app.until_idle().await;
    let text = metrics().await;
    let lines: Vec<&str> =
        text.lines().filter(|line| line.starts_with("tollgate_redactions_total{")).collect();
    let expected = [
        "tollgate_redactions_total{rule=\"acme-key\",direction=\"request\"} 2",
        "tollgate_redactions_total{rule=\"github-token\",direction=\"response\"} 3",
    ];
    assert_eq!(lines, expected, "{text}");
    let rows = app.audit_rows().await;
    let counts: Vec<Value> = rows.iter().filter_map(|row| row.redactions.clone()).collect();
    assert_eq!(counts, [json!({ "acme-key": 2, "github-token": 1 }), json!({ "github-token": 2 })]);
    app.shutdown().await;
}
