//! The two spans of a call: the server's and the model client's.
//!
//! They are for OTLP alone: a process without a collector makes none, and has the ids. The attributes of
//! [`super::genai`] are set on the OpenTelemetry span itself: `tracing`'s fields can't hold arrays, and
//! would be visited by every layer. What a log line says of its call is a [`Scope`]'s.

use std::time::Duration;

use opentelemetry::{
    Array, Context, KeyValue, SpanId, StringValue, TraceFlags, TraceId, Value,
    trace::{SpanContext, Status, TraceContextExt, TraceState},
};
use opentelemetry_sdk::trace::SdkTracer;
use tracing::{Dispatch, Span, dispatcher};
use tracing_opentelemetry::{OpenTelemetryLayer, OpenTelemetrySpanExt};
use tracing_subscriber::Registry;

use super::{Scope, genai};
use crate::domain::{RequestId, TraceContext, Usage};

/// The target of both spans.
pub(super) const TARGET: &str = "tollgate::span";

/// The layer that hands spans to OpenTelemetry, as it stands in the subscriber.
pub(super) type OtelLayer = OpenTelemetryLayer<Registry, SdkTracer>;

/// What is known of a request when its span starts. No header's value is among it.
#[derive(Debug, Clone, Copy)]
pub struct ServerStart<'a> {
    pub method: &'a str,
    /// The route's pattern; `None` where no route matched.
    pub route: Option<&'a str>,
    /// Without the query.
    pub path: &'a str,
    /// `http` or `https`.
    pub scheme: &'static str,
    pub request_id: &'a RequestId,
    /// The caller's `traceparent`.
    pub remote: Option<TraceContext>,
}

/// What is known of a model call when its span starts.
#[derive(Debug, Clone, Copy)]
pub struct ModelStart<'a> {
    /// As the provider calls it.
    pub model: &'a str,
    pub provider: &'a str,
    pub stream: bool,
    pub max_tokens: Option<u64>,
    /// The provider's host and port.
    pub server: Option<(&'a str, u16)>,
    pub request_id: &'a RequestId,
    /// The server span's [`CallSpan::trace`]. Given as ids and not as a span, so that a stream
    /// that outlives its request does not hold the request's span open.
    pub parent: TraceContext,
}

/// How a model call ended.
#[derive(Debug, Clone, Copy, Default)]
pub struct ModelEnd<'a> {
    /// The model that the provider says answered.
    pub response_model: Option<&'a str>,
    pub response_id: Option<&'a str>,
    /// One for each choice.
    pub finish_reasons: &'a [&'a str],
    /// `None`: nothing was spent or it is not known.
    pub usage: Option<Usage>,
    pub time_to_first_chunk: Option<Duration>,
    /// A [`crate::domain::Kind::code`] or a status; never a message.
    pub error_type: Option<&'a str>,
}

/// A span of a call, which ends when this is dropped.
#[derive(Debug)]
pub struct CallSpan {
    /// Held until then. Never entered: nothing is told by that.
    _span: Span,
    trace: TraceContext,
    /// The OpenTelemetry span; `None` where spans are not exported.
    otel: Option<Context>,
}

/// Starts a request's server span under the caller's `traceparent`, if it sent one.
#[must_use]
pub fn server_span(start: &ServerStart<'_>) -> CallSpan {
    let method = known_method(start.method);
    let name_method = if method == genai::METHOD_OTHER { "HTTP" } else { method };
    let (space, route) = start.route.map_or(("", ""), |route| (" ", route));
    let span = || {
        tracing::info_span!(
            target: TARGET,
            parent: None,
            "server",
            otel.kind = "server",
            otel.name = %format_args!("{name_method}{space}{route}"),
        )
    };
    let call = CallSpan::begin(span, start.remote.as_ref());
    call.set(|| {
        let mut attributes = vec![
            KeyValue::new(genai::HTTP_REQUEST_METHOD, method),
            KeyValue::new(genai::URL_PATH, start.path.to_owned()),
            KeyValue::new(genai::URL_SCHEME, start.scheme),
            KeyValue::new(genai::REQUEST_ID, start.request_id.to_string()),
        ];
        attributes
            .extend(start.route.map(|route| KeyValue::new(genai::HTTP_ROUTE, route.to_owned())));
        attributes
    });
    call
}

/// Starts the client span of a model call: `chat {model}`.
#[must_use]
pub fn model_span(start: &ModelStart<'_>) -> CallSpan {
    let span = || {
        tracing::info_span!(
            target: TARGET,
            parent: None,
            "model",
            otel.kind = "client",
            otel.name = %format_args!("{} {}", genai::OPERATION_CHAT, start.model),
        )
    };
    let call = CallSpan::begin(span, Some(&start.parent));
    call.set(|| {
        let mut attributes = vec![
            KeyValue::new(genai::OPERATION_NAME, genai::OPERATION_CHAT),
            KeyValue::new(genai::PROVIDER_NAME, start.provider.to_owned()),
            KeyValue::new(genai::REQUEST_MODEL, start.model.to_owned()),
            KeyValue::new(genai::REQUEST_STREAM, start.stream),
            KeyValue::new(genai::REQUEST_ID, start.request_id.to_string()),
        ];
        attributes.extend(start.max_tokens.map(|max| count(genai::REQUEST_MAX_TOKENS, max)));
        if let Some((address, port)) = start.server {
            attributes.push(KeyValue::new(genai::SERVER_ADDRESS, address.to_owned()));
            attributes.push(KeyValue::new(genai::SERVER_PORT, i64::from(port)));
        }
        attributes
    });
    call
}

