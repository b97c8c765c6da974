//! What every answer carries, whatever it answers and over whichever protocol.

use http::Method;
use serde_json::{Value, json};
use tollgate::config::TlsConfig;

use crate::support::{
    app::{TestApp, chat},
    client::Response,
    event_stream::{EventStream, Item},
};

const CHAT: &str = "/v1/chat/completions";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// A request id and a trace context, each once.
fn assert_ids(response: &Response) {
    let id = response.header("x-request-id").expect("x-request-id");
    assert!(!id.is_empty(), "{response:?}");
    let trace = response.header("traceparent").expect("traceparent");
    assert!(trace.len() == 55 && trace.starts_with("00-"), "{trace}");
}

#[tokio::test]
async fn every_answer_bears_its_ids_and_every_error_its_shape() {
    let app = TestApp::with(|config| config.server.body_limit_bytes = 1_000).await;
    let (alice, stranger) = (app.alice(), app.stranger());
    let (get, post, patch) = (Method::GET, Method::POST, Method::PATCH);
    let calls = [
        (&alice, &get, "/v1/models", 200, None),
        (&stranger, &get, "/openapi.json", 200, None),
        (&stranger, &get, "/nowhere", 404, Some("not_found")),
        (&stranger, &get, "/v1x", 404, Some("not_found")),
        (&stranger, &get, "/v1/nowhere", 404, Some("not_found")),
        (&alice, &get, "/v1/models/nope", 404, Some("model_not_found")),
        (&alice, &get, "/v1/streams/nope", 404, Some("stream_gone")),
        (&stranger, &get, "/v1/models", 401, Some("missing_token")),
        (&alice, &get, "/v1/models/other", 403, Some("capability_denied")),
        (&alice, &get, CHAT, 405, Some("method_not_allowed")),
        (&stranger, &post, "/openapi.json", 405, Some("method_not_allowed")),
        (&alice, &patch, "/v1/streams/x", 405, Some("method_not_allowed")),
        (&alice, &get, "/v1/models/%FF", 400, Some("invalid_request")),
        (&alice, &post, CHAT, 413, Some("body_too_large")),
    ];
    for (client, method, path, status, code) in calls {
        let call = client.request(method.clone(), path).header("content-type", "application/json");
        let response = call.body(" ".repeat(if status == 413 { 1_001 } else { 0 })).send().await;
        assert_eq!(response.status, status, "{path}: {response:?}");
        assert_ids(&response);
        let Some(code) = code else { continue };
        assert_eq!(response.header("x-tollgate-source"), Some("gateway"), "{path}");
        let content_type = response.header("content-type").expect("a type").to_owned();
        let body = response.json().await;
        if path.starts_with("/v1/") {
            assert_eq!(content_type, "application/json", "{path}");
            let error = body["error"].as_object().expect("an error");
            let keys: Vec<_> = error.keys().map(String::as_str).collect();
            assert_eq!(keys, ["code", "message", "param", "type"], "all four, always");
            assert_eq!(error["code"], code);
        } else {
            assert_eq!(content_type, "application/problem+json", "{path}");
            assert_eq!((&body["code"], &body["status"]), (&json!(code), &json!(status)));
            assert!(body["title"].is_string() && body["type"] == "about:blank", "{body}");
        }
    }
    app.shutdown().await;
}

#[tokio::test]
async fn a_sane_request_id_is_kept_and_another_is_not() {
    let app = TestApp::start().await;
    let id_for = async |id: &str| {
        let response = app.alice().get("/v1/models").header("x-request-id", id).send().await;
        response.header("x-request-id").expect("an id").to_owned()
    };
    let long = "x".repeat(128);
    for sane in ["req_1.2-3:4", "a", &long] {
        assert_eq!(id_for(sane).await, sane);
    }
    let longer = "x".repeat(129);
    for other in ["", "a b", "<script>", "a,b", "a;b=\"c\"", &longer] {
        let id = id_for(other).await;
        assert_eq!(id.len(), 32, "one of ours: {id}");
    }

    let call = app.alice().post(CHAT).header("x-request-id", "mine-1").json(&chat(false));
    assert_eq!(call.send().await.status, 200);
    assert_eq!(app.upstream.request().header("x-request-id"), Some("mine-1"));
    let (intent, terminal) = app.the_call().await;
    assert_eq!((&*intent.request_id, &*terminal.request_id), ("mine-1", "mine-1"));
    app.shutdown().await;
}

