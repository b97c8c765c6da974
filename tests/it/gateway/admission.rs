//! What is turned away before any work is done for it.

use std::time::Duration;

use serde_json::{Value, json};
use tollgate::audit::StoredEntry;

use crate::support::{
    app::{TestApp, chat},
    client::{Client, RawConnection, Response},
    upstream::fault,
};

const CHAT: &str = "/v1/chat/completions";

async fn post(client: &Client, stream: bool) -> Response {
    client.post(CHAT).json(&chat(stream)).send().await
}

async fn code(response: Response) -> Value {
    response.json().await["error"]["code"].clone()
}

fn denials(rows: &[StoredEntry]) -> Vec<(Option<&str>, Option<i64>)> {
    let denied = rows.iter().filter(|row| row.kind == "denied");
    denied.map(|row| (row.outcome.as_deref(), row.status)).collect()
}

#[tokio::test]
async fn a_flood_without_tokens_is_limited_by_address_before_authentication() {
    let app = TestApp::with(|config| {
        config.admission.address_requests_per_second = 1;
        config.admission.address_burst = 3;
    })
    .await;
    for expected in [401, 401, 401] {
        assert_eq!(post(&app.stranger(), false).await.status, expected);
    }
    // Whatever it asks for, and whoever it is.
    for (client, path) in [(app.stranger(), "/openapi.json"), (app.alice(), "/v1/models")] {
        let refused = client.get(path).send().await;
        assert_eq!(refused.status, 429, "{path}");
        let seconds: u64 = refused.header("retry-after").expect("a time").parse().expect("seconds");
        assert!((1..=2).contains(&seconds), "{seconds}");
        assert_eq!(refused.header("x-tollgate-source"), Some("gateway"));
    }
    let rows = app.audit_rows_once(5).await;
    let missing = (Some("missing_token"), Some(401));
    let limited = (Some("rate_limited"), Some(429));
    assert_eq!(denials(&rows), [missing, missing, missing, limited, limited], "once each");
    assert_eq!(rows[4].subject, None, "nobody was authenticated");
    assert_eq!(rows[4].client_address.as_deref(), Some("127.0.0.1"));
    app.shutdown().await;
}

/// One request each of these `X-Forwarded-For`s, of which a single address may make one a minute.
async fn statuses_from(app: &TestApp, forwarded: &[&str]) -> Vec<u16> {
    let mut statuses = Vec::new();
    for forwarded in forwarded {
        let get = app.stranger().get("/v1/models").header("x-forwarded-for", forwarded);
        statuses.push(get.send().await.status.as_u16());
    }
    statuses
}

async fn one_request_each(trusted: &[&str]) -> TestApp {
    TestApp::with(|config| {
        config.admission.address_requests_per_second = 1;
        config.admission.address_burst = 1;
        config.server.trusted_proxies =
            trusted.iter().map(|net| net.parse().expect("a network")).collect();
    })
    .await
}

#[tokio::test]
async fn a_trusted_proxy_is_believed_as_to_the_last_address_that_is_none() {
    let app = one_request_each(&["127.0.0.0/8", "10.0.0.0/8"]).await;
    let statuses = statuses_from(
        &app,
        &[
            "192.0.2.1",
            "192.0.2.2, 10.0.0.1",
            "192.0.2.2",
            // What stands before it is its own word.
            "198.51.100.9, 192.0.2.1, 10.9.9.9",
            "203.0.113.7:4711",
            "203.0.113.7",
            "2001:db8::1",
            "[2001:db8:0:0:ffff::2]:443",
            "2001:db8:0:1::1",
            "::ffff:192.0.2.2",
        ],
    )
    .await;
    assert_eq!(statuses, [401, 401, 429, 429, 401, 429, 401, 429, 401, 429]);
    let rows = app.audit_rows_once(10).await;
    let addresses: Vec<_> = rows.iter().filter_map(|row| row.client_address.as_deref()).collect();
    assert_eq!(addresses[..4], ["192.0.2.1", "192.0.2.2", "192.0.2.2", "192.0.2.1"]);
    app.shutdown().await;
}

#[tokio::test]
async fn a_stranger_who_garbles_the_header_is_still_known_by_what_the_proxy_added() {
    let app = one_request_each(&["127.0.0.1/32"]).await;
    for (garbage, status) in [("\u{fffd}", "401"), ("x y z", "429"), (",,", "429")] {
        let mut connection = RawConnection::open(app.address()).await;
        let request = format!(
            "GET /v1/models HTTP/1.1\r\nhost: x\r\nx-forwarded-for: {garbage}, 192.0.2.1\r\n\r\n"
        );
        connection.send(request.as_bytes()).await.expect("sent");
        let head = connection.read_until(b"\r\n\r\n").await;
        let head = String::from_utf8_lossy(&head).into_owned();
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{garbage}: {head}");
    }
    app.shutdown().await;
}