impl CallSpan {
    fn begin(span: impl FnOnce() -> Span, parent: Option<&TraceContext>) -> Self {
        let span = if exports() { span() } else { Span::none() };
        let otel = started(&span, parent);
        let trace = match &otel {
            Some(context) => from_otel(context.span().span_context()),
            None => parent.map_or_else(TraceContext::root, TraceContext::child),
        };
        Self { _span: span, trace, otel }
    }

    /// What the call's work is to be done in, so that its log lines bear the call's ids: this span's
    /// trace, and the request.
    #[must_use]
    pub fn scope(&self, request_id: RequestId) -> Scope {
        Scope::new(self.trace.trace_id, request_id)
    }

    /// This span's own ids: for `traceparent` onward, the audit row and a child's parent.
    #[must_use]
    pub fn trace(&self) -> TraceContext {
        self.trace
    }

    /// Ends a server span. `error_type` is the stable code of what went wrong, if anything did.
    pub fn end_server(self, status: u16, error_type: Option<&str>) {
        self.set(|| {
            let mut attributes =
                vec![KeyValue::new(genai::HTTP_RESPONSE_STATUS_CODE, i64::from(status))];
            // A status below 500 is the caller's fault and no error of this server's (http-spans.md,
            // "Status"), unless the answer broke off after its head.
            if let Some(error_type) = error_type {
                attributes.push(KeyValue::new(genai::ERROR_TYPE, error_type.to_owned()));
            } else if status >= 500 {
                attributes.push(KeyValue::new(genai::ERROR_TYPE, status.to_string()));
            }
            attributes
        });
        if status >= 500 || (status < 400 && error_type.is_some()) {
            self.fail();
        }
    }

    /// Ends a model span.
    pub fn end_model(self, end: &ModelEnd<'_>) {
        self.set(|| {
            let mut attributes = Vec::with_capacity(9);
            let text = [
                (genai::RESPONSE_MODEL, end.response_model),
                (genai::RESPONSE_ID, end.response_id),
                (genai::ERROR_TYPE, end.error_type),
            ];
            attributes.extend(
                text.into_iter()
                    .filter_map(|(key, value)| Some(KeyValue::new(key, value?.to_owned()))),
            );
            if !end.finish_reasons.is_empty() {
                let reasons =
                    end.finish_reasons.iter().map(|reason| StringValue::from((*reason).to_owned()));
                let reasons = Value::Array(Array::String(reasons.collect()));
                attributes.push(KeyValue::new(genai::RESPONSE_FINISH_REASONS, reasons));
            }
            if let Some(usage) = end.usage {
                attributes.extend([
                    count(genai::USAGE_INPUT_TOKENS, usage.input_tokens),
                    count(genai::USAGE_OUTPUT_TOKENS, usage.output_tokens),
                    count(genai::USAGE_CACHE_READ_INPUT_TOKENS, usage.cached_input_tokens),
                    count(genai::USAGE_REASONING_OUTPUT_TOKENS, usage.reasoning_tokens),
                ]);
            }
            attributes.extend(end.time_to_first_chunk.map(|time| {
                KeyValue::new(genai::RESPONSE_TIME_TO_FIRST_CHUNK, time.as_secs_f64())
            }));
            attributes
        });
        if end.error_type.is_some() {
            self.fail();
        }
    }

    fn set(&self, attributes: impl FnOnce() -> Vec<KeyValue>) {
        if let Some(context) = &self.otel
            && context.span().is_recording()
        {
            context.span().set_attributes(attributes());
        }
    }

    fn fail(&self) {
        if let Some(context) = &self.otel {
            context.span().set_status(Status::error(""));
        }
    }
}

impl Drop for CallSpan {
    fn drop(&mut self) {
        // `tracing-opentelemetry` ends a span when its last handle is gone and as of when it was
        // last left. But a stream's task, which logs in its request's span, outlives the request;
        // and a streamed answer's span was last left at its head. Its end is here and now.
        if let Some(context) = &self.otel {
            context.span().end();
        }
    }
}

/// Does this thread's subscriber hand spans to OpenTelemetry?
fn exports() -> bool {
    dispatcher::get_default(Dispatch::is::<OtelLayer>)
}

/// Starts the OpenTelemetry span behind `span`. `None` if there is none.
fn started(span: &Span, parent: Option<&TraceContext>) -> Option<Context> {
    if span.is_disabled() {
        return None;
    }
    if let Some(parent) = parent {
        // It fails for a span that is disabled or was started, and this one is new; a disabled
        // one has no valid context, and is told by that below.
        let _ = span.set_parent(to_otel(parent));
    }
    let context = span.context();
    let valid = context.span().span_context().is_valid();
    valid.then_some(context)
}

fn to_otel(trace: &TraceContext) -> Context {
    let flags = if trace.sampled { TraceFlags::SAMPLED } else { TraceFlags::NOT_SAMPLED };
    Context::new().with_remote_span_context(SpanContext::new(
        TraceId::from(trace.trace_id),
        SpanId::from(trace.span_id),
        flags,
        true,
        TraceState::default(),
    ))
}

fn from_otel(context: &SpanContext) -> TraceContext {
    TraceContext {
        trace_id: u128::from_be_bytes(context.trace_id().to_bytes()),
        span_id: u64::from_be_bytes(context.span_id().to_bytes()),
        sampled: context.is_sampled(),
    }
}

fn count(key: &'static str, value: u64) -> KeyValue {
    KeyValue::new(key, i64::try_from(value).unwrap_or(i64::MAX))
}

/// The methods of RFC 9110 §9 and RFC 5789; others come from strangers and could be anything.
fn known_method(method: &str) -> &'static str {
    const KNOWN: [&str; 9] =
        ["GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS", "TRACE", "CONNECT"];
    KNOWN.into_iter().find(|known| *known == method).unwrap_or(genai::METHOD_OTHER)
}
