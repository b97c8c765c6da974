//! What a collector gets of a call: the server's span under the caller's, the model client's under
//! that, and what both say.

use std::time::Duration;

use fake_opentelemetry_collector::{ExportedSpan, FakeCollectorServer};
use http::StatusCode;
use tokio::net::TcpListener;
use tollgate::{
    config::{RouteConfig, TelemetryConfig},
    telemetry::Telemetry,
};
use tracing::subscriber::DefaultGuard;

use crate::support::{
    app::{TestApp, chat},
    client::Response,
    upstream::{Step, fault, openai},
};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";
const CHAT: &str = "/v1/chat/completions";

/// A gateway whose spans go to a collector. All of it runs on the test's own thread, so that what
/// is the thread's is the gateway's.
struct Traced {
    app: TestApp,
    telemetry: Telemetry,
    collector: FakeCollectorServer,
    _default: DefaultGuard,
}

fn telemetry(endpoint: String) -> (Telemetry, DefaultGuard) {
    let config = TelemetryConfig { otlp_endpoint: Some(endpoint), ..TelemetryConfig::default() };
    let (telemetry, dispatch) = Telemetry::build(&config, std::io::sink(), false).unwrap();
    (telemetry, tracing::dispatcher::set_default(&dispatch))
}

impl Traced {
    async fn start() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut tollgate::config::Config)) -> Self {
        let collector = FakeCollectorServer::start().await.unwrap();
        let (telemetry, default) = telemetry(collector.endpoint());
        Self { app: TestApp::with(change).await, telemetry, collector, _default: default }
    }

    /// A call by alice, under a trace of hers.
    async fn call(&self, path: &str, stream: bool) -> Response {
        let traceparent = format!("00-{TRACE}-{PARENT}-01");
        let call = self.app.alice().post(path).json(&chat(stream));
        call.header("traceparent", &traceparent).send().await
    }

    /// All spans, once the gateway has stopped.
    async fn spans(mut self) -> Vec<ExportedSpan> {
        self.app.shutdown().await;
        self.telemetry.shutdown().await;
        // All were sent before `shutdown` returned, so there is nothing to wait for.
        self.collector.exported_spans(0, Duration::ZERO).await
    }
}

fn of_kind<'a>(spans: &'a [ExportedSpan], kind: &str) -> Vec<&'a ExportedSpan> {
    let kind = format!("SPAN_KIND_{kind}");
    let mut found: Vec<_> = spans.iter().filter(|span| span.kind == kind).collect();
    found.sort_by_key(|span| span.start_time_unix_nano);
    found
}

/// The one server span and the one client span, in the caller's trace, one under the other.
fn the_two(spans: &[ExportedSpan]) -> (&ExportedSpan, &ExportedSpan) {
    assert_eq!(spans.len(), 2, "{spans:#?}");
    let (server, client) = (of_kind(spans, "SERVER")[0], of_kind(spans, "CLIENT")[0]);
    for span in [server, client] {
        assert_eq!(span.trace_id, TRACE);
    }
    assert_eq!(server.parent_span_id, PARENT);
    assert_eq!(client.parent_span_id, server.span_id);
    assert!(client.start_time_unix_nano >= server.start_time_unix_nano);
    (server, client)
}

fn assert_attributes(span: &ExportedSpan, expected: &[(&str, &str)]) {
    for (key, printed) in expected {
        let value = span.attributes.get(*key).unwrap_or_else(|| panic!("no {key}: {span:#?}"));
        assert!(value.contains(printed), "{key} is {value}, not {printed}");
    }
}

fn has_failed(span: &ExportedSpan) -> bool {
    span.status.as_ref().is_some_and(|status| status.code == "STATUS_CODE_ERROR")
}