#[tokio::test]
async fn nobody_but_a_trusted_proxy_is_believed() {
    let app = one_request_each(&["10.0.0.0/8"]).await;
    let statuses = statuses_from(&app, &["192.0.2.1", "192.0.2.2", "10.0.0.1"]).await;
    assert_eq!(statuses, [401, 429, 429]);
    app.shutdown().await;
}

#[tokio::test]
async fn a_callers_burst_is_its_own() {
    let app = TestApp::with(|config| {
        config.admission.caller_requests_per_second = 1;
        config.admission.caller_burst = 2;
    })
    .await;
    let (alice, bob) = (app.alice(), app.caller("bob", "pro", &["model:reasoning"]));
    for expected in [200, 200, 429] {
        assert_eq!(alice.get("/v1/models").send().await.status, expected);
    }
    // A fresh token does not help.
    let refused = app.caller("alice", "one", &[]).get("/v1/models").send().await;
    assert_eq!(refused.status, 429);
    assert!(refused.header("retry-after").is_some());
    assert_eq!(code(refused).await, "rate_limited");
    assert_eq!(post(&bob, false).await.status, 200, "at the same address");
    let rows = app.audit_rows_once(4).await;
    assert_eq!(denials(&rows), [(Some("rate_limited"), Some(429)); 2]);
    assert_eq!(rows[0].subject.as_deref(), Some("alice"));
    app.shutdown().await;
}

/// Writes a request by hand and reads the answer's head.
async fn raw(app: &TestApp, head: &str, body: &[u8]) -> String {
    let mut connection = RawConnection::open(app.address()).await;
    let token = app.token("alice", "pro", &["model:reasoning"]);
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\n{head}\r\n\r\n"
    );
    connection.send(head.as_bytes()).await.expect("sent");
    // The server may answer and close before it has read all.
    let _ = connection.send(body).await;
    String::from_utf8_lossy(&connection.read_until(b"\r\n\r\n").await).into_owned()
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_declared_or_not() {
    let app = TestApp::with(|config| config.server.body_limit_bytes = 1_000).await;
    let mut body = chat(false);
    let padding = 1_000 - body.to_string().len() - ",\"user\":\"\"".len();
    body["user"] = json!("x".repeat(padding));
    assert_eq!(body.to_string().len(), 1_000);
    assert_eq!(app.alice().post(CHAT).json(&body).send().await.status, 200, "just the limit");

    let declared = raw(&app, "content-length: 1001", b"").await;
    assert!(declared.starts_with("HTTP/1.1 413 "), "{declared}");
    let many = "2\r\n{ \r\n".repeat(501);
    let chunked = raw(&app, "transfer-encoding: chunked", many.as_bytes()).await;
    assert!(chunked.starts_with("HTTP/1.1 413 "), "{chunked}");
    let one = format!("3e9\r\n{}\r\n0\r\n\r\n", " ".repeat(1_001));
    let chunked = raw(&app, "transfer-encoding: chunked", one.as_bytes()).await;
    assert!(chunked.starts_with("HTTP/1.1 413 "), "{chunked}");
    for head in [declared, chunked] {
        assert!(head.contains("x-request-id: ") && head.contains("traceparent: "), "{head}");
    }
    let over = app.alice().http2().post(CHAT).body(" ".repeat(1_001));
    let response = over.header("content-type", "application/json").send().await;
    assert_eq!((response.status.as_u16(), code(response).await), (413, json!("body_too_large")));
    assert_eq!(app.upstream.requests().len(), 1);
    app.shutdown().await;
}

#[tokio::test]
async fn a_body_that_stops_coming_is_not_waited_for() {
    let app = TestApp::with(|config| config.server.body_idle_timeout_s = 1).await;
    let head = raw(&app, "content-length: 100", b"{\"model\":").await;
    assert!(head.starts_with("HTTP/1.1 408 "), "{head}");
    app.shutdown().await;
}

#[tokio::test]
async fn a_body_that_trickles_is_not_waited_for_for_ever() {
    let app = TestApp::with(|config| {
        config.server.body_idle_timeout_s = 5;
        config.server.request_timeout_s = 1;
    })
    .await;
    let mut connection = RawConnection::open(app.address()).await;
    let token = app.token("alice", "pro", &[]);
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: 1000000\r\n\r\n"
    );
    connection.send(head.as_bytes()).await.expect("sent");
    // A byte each 50 ms, until there is an answer.
    let answer = loop {
        connection.send(b" ").await.expect("sent");
        let pause = Duration::from_millis(50);
        if let Ok(answer) = tokio::time::timeout(pause, connection.read_until(b"\r\n\r\n")).await {
            break answer;
        }
    };
    assert!(answer.starts_with(b"HTTP/1.1 408 "), "{}", String::from_utf8_lossy(&answer));
    app.shutdown().await;
}

