use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fake_opentelemetry_collector::{ExportedSpan, FakeCollectorServer};
use tokio::net::TcpListener;
use tollgate::{
    config::TelemetryConfig,
    domain::{RequestId, TraceContext, Usage},
    telemetry::{
        CallSpan, ModelEnd, ModelStart, ServerStart, Telemetry, TelemetryError, genai, model_span,
        server_span,
    },
};
use tracing::dispatcher::with_default;

use super::{CALLER, Log, request};

fn to(endpoint: impl Into<String>) -> TelemetryConfig {
    TelemetryConfig { otlp_endpoint: Some(endpoint.into()), ..TelemetryConfig::default() }
}

/// Runs `work` against a collector and returns the spans that it got and the log.
async fn exported(work: impl FnOnce()) -> (Vec<ExportedSpan>, Log) {
    let mut collector = FakeCollectorServer::start().await.unwrap();
    let log = Log::default();
    let (telemetry, dispatch) =
        Telemetry::build(&to(collector.endpoint()), log.clone(), false).unwrap();
    with_default(&dispatch, work);
    telemetry.shutdown().await;
    // All were sent before `shutdown` returned, so there is nothing to wait for.
    (collector.exported_spans(0, Duration::ZERO).await, log)
}

fn named<'a>(spans: &'a [ExportedSpan], name: &str) -> &'a ExportedSpan {
    spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("{name}: {spans:?}"))
}

/// Asserts that `span` has the attribute, as the collector prints it.
fn assert_attribute(span: &ExportedSpan, key: &str, printed: &str) {
    let value = span.attributes.get(key).unwrap_or_else(|| panic!("no {key}: {span:?}"));
    assert!(value.contains(printed), "{key} is {value}, not {printed}");
}

fn model_call(id: &RequestId, parent: TraceContext) -> CallSpan {
    model_span(&ModelStart {
        model: "gpt-oss-120b",
        provider: "cerebras",
        stream: true,
        max_tokens: Some(512),
        server: Some(("api.cerebras.ai", 443)),
        request_id: id,
        parent,
    })
}