/// What both spans of every good answer of the mock say.
fn assert_good(server: &ExportedSpan, client: &ExportedSpan, route: &str) {
    assert_eq!(server.name, format!("POST {route}"));
    assert_attributes(
        server,
        &[
            ("http.request.method", "StringValue(\"POST\")"),
            ("http.route", route),
            ("url.path", route),
            ("url.scheme", "StringValue(\"http\")"),
            ("http.response.status_code", "IntValue(200)"),
            ("tollgate.request_id", "StringValue("),
        ],
    );
    assert_eq!(client.name, "chat upstream-m");
    assert_attributes(
        client,
        &[
            ("gen_ai.operation.name", "StringValue(\"chat\")"),
            ("gen_ai.provider.name", "StringValue(\"mock\")"),
            ("gen_ai.request.model", "StringValue(\"upstream-m\")"),
            ("gen_ai.response.model", openai::MODEL),
            ("gen_ai.response.id", openai::ID),
            ("gen_ai.response.finish_reasons", "StringValue(\"stop\")"),
            ("gen_ai.usage.input_tokens", &format!("IntValue({})", openai::INPUT_TOKENS)),
            ("gen_ai.usage.output_tokens", &format!("IntValue({})", openai::OUTPUT_TOKENS)),
            (
                "gen_ai.usage.cache_read.input_tokens",
                &format!("IntValue({})", openai::CACHED_TOKENS),
            ),
            (
                "gen_ai.usage.reasoning.output_tokens",
                &format!("IntValue({})", openai::REASONING_TOKENS),
            ),
        ],
    );
    for span in [server, client] {
        assert!(!has_failed(span) && !span.attributes.contains_key("error.type"), "{span:#?}");
        assert_eq!(
            span.attributes["tollgate.request_id"],
            server.attributes["tollgate.request_id"]
        );
    }
}

#[tokio::test]
async fn a_streamed_call_is_two_spans_under_its_callers() {
    let traced = Traced::start().await;
    let response = traced.call(CHAT, true).await;
    assert_eq!(response.status, 200);
    let out = response.header("traceparent").expect("a traceparent").to_owned();
    let request_id = response.header("x-request-id").expect("an id").to_owned();
    response.bytes().await;
    let onward = traced.app.upstream.request().header("traceparent").expect("one").to_owned();
    let spans = traced.spans().await;
    let (server, client) = the_two(&spans);
    assert_good(server, client, CHAT);
    assert_attributes(client, &[("gen_ai.request.stream", "BoolValue(true)")]);
    assert_attributes(client, &[("gen_ai.response.time_to_first_chunk", "DoubleValue(0.")]);
    assert_attributes(server, &[("tollgate.request_id", &request_id)]);
    assert_eq!(out, format!("00-{TRACE}-{}-01", server.span_id));
    assert_eq!(
        onward,
        format!("00-{TRACE}-{}-01", client.span_id),
        "the upstream's is the client's"
    );
}

#[tokio::test]
async fn a_whole_answers_call_is_two_spans_under_its_callers() {
    let traced = Traced::start().await;
    let response = traced.call(CHAT, false).await;
    assert_eq!(response.status, 200);
    response.bytes().await;
    let onward = traced.app.upstream.request().header("traceparent").expect("one").to_owned();
    let spans = traced.spans().await;
    let (server, client) = the_two(&spans);
    assert_good(server, client, CHAT);
    assert_attributes(client, &[("gen_ai.request.stream", "BoolValue(false)")]);
    assert_eq!(onward, format!("00-{TRACE}-{}-01", client.span_id));
}

#[tokio::test]
async fn a_native_streams_call_is_two_spans_and_its_resumption_another() {
    let traced = Traced::start().await;
    let response = traced.call("/v1/streams", true).await;
    let location = response.header("location").expect("where it is").to_owned();
    response.bytes().await;
    traced.app.alice().get(&location).send().await.bytes().await;
    let spans = traced.spans().await;
    let (resumed, call): (Vec<_>, Vec<_>) =
        spans.into_iter().partition(|span| span.trace_id != TRACE);
    let (server, client) = the_two(&call);
    assert_good(server, client, "/v1/streams");
    assert_eq!(resumed.len(), 1);
    assert_eq!(resumed[0].name, "GET /v1/streams/{id}", "the pattern, not the id");
}

