//! No operation without a token, none without the capability, nothing open that is not listed.

use std::{collections::BTreeSet, fs};

use http::Method;
use serde::Deserialize;
use serde_json::json;

use super::{committed, operations, root};
use crate::support::{
    app::TestApp,
    client::{Client, Response},
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exceptions {
    operations: Vec<OperationException>,
    open: Vec<OpenRoute>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OperationException {
    id: String,
    /// What a token without any capability gets.
    status: u16,
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OpenRoute {
    path: String,
    status: u16,
    reason: String,
}

fn exceptions() -> Exceptions {
    let path = root().join("tests/it/contract/authz_exceptions.toml");
    let exceptions: Exceptions = toml::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let reasons = exceptions.operations.iter().map(|one| &one.reason);
    for reason in reasons.chain(exceptions.open.iter().map(|one| &one.reason)) {
        assert!(reason.len() > 10, "an exception has a reason: {reason:?}");
    }
    exceptions
}

/// A gateway that has the model of the document's examples.
async fn app() -> TestApp {
    TestApp::with(|config| config.models[0].name = "demo".to_owned()).await
}

async fn assert_refused(response: Response, status: u16, code: &str, what: &str) {
    assert_eq!(response.status, status, "{what}");
    let challenge = response.header("www-authenticate").map(str::to_owned);
    assert_eq!(challenge.is_some(), status == 401, "{what}: {challenge:?}");
    if let Some(challenge) = challenge {
        assert!(challenge.starts_with("Bearer"), "{what}: {challenge}");
    }
    assert_eq!(response.json().await["error"]["code"], code, "{what}");
}

#[tokio::test]
async fn every_operation_refuses_a_call_without_a_good_token() {
    let (document, app) = (committed(), app().await);
    let good = app.token("alice", "pro", &["model:reasoning"]);
    let (head, _) = good.rsplit_once('.').unwrap();
    let (unsigned, alien) = (format!("{head}."), format!("{head}.{}", "A".repeat(86)));
    for operation in operations(&document) {
        let what = format!("{} {}", operation.method, operation.path);
        let call = |client: &Client| operation.example_call(&document, client);
        let response = call(&app.stranger()).send().await;
        assert_refused(response, 401, "missing_token", &what).await;
        for garbage in ["garbage", "a.b.c", &unsigned, &alien, &"x".repeat(9_000)] {
            let response = call(&app.stranger().with_token(garbage)).send().await;
            assert_refused(response, 401, "invalid_token", &what).await;
        }
        // A good token elsewhere than where it belongs is none.
        let path = format!("{}?access_token={good}", operation.example_path());
        let response = app.stranger().request(operation.method.clone(), &path).send().await;
        assert_refused(response, 401, "missing_token", &what).await;
        for scheme in ["Basic", "Token", "Bear"] {
            let header = format!("{scheme} {good}");
            let response = call(&app.stranger()).header("authorization", &header).send().await;
            assert_eq!(response.status, 401, "{what} with {scheme}");
        }
    }
    assert_eq!(app.upstream.counts().requests, 0, "nothing has left");
    app.shutdown().await;
}

#[tokio::test]
async fn every_operation_refuses_a_token_without_the_capability() {
    let (document, app, exceptions) = (committed(), app().await, exceptions());
    let mut unused: BTreeSet<&str> =
        exceptions.operations.iter().map(|exception| &*exception.id).collect();
    for operation in operations(&document) {
        let what = format!("{} {}", operation.method, operation.path);
        let nobody = app.caller("mallory", "pro", &[]);
        let response = operation.example_call(&document, &nobody).send().await;
        let exception = exceptions.operations.iter().find(|one| one.id == operation.id);
        let Some(exception) = exception else {
            assert_refused(response, 403, "capability_denied", &what).await;
            // A capability, but not the one.
            let other = app.caller("mallory", "pro", &["fleet:read"]);
            let response = operation.example_call(&document, &other).send().await;
            assert_refused(response, 403, "capability_denied", &what).await;
            continue;
        };
        unused.remove(&*exception.id);
        assert_eq!(response.status, exception.status, "{what} is an exception otherwise");
        if operation.id == "list_models" {
            assert_eq!(response.json().await["data"], json!([]), "{what}");
        }
    }
    assert!(unused.is_empty(), "authz_exceptions.toml names what there is not: {unused:?}");
    assert_eq!(app.upstream.counts().requests, 0, "nothing has left");
    app.shutdown().await;
}

#[tokio::test]
async fn a_stream_is_nobodys_but_its_owners() {
    let app = app().await;
    let body = json!({ "model": "demo", "messages": [] });
    let response = app.alice().post("/v1/streams").json(&body).send().await;
    let location = response.header("location").expect("where it is").to_owned();
    response.bytes().await;
    // The same subject's name at another tier is the same subject; another subject is not.
    let every = ["model:reasoning", "model:embedding", "fleet:read", "audit:read"];
    for method in [Method::GET, Method::DELETE] {
        let mallory = app.caller("mallory", "pro", &every);
        let response = mallory.request(method, &location).send().await;
        assert_refused(response, 404, "stream_gone", &location).await;
    }
    let response = app.caller("alice", "tight", &[]).get(&location).send().await;
    assert_eq!(response.status, 200);
    response.bytes().await;
    app.shutdown().await;
}

#[tokio::test]
async fn nothing_is_open_but_what_is_listed() {
    let app = TestApp::start().await;
    for OpenRoute { path, status, .. } in exceptions().open {
        let response = app.stranger().get(&path).send().await;
        assert_eq!(response.status, status, "{path} is listed as open");
    }
    let closed = [
        "/",
        "/metrics",
        "/livez",
        "/readyz",
        "/health",
        "/healthz",
        "/status",
        "/debug/pprof",
        "/admin",
        "/v1",
        "/v1/",
        "/v1/chat",
        "/v1/models/",
        "/v1/streams/",
        "/v1/audit/",
        "/v1/runs",
        "/v1/tools",
        "/v1/approvals",
        "/mcp",
        "/.well-known/jwks.json",
        "/.well-known/agent-card.json",
        "/v1/../livez",
        "/openapi.yaml",
        "//metrics",
        "/%2e%2e/livez",
    ];
    for path in closed {
        for client in [app.stranger(), app.alice()] {
            for method in [Method::GET, Method::POST, Method::HEAD] {
                let response = client.request(method.clone(), path).send().await;
                assert_eq!(response.status, 404, "{method} {path}");
                let source = response.header("x-tollgate-source");
                assert_eq!(source, Some("gateway"), "{method} {path}: an error like any other");
                let shape = response.header("content-type").unwrap_or_default();
                assert!(shape.starts_with("application/"), "{method} {path}: {shape}");
            }
        }
    }
    app.shutdown().await;
}

#[tokio::test]
async fn no_other_method_of_a_documented_path_is_open() {
    let (document, app) = (committed(), app().await);
    let methods = ["GET", "HEAD", "PUT", "POST", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"];
    for operation in operations(&document) {
        for method in methods {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let response =
                app.stranger().request(method.clone(), &operation.example_path()).send().await;
            let status = response.status.as_u16();
            assert!(matches!(status, 401 | 405), "{method} {}: {status}", operation.path);
        }
    }
    app.shutdown().await;
}

#[tokio::test]
async fn the_admin_port_serves_health_and_nothing_else() {
    let app = TestApp::start().await;
    let admin = Client::new(app.admin_address());
    for path in ["/livez", "/readyz"] {
        assert_eq!(admin.get(path).send().await.status, 200, "{path}");
    }
    for operation in operations(&committed()) {
        let call = admin.clone().with_token(app.token("alice", "pro", &["model:reasoning"]));
        let response =
            call.request(operation.method.clone(), &operation.example_path()).send().await;
        assert_eq!(response.status, 404, "{} on the admin port", operation.path);
    }
    app.shutdown().await;
}
