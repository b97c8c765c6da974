//! The outermost layer: whatever becomes of a request, a panic too, its answer is written here.

use std::{
    convert::Infallible,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum::{
    extract::{MatchedPath, Request},
    response::{IntoResponse as _, Response},
};
use futures_util::{FutureExt as _, future::CatchUnwind};
use http::{HeaderMap, HeaderValue, uri::Scheme};
use pin_project_lite::pin_project;
use tower::{Layer, Service};

use super::{
    ApiError, AppState,
    context::{RequestContext, client_address, run_id},
    error, openapi, watch,
};
use crate::{
    audit::{Entry, EntryKind},
    domain::{Kind, RequestId, TraceContext, TraceState},
    redact::{Depth, LiveRedactor},
    telemetry::{CallSpan, InScope, Scope, ServerStart, server_span},
};

/// Makes the request's context, and its answer's headers; writes and audits what is refused.
#[derive(Debug, Clone)]
pub(super) struct RespondLayer(pub AppState);

impl<S> Layer<S> for RespondLayer {
    type Service = Respond<S>;

    fn layer(&self, next: S) -> Respond<S> {
        Respond { state: self.0.clone(), next }
    }
}

/// See [`RespondLayer`].
#[derive(Debug, Clone)]
pub(super) struct Respond<S> {
    state: AppState,
    next: S,
}

impl<S> Service<Request> for Respond<S>
where
    S: Service<Request, Response = Response, Error = Infallible>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Responding<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.next.poll_ready(context)
    }

    fn call(&mut self, mut request: Request) -> Responding<S::Future> {
        let (begun, scope) = Begun::new(&self.state, &mut request);
        let answer = scope.enter(|| catch_unwind(AssertUnwindSafe(|| self.next.call(request))));
        let answer = answer.ok().map(|answer| scope.run(AssertUnwindSafe(answer).catch_unwind()));
        Responding { answer, begun: Some(begun) }
    }
}

pin_project! {
    /// What [`Respond`] waits for.
    pub(super) struct Responding<F> {
        // None: to begin it panicked.
        #[pin]
        answer: Option<InScope<CatchUnwind<AssertUnwindSafe<F>>>>,
        // Until the answer is there.
        begun: Option<Begun>,
    }
}

impl<F> Future for Responding<F>
where
    F: Future<Output = Result<Response, Infallible>>,
{
    type Output = Result<Response, Infallible>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let answer = match this.answer.as_pin_mut() {
            Some(answer) => ready!(answer.poll(context)).unwrap_or_else(|_| Ok(panicked()))?,
            None => panicked(),
        };
        // It is there until this is ready, and then this is polled no more.
        let Some(begun) = this.begun.take() else { return Poll::Pending };
        Poll::Ready(Ok(begun.answer(answer)))
    }
}

/// A request on its way.
struct Begun {
    state: AppState,
    context: RequestContext,
    span: CallSpan,
    path: String,
}

impl Begun {
    fn new(state: &AppState, request: &mut Request) -> (Self, Scope) {
        let matched = request.extensions().get::<MatchedPath>().cloned();
        let route = matched.as_ref().map(MatchedPath::as_str);
        let path = request.uri().path().to_owned();
        let headers = request.headers();
        let redactor = &state.gateway().redactor;
        let request_id = header(headers, "x-request-id").and_then(RequestId::from_caller);
        // It goes to the provider, the log, the trail and back: one that is a secret is not taken.
        let request_id = request_id.filter(|id| !redactor.finds(id.as_str(), Depth::Complete));
        let request_id = request_id.unwrap_or_else(RequestId::generate);
        let is_tls = request.extensions().get() == Some(&Scheme::HTTPS);
        let remote = header(headers, "traceparent").and_then(TraceContext::parse);
        let trace_state = remote.and_then(|_| trace_state(headers, redactor));
        let span = server_span(&ServerStart {
            method: request.method().as_str(),
            route,
            path: &path,
            scheme: if is_tls { "https" } else { "http" },
            request_id: &request_id,
            remote,
        });
        let scope = span.scope(request_id.clone());
        let context = RequestContext::new(
            request_id,
            run_id(headers),
            openapi::operation(request.method(), route),
            client_address(request, &state.settings().trusted_proxies),
            span.trace(),
            trace_state,
        );
        request.extensions_mut().insert(context.clone());
        (Self { state: state.clone(), context, span, path }, scope)
    }

    fn answer(self, mut response: Response) -> Response {
        let Self { state, context, span, path } = self;
        let failure = response.extensions_mut().remove::<ApiError>();
        let failure = failure.map(|error| error.redacted(&state.gateway().redactor));
        if let Some(error) = &failure {
            error::render(error, &path, &mut response);
            record(&state, &context, error);
        }
        put_ids(&context, response.headers_mut());
        let refusal = failure.map(|error| error.denial().kind.code());
        watch::until_sent(response, span, refusal, context.failure())
    }
}

/// A header that is there once: of two, neither is to be believed.
fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())?.to_str().ok()
}

/// What came beside a `traceparent`. It goes to the provider: one with a secret is dropped.
fn trace_state(headers: &HeaderMap, redactor: &LiveRedactor) -> Option<TraceState> {
    let values = headers.get_all("tracestate").iter().map(HeaderValue::to_str);
    let values: Vec<&str> = values.collect::<Result<_, _>>().ok()?;
    let state = TraceState::parse(values)?;
    (!redactor.finds(state.as_str(), Depth::Complete)).then_some(state)
}

fn put_ids(context: &RequestContext, headers: &mut HeaderMap) {
    if let Ok(id) = HeaderValue::from_str(context.request_id().as_str()) {
        headers.insert("x-request-id", id);
    }
    if let Ok(trace) = HeaderValue::try_from(context.trace().to_string()) {
        headers.insert("traceparent", trace);
    }
}

/// Denials are audited here, in one place; those that ended a call that was begun already are.
fn record(state: &AppState, context: &RequestContext, error: &ApiError) {
    let refused = error.refused();
    let denial = error.denial();
    let kind = denial.kind;
    if kind.status() >= 500 {
        tracing::warn!(code = kind.code(), "a request failed");
    }
    if refused.recorded || !matches!(kind.status(), 401 | 403 | 429) {
        return;
    }
    if context.caller().is_none() && !state.records_stranger() {
        return state.gateway().audit.denied_unrecorded();
    }
    tracing::info!(code = kind.code(), reason = error.reason(), "a request was denied");
    let mut entry =
        Entry::new(EntryKind::Denied, context.operation(), context.request_id().as_str());
    entry.run_id = context.run_id().ok().flatten().map(|id| id.as_str().to_owned());
    entry.caller = context.caller().cloned();
    entry.required.clone_from(&refused.required);
    entry.model.clone_from(&refused.model);
    entry.trace_id = Some(context.trace().trace_id);
    entry.client_address = context.address();
    entry.outcome = Some(kind.code());
    entry.status = Some(kind.status());
    entry.latency = Some(context.arrived().elapsed());
    entry.detail = Some(error.reason().map_or_else(|| denial.message.clone(), str::to_owned));
    state.gateway().audit.denied(entry);
}

/// A panic's answer. What it said is in the log, by the panic hook, not here.
fn panicked() -> Response {
    let message = "The gateway failed; the request id finds it in the log.";
    ApiError::new(Kind::Internal, message).into_response()
}