#[tokio::test]
async fn a_stream_that_outlives_its_request_has_a_span_that_does_too() {
    let traced = Traced::with(|config| config.stream.orphan_timeout_s = 1).await;
    traced.app.upstream.enqueue(fault::stall_mid_stream());
    let mut events = traced.call("/v1/streams", true).await.events();
    events.expect_event().await;
    // The request is over; its call goes on for whoever comes back, and nobody does.
    drop(events);
    traced.app.the_call().await;
    let spans = traced.spans().await;
    let (server, client) = the_two(&spans);
    assert_attributes(client, &[("error.type", "StringValue(\"canceled\")")]);
    let after = Duration::from_nanos(client.end_time_unix_nano - server.end_time_unix_nano);
    assert!(after > Duration::from_millis(500), "it ended with its request, or {after:?} after");
}

#[tokio::test]
async fn a_failed_call_says_what_failed_in_both_spans() {
    let cases = [
        (fault::stall_before_head(), 504, "upstream_timeout"),
        (openai::server_error(), 500, "upstream_error"),
        (openai::rate_limited(7), 429, "upstream_error"),
        (crate::support::upstream::Script::raw("garbage"), 502, "upstream_lost"),
    ];
    for (script, status, error_type) in cases {
        let traced = Traced::with(|config| {
            config.providers[0].first_token_timeout_ms = 200;
            config.providers[0].answer_timeout_ms = 200;
        })
        .await;
        traced.app.upstream.enqueue(script);
        let response = traced.call(CHAT, false).await;
        assert_eq!(response.status, status, "{error_type}");
        response.bytes().await;
        let spans = traced.spans().await;
        let (server, client) = the_two(&spans);
        let status = format!("IntValue({status})");
        assert_attributes(client, &[("error.type", &format!("StringValue(\"{error_type}\")"))]);
        assert_attributes(server, &[("http.response.status_code", &status)]);
        assert!(has_failed(client), "{error_type}: {client:#?}");
        assert_eq!(has_failed(server), status.contains("(5"), "{error_type}: {server:#?}");
        assert_attributes(server, &[("error.type", error_type)]);
    }
}

#[tokio::test]
async fn a_stream_that_breaks_off_fails_both_spans() {
    let traced = Traced::start().await;
    traced.app.upstream.enqueue(openai::text_stream(["Hel", "lo"]).only(2).then(Step::Close));
    let response = traced.call(CHAT, true).await;
    assert_eq!(response.status, 200);
    response.bytes().await;
    let spans = traced.spans().await;
    let (server, client) = the_two(&spans);
    assert_attributes(client, &[("error.type", "StringValue(\"upstream_lost\")")]);
    assert!(has_failed(client), "{client:#?}");
    assert_attributes(server, &[("http.response.status_code", "IntValue(200)")]);
    assert_attributes(server, &[("error.type", "StringValue(\"upstream_lost\")")]);
    assert!(has_failed(server), "{server:#?}");
}

#[tokio::test]
async fn hanging_up_is_told_by_the_client_span() {
    let traced = Traced::start().await;
    traced.app.upstream.enqueue(fault::stall_mid_stream());
    drop(traced.call(CHAT, true).await);
    traced.app.the_call().await;
    let spans = traced.spans().await;
    let (_, client) = the_two(&spans);
    assert_attributes(client, &[("error.type", "StringValue(\"canceled\")")]);
}