#[tokio::test]
async fn a_trace_goes_through_to_the_upstream_and_back() {
    let app = TestApp::start().await;
    let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    for path in [CHAT, "/v1/streams"] {
        let call = app.alice().post(path).header("traceparent", &parent).json(&chat(true));
        let response = call.send().await;
        let back = response.header("traceparent").expect("a trace").to_owned();
        response.bytes().await;
        let requests = app.upstream.requests();
        let on = requests.last().expect("a request").header("traceparent").expect("a trace");
        assert_eq!((&back[3..35], &on[3..35]), (TRACE, TRACE));
        let spans = [&parent[36..52], &back[36..52], &on[36..52]];
        assert!(spans[0] != spans[1] && spans[1] != spans[2] && spans[0] != spans[2], "{spans:?}");
        assert_eq!((&back[53..], &on[53..]), ("01", "01"), "still sampled");
    }
    let rows = app.audit_rows_once(4).await;
    assert!(rows.iter().all(|row| row.trace_id.as_deref() == Some(TRACE)));

    for malformed in ["garbage", "00-0-0-00", &format!("ff-{TRACE}-00f067aa0ba902b7-01")] {
        let call = app.alice().get("/v1/models").header("traceparent", malformed);
        let response = call.send().await;
        assert_ids(&response);
        assert_ne!(&response.header("traceparent").expect("a trace")[3..35], TRACE);
    }
    app.shutdown().await;
}

#[tokio::test]
async fn head_and_options_are_answered_as_http_says() {
    let app = TestApp::start().await;
    for client in [app.alice(), app.alice().http2()] {
        let get = client.get("/v1/models").send().await;
        let head = client.request(Method::HEAD, "/v1/models").send().await;
        assert_eq!(
            (head.status, head.header("content-type")),
            (get.status, get.header("content-type"))
        );
        assert_eq!(head.header("content-length"), get.header("content-length"));
        assert_eq!(head.bytes().await, "");
        for path in ["/v1/nowhere", "/nowhere", "/v1/models/nope"] {
            let head = client.request(Method::HEAD, path).send().await;
            assert_eq!(head.status, 404);
            assert_ids(&head);
            assert_eq!(head.bytes().await, "", "{path}");
        }
    }
    let options = app.alice().request(Method::OPTIONS, CHAT).send().await;
    assert_eq!(options.status, 405);
    assert_eq!(options.header("allow"), Some("POST"), "RFC 9110 §15.5.6");
    let patch = app.alice().request(Method::PATCH, "/v1/streams/x").send().await;
    let allow = patch.header("allow").expect("an Allow").to_owned();
    assert!(
        allow.contains("GET") && allow.contains("DELETE") && !allow.contains("POST"),
        "{allow}"
    );
    app.shutdown().await;
}

#[tokio::test]
async fn a_stream_goes_over_http2_without_tls() {
    let app = TestApp::start().await;
    let response = app.alice().http2().post(CHAT).json(&chat(true)).send().await;
    assert_eq!(response.status, 200);
    assert_ids(&response);
    let events = response.events().rest().await;
    assert_eq!(events.last().expect("an event").text(), "[DONE]");
    app.shutdown().await;
}

#[tokio::test]
async fn a_stream_goes_over_tls_with_either_version() {
    let dir = std::env::temp_dir().join(format!("tollgate-tls-{}", uuid::Uuid::now_v7()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let files = TlsConfig { cert: dir.join("cert.pem"), key: dir.join("key.pem") };
    std::fs::write(&files.cert, made.cert.pem()).expect("written");
    std::fs::write(&files.key, made.signing_key.serialize_pem()).expect("written");
    let app = TestApp::with(|config| config.server.tls = Some(files)).await;
    let root = || reqwest::Certificate::from_pem(made.cert.pem().as_bytes()).expect("a root");
    let client =
        || reqwest::Client::builder().tls_certs_only([root()]).resolve("localhost", app.address());
    let clients = [client(), client().http1_only()].map(|client| client.build().expect("a client"));

    for (client, version) in clients.iter().zip([http::Version::HTTP_2, http::Version::HTTP_11]) {
        let url = format!("https://localhost:{}{CHAT}", app.address().port());
        let request = client
            .post(url)
            .bearer_auth(app.token("alice", "pro", &["model:reasoning"]))
            .header("content-type", "application/json")
            .body(chat(true).to_string());
        let response = request.send().await.expect("an answer");
        assert_eq!((response.status().as_u16(), response.version()), (200, version));
        let body = response.bytes().await.expect("a body");
        let texts: Vec<String> = EventStream::parse(&body)
            .into_iter()
            .filter_map(|item| match item {
                Item::Event(event) => Some(event.text().to_owned()),
                _ => None,
            })
            .collect();
        let (done, chunks) = texts.split_last().expect("events");
        assert_eq!(done, "[DONE]");
        let said: String = chunks
            .iter()
            .map(|chunk| serde_json::from_str(chunk).expect("JSON"))
            .filter_map(|chunk: Value| {
                chunk["choices"][0]["delta"]["content"].as_str().map(str::to_owned)
            })
            .collect();
        assert_eq!(said, "Hello world");
    }
    drop(clients);
    app.shutdown().await;
    std::fs::remove_dir_all(dir).expect("removed");
}