#[tokio::test]
async fn a_body_must_say_that_it_is_json_and_be_it() {
    let app = TestApp::start().await;
    let send = async |content_type: Option<&str>, body: &str| {
        let call = app.alice().post(CHAT).body(body.to_owned());
        let call = match content_type {
            Some(content_type) => call.header("content-type", content_type),
            None => call,
        };
        let response = call.send().await;
        let status = response.status.as_u16();
        let error = response.json().await["error"].clone();
        (status, error["code"].clone(), error["param"].clone())
    };
    let good = chat(false).to_string();
    for content_type in [None, Some("text/plain"), Some("multipart/form-data"), Some("json")] {
        let (status, code, _) = send(content_type, &good).await;
        assert_eq!((status, code), (415, json!("unsupported_media_type")), "{content_type:?}");
    }
    for content_type in
        ["application/json; charset=utf-8", "Application/JSON", "application/x+json"]
    {
        assert_eq!(send(Some(content_type), &good).await.0, 200, "{content_type}");
    }
    for (body, code, param) in [
        ("", "invalid_json", json!(null)),
        ("{", "invalid_json", json!(null)),
        ("[]", "invalid_json", json!(null)),
        ("{} {}", "invalid_json", json!(null)),
        ("{}", "invalid_request", json!("model")),
        (r#"{"model":"m"}"#, "invalid_request", json!("messages")),
        (r#"{"model":1,"messages":[]}"#, "invalid_request", json!("model")),
        (r#"{"model":"m","messages":{}}"#, "invalid_request", json!("messages")),
        (r#"{"model":"m","messages":[],"stream":1}"#, "invalid_request", json!("stream")),
        (r#"{"model":"m","model":"o","messages":[]}"#, "invalid_request", json!("model")),
    ] {
        let expected = (400, json!(code), param);
        assert_eq!(send(Some("application/json"), body).await, expected, "{body}");
    }
    app.shutdown().await;
}

#[tokio::test]
async fn no_more_requests_are_in_flight_than_may_and_a_stream_is_until_its_end() {
    let app = TestApp::with(|config| config.admission.max_in_flight = 2).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        app.upstream.enqueue(fault::stall_mid_stream());
        held.push(post(&app.alice(), true).await);
    }
    for client in [app.alice(), app.stranger(), app.alice().http2()] {
        let refused = client.get("/v1/models").send().await;
        assert_eq!(refused.status, 503);
        assert_eq!(refused.header("retry-after"), Some("1"));
        assert!(refused.header("x-request-id").is_some());
        assert_eq!(code(refused).await, "overloaded");
    }
    held.pop();
    crate::support::client::eventually(Duration::from_secs(5), async || {
        app.alice().get("/v1/models").send().await.status == 200
    })
    .await;
    held.clear();
    app.shutdown().await;
}

#[tokio::test]
async fn a_call_may_take_no_longer_than_the_request_timeout() {
    let app = TestApp::with(|config| config.server.request_timeout_s = 1).await;
    app.upstream.enqueue(fault::stall_before_head());
    let late = post(&app.alice(), false).await;
    assert_eq!((late.status.as_u16(), code(late).await), (504, json!("call_timeout")));

    app.upstream.enqueue(fault::stall_mid_stream());
    let mut events = post(&app.alice(), true).await.events();
    let events = events.rest().await;
    let last = events.last().expect("an event").json();
    assert_eq!(last["error"]["code"], "call_timeout");
    app.upstream.until(|counts| counts.aborted == 2).await;
    app.shutdown().await;
}

#[tokio::test]
async fn a_denial_is_audited_once_with_what_the_caller_had_and_what_it_took() {
    let app = TestApp::start().await;
    let carol = app.caller("carol", "pro", &["model:embedding", "code:read"]);
    assert_eq!(post(&carol, false).await.status, 403);
    let mut body = chat(true);
    body["tools"] = json!([{ "type": "function", "function": { "name": "fleet_ps" } }]);
    assert_eq!(app.alice().post("/v1/streams").json(&body).send().await.status, 403);
    assert_eq!(app.stranger().with_token("a.b.c").get("/v1/models").send().await.status, 401);

    let rows = app.audit_rows_once(3).await;
    assert_eq!(rows.len(), 3, "once each, and no intent: {rows:?}");
    assert_eq!(rows[0].subject.as_deref(), Some("carol"));
    assert_eq!(rows[0].capabilities.as_deref(), Some("code:read model:embedding"));
    assert_eq!(rows[0].required.as_deref(), Some("model:reasoning"));
    assert_eq!(rows[0].model.as_deref(), Some("m"));
    assert_eq!(rows[0].operation, "create_chat_completion");
    assert_eq!(rows[1].capabilities.as_deref(), Some("model:reasoning"));
    assert_eq!(rows[1].required.as_deref(), Some("fleet:read"));
    assert_eq!(rows[1].operation, "create_stream");
    assert_eq!((rows[2].outcome.as_deref(), &rows[2].subject), (Some("invalid_token"), &None));
    app.shutdown().await;
}