#[tokio::test]
async fn a_denial_is_a_server_span_alone_and_no_error_of_the_servers() {
    let traced = Traced::start().await;
    let nobody = traced.app.caller("mallory", "pro", &[]);
    let traceparent = format!("00-{TRACE}-{PARENT}-01");
    let call = nobody.post(CHAT).json(&chat(true)).header("traceparent", &traceparent);
    assert_eq!(call.send().await.status, StatusCode::FORBIDDEN);
    let [row] = traced.app.audit_rows_once(1).await.try_into().expect("one row");
    assert_eq!(row.trace_id.as_deref(), Some(TRACE), "the audit trail names the trace");
    let spans = traced.spans().await;
    assert_eq!(spans.len(), 1, "{spans:#?}");
    assert_eq!(spans[0].parent_span_id, PARENT);
    assert_attributes(&spans[0], &[("error.type", "StringValue(\"capability_denied\")")]);
    assert!(!has_failed(&spans[0]));
}

#[tokio::test]
async fn each_route_that_is_tried_is_a_span_of_its_own() {
    let traced = Traced::with(|config| {
        let route = RouteConfig { provider: "mock".to_owned(), model: "second".to_owned() };
        config.models[0].routes.push(route);
    })
    .await;
    traced.app.upstream.enqueue(openai::server_error());
    let response = traced.call(CHAT, true).await;
    assert_eq!(response.status, 200);
    response.bytes().await;
    let onward: Vec<String> = traced
        .app
        .upstream
        .requests()
        .iter()
        .map(|request| request.header("traceparent").expect("one").to_owned())
        .collect();
    let spans = traced.spans().await;
    let (server, tried) = (of_kind(&spans, "SERVER")[0], of_kind(&spans, "CLIENT"));
    assert_eq!(tried.len(), 2, "{spans:#?}");
    for (span, onward) in tried.iter().zip(&onward) {
        assert_eq!(span.parent_span_id, server.span_id);
        assert_eq!(*onward, format!("00-{TRACE}-{}-01", span.span_id));
    }
    assert_eq!((&*tried[0].name, &*tried[1].name), ("chat upstream-m", "chat second"));
    assert_attributes(tried[0], &[("error.type", "StringValue(\"upstream_error\")")]);
    assert!(has_failed(tried[0]) && !has_failed(tried[1]) && !has_failed(server));
}

#[tokio::test]
async fn without_a_sane_traceparent_a_call_begins_a_trace() {
    let traced = Traced::start().await;
    let bad =
        ["", "garbage", "00-0-0-01", "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"];
    for traceparent in bad {
        let call = traced.app.alice().get("/v1/models").header("traceparent", traceparent);
        let response = call.send().await;
        assert_eq!(response.status, 200);
        let out = response.header("traceparent").expect("one").to_owned();
        assert_eq!(out.len(), 55, "{out}");
    }
    let spans = traced.spans().await;
    assert_eq!(spans.len(), bad.len());
    for span in &spans {
        assert_eq!(span.parent_span_id, "", "{span:#?}");
        assert_ne!(span.trace_id, TRACE);
    }
}

/// Calls must go as they go without a collector, and stopping must not wait for it.
async fn assert_unharmed(endpoint: String) {
    let (telemetry, _default) = telemetry(endpoint);
    let app = TestApp::start().await;
    for _ in 0..20 {
        let call = app.alice().post(CHAT).json(&chat(true));
        let response = tokio::time::timeout(Duration::from_secs(2), call.send()).await.unwrap();
        assert_eq!(response.status, 200);
        let events = response.events().rest().await;
        assert_eq!(events.last().unwrap().text(), "[DONE]");
    }
    app.shutdown().await;
    tokio::time::timeout(Duration::from_secs(5), telemetry.shutdown()).await.unwrap();
}

#[tokio::test]
async fn a_dead_collector_changes_nothing_for_a_call() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    assert_unharmed(endpoint).await;
}

#[tokio::test]
async fn a_collector_that_never_answers_changes_nothing_for_a_call() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    assert_unharmed(format!("http://{}", silent.local_addr().unwrap())).await;
}