/// What `model_call` starts with and the test below ends it with.
const MODEL_ATTRIBUTES: [(&str, &str); 17] = [
    ("gen_ai.operation.name", "StringValue(\"chat\")"),
    ("gen_ai.provider.name", "StringValue(\"cerebras\")"),
    ("gen_ai.request.model", "StringValue(\"gpt-oss-120b\")"),
    ("gen_ai.request.stream", "BoolValue(true)"),
    ("gen_ai.request.max_tokens", "IntValue(512)"),
    ("server.address", "StringValue(\"api.cerebras.ai\")"),
    ("server.port", "IntValue(443)"),
    ("gen_ai.response.model", "StringValue(\"gpt-oss-120b-0801\")"),
    ("gen_ai.response.id", "StringValue(\"chatcmpl-1\")"),
    ("gen_ai.response.time_to_first_chunk", "DoubleValue(0.25)"),
    ("gen_ai.usage.input_tokens", "IntValue(312)"),
    ("gen_ai.usage.output_tokens", "IntValue(118)"),
    ("gen_ai.usage.cache_read.input_tokens", "IntValue(64)"),
    ("gen_ai.usage.reasoning.output_tokens", "IntValue(7)"),
    ("gen_ai.response.finish_reasons", "ArrayValue"),
    ("gen_ai.response.finish_reasons", "StringValue(\"length\")"),
    ("tollgate.request_id", "StringValue(\"req-9\")"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_gives_a_server_span_under_its_caller_and_a_model_span_under_that() {
    let id = RequestId::from_caller("req-9").unwrap();
    let mut traces = Vec::new();
    let (spans, _) = exported(|| {
        let server = server_span(&request(&id, Some(CALLER)));
        let model = model_call(&id, server.trace());
        traces = vec![server.trace(), model.trace()];
        model.end_model(&ModelEnd {
            response_model: Some("gpt-oss-120b-0801"),
            response_id: Some("chatcmpl-1"),
            finish_reasons: &["stop", "length"],
            usage: Some(Usage {
                input_tokens: 312,
                output_tokens: 118,
                cached_input_tokens: 64,
                reasoning_tokens: 7,
            }),
            time_to_first_chunk: Some(Duration::from_millis(250)),
            error_type: None,
        });
        server.end_server(200, None);
    })
    .await;

    assert_eq!(spans.len(), 2, "{spans:?}");
    let server = named(&spans, "POST /v1/chat/completions");
    assert_eq!(server.kind, "SPAN_KIND_SERVER");
    assert_eq!(server.trace_id, CALLER.trace_id_hex());
    assert_eq!(server.parent_span_id, "00f067aa0ba902b7");
    assert_eq!(server.span_id, format!("{:016x}", traces[0].span_id));
    assert_attribute(server, genai::HTTP_REQUEST_METHOD, "StringValue(\"POST\")");
    assert_attribute(server, genai::HTTP_ROUTE, "StringValue(\"/v1/chat/completions\")");
    assert_attribute(server, genai::HTTP_RESPONSE_STATUS_CODE, "IntValue(200)");
    assert_attribute(server, "tollgate.request_id", "StringValue(\"req-9\")");

    let model = named(&spans, "chat gpt-oss-120b");
    assert_eq!(model.kind, "SPAN_KIND_CLIENT");
    assert_eq!(model.trace_id, CALLER.trace_id_hex());
    assert_eq!(model.parent_span_id, server.span_id);
    assert_eq!(model.span_id, format!("{:016x}", traces[1].span_id));
    for (key, printed) in MODEL_ATTRIBUTES {
        assert_attribute(model, key, printed);
    }
    // Sixteen names and nothing else: no thread, no source line, no copy of the trace's id.
    assert_eq!(model.attributes.len(), 16, "{:?}", model.attributes.keys());
    assert_eq!(model.status.as_ref().map_or("STATUS_CODE_UNSET", |s| &s.code), "STATUS_CODE_UNSET");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_call_says_so_in_both_spans() {
    let id = RequestId::generate();
    let (spans, _) = exported(|| {
        let server = server_span(&request(&id, None));
        let model = model_call(&id, server.trace());
        let error_type = Some("upstream_timeout");
        model.end_model(&ModelEnd { error_type, ..ModelEnd::default() });
        server.end_server(504, error_type);
    })
    .await;

    for span in &spans {
        assert_attribute(span, "error.type", "upstream_timeout");
        assert_eq!(span.status.as_ref().unwrap().code, "STATUS_CODE_ERROR", "{span:?}");
    }
    assert_eq!(named(&spans, "POST /v1/chat/completions").parent_span_id, "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_is_no_error_of_the_server_and_a_broken_answer_is() {
    let id = RequestId::generate();
    let start = |path| ServerStart { route: None, path, method: "BREW", ..request(&id, None) };
    let (spans, _) = exported(|| {
        server_span(&start("/refused")).end_server(403, Some("capability_denied"));
        server_span(&start("/broken")).end_server(200, Some("upstream_lost"));
    })
    .await;

    for span in &spans {
        assert_eq!(span.name, "HTTP", "a stranger's method and path are not in a name");
        assert_attribute(span, "http.request.method", "_OTHER");
        let broken = span.attributes["url.path"].contains("broken");
        let failed = span.status.as_ref().is_some_and(|s| s.code == "STATUS_CODE_ERROR");
        assert_eq!(failed, broken, "{span:?}");
    }
    assert_eq!(spans.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_streamed_answers_span_ends_when_the_stream_does() {
    let id = RequestId::generate();
    let mut ended_after = Duration::ZERO;
    let (spans, _) = exported(|| {
        let server = server_span(&request(&id, None));
        server.scope(id.clone()).enter(|| {});
        ended_after = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        server.end_server(200, None);
    })
    .await;

    assert!(u128::from(spans[0].end_time_unix_nano) >= ended_after.as_nanos());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_does_not_sample_is_not_exported_and_keeps_its_trace() {
    let id = RequestId::from_caller("req-10").unwrap();
    let mut trace = CALLER;
    let (spans, log) = exported(|| {
        let server = server_span(&request(&id, Some(TraceContext { sampled: false, ..CALLER })));
        server.scope(id.clone()).enter(|| tracing::info!("unseen but logged"));
        trace = server.trace();
        server.end_server(200, None);
    })
    .await;

    assert!(spans.is_empty(), "{spans:?}");
    assert_eq!(trace.trace_id, CALLER.trace_id);
    assert_ne!(trace.span_id, CALLER.span_id);
    assert!(!trace.sampled);
    assert_eq!(log.lines()[0]["trace_id"], CALLER.trace_id_hex());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_lines_bear_the_ids_that_are_exported() {
    let id = RequestId::generate();
    let (spans, log) = exported(|| {
        let server = server_span(&request(&id, None));
        server.scope(id.clone()).enter(|| {
            tracing::info_span!("of a library").in_scope(|| tracing::error!("inside"));
        });
        server.end_server(200, None);
    })
    .await;

    assert_eq!(log.lines()[0]["trace_id"], spans[0].trace_id);
    assert_eq!(spans.len(), 1, "a library's spans are not exported: {spans:?}");
    assert!(spans[0].events.is_empty(), "log lines are not exported: {spans:?}");
    assert!(spans[0].status.as_ref().is_none_or(|s| s.code == "STATUS_CODE_UNSET"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_collector_costs_a_call_nothing_and_is_told_of_once() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let log = Log::default();
    let (telemetry, dispatch) = Telemetry::build(&to(endpoint), log.clone(), false).unwrap();
    // The exporter's thread logs too, so this one is the process's.
    tracing::dispatcher::set_global_default(dispatch).unwrap();

    let id = RequestId::generate();
    let started = Instant::now();
    for _ in 0..20_000 {
        server_span(&request(&id, None)).end_server(200, None);
    }
    let made = started.elapsed();
    telemetry.shutdown().await;

    assert!(made < Duration::from_secs(4), "20,000 spans took {made:?}");
    assert!(started.elapsed() < made + Duration::from_secs(5), "{:?}", started.elapsed());
    let lines = log.lines();
    let lost = lines.iter().filter(|line| line["message"].as_str().unwrap().contains("lost"));
    let count = |line: &serde_json::Value| {
        line["queue_full"].as_u64().unwrap() + line["refused"].as_u64().unwrap()
    };
    assert!(lost.clone().map(count).sum::<u64>() > 10_000, "{lines:?}");
    assert!(lost.count() <= 2, "once, and once more at the end: {lines:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_never_answers_does_not_hold_up_the_end() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let (telemetry, dispatch) = Telemetry::build(&to(endpoint), std::io::sink(), false).unwrap();
    let id = RequestId::generate();
    with_default(&dispatch, || server_span(&request(&id, None)).end_server(200, None));

    let started = Instant::now();
    telemetry.shutdown().await;

    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[test]
fn an_endpoint_that_is_no_url_is_refused() {
    let refused = Telemetry::build(&to("not a url"), std::io::sink(), false);

    assert!(matches!(refused, Err(TelemetryError::Export(_))), "{refused:?}");
}

#[test]
fn an_https_endpoint_is_taken() {
    Telemetry::build(&to("https://127.0.0.1:4317"), std::io::sink(), false).unwrap();
}
