//! What a request passes on its way in, in order, and why in that order.
//!
//! | layer | why there |
//! | --- | --- |
//! | `respond` | outermost: whatever happens further in, a panic too, its answer is written, audited and traced here |
//! | per address | one address's flood must not take the places of all |
//! | `shed` | beyond `max_in_flight` nothing is worth any work, a signature check least |
//! | `authenticate` | who calls; only on governed routes |
//! | per caller | after it, so that nobody's burst costs another who shares the address |
//!
//! What needs the decoded call is no layer but a stage of the story: see [`crate::pipeline`].

use std::{
    convert::Infallible,
    hash::{Hash, Hasher},
    net::IpAddr,
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

use axum::{
    body::Body,
    extract::{MatchedPath, Request, State},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::Route,
};
use futures_util::FutureExt as _;
use governor::{clock::QuantaInstant, middleware::NoOpMiddleware};
use http::{HeaderMap, HeaderValue, StatusCode, uri::Scheme};
use http_body::Body as _;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::{Layer, Service, ServiceBuilder};
use tower_governor::{
    GovernorError, GovernorLayer,
    governor::{GovernorConfig, GovernorConfigBuilder},
    key_extractor::KeyExtractor,
};
use tracing::Instrument as _;

use super::{
    ApiError, AppState, Settings,
    context::{RequestContext, client_address, customer, run_id},
    error, openapi, watch,
};
use crate::{
    audit::{Entry, EntryKind},
    domain::{Caller, Denial, Kind, RequestId, TraceContext, TraceState},
    redact::{Depth, LiveRedactor},
    telemetry::{ServerStart, server_span},
};

/// The layers that every request passes, outermost first.
///
/// As one stack: `Router` clones what each of its layers wraps for every request, boxes included,
/// which makes many layers on it cost their square.
pub(super) fn outer(state: &AppState, sweeper: &Sweeper) -> impl RouteLayer {
    ServiceBuilder::new()
        .layer(from_fn_with_state(state.clone(), respond))
        .layer(per_address(state.settings(), sweeper))
        .layer(from_fn_with_state(state.clone(), shed))
}

/// The layers of routes that take a token, outermost first.
pub(super) fn governed(state: &AppState, sweeper: &Sweeper) -> impl RouteLayer {
    ServiceBuilder::new()
        .layer(from_fn_with_state(state.clone(), authenticate))
        .layer(per_caller(state.settings(), sweeper))
}

/// What `Router` takes as a layer.
pub(super) trait RouteLayer:
    Layer<Route, Service: RouteService> + Clone + Send + Sync + 'static
{
}

impl<L> RouteLayer for L where L: Layer<Route, Service: RouteService> + Clone + Send + Sync + 'static
{}

/// What a [`RouteLayer`] makes of a route.
pub(super) trait RouteService:
    Service<Request, Response: IntoResponse, Error: Into<Infallible>, Future: Send>
    + Clone
    + Send
    + Sync
    + 'static
{
}

impl<S> RouteService for S where
    S: Service<Request, Response: IntoResponse, Error: Into<Infallible>, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static
{
}

/// Makes the request's context, and its answer's headers; writes and audits what is refused.
async fn respond(State(state): State<AppState>, mut request: Request, next: Next) -> Response {
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
    let context = RequestContext::new(
        request_id,
        run_id(headers),
        openapi::operation(request.method(), route),
        client_address(&request, &state.settings().trusted_proxies),
        span.trace(),
        trace_state,
    );
    request.extensions_mut().insert(context.clone());

    let answered = AssertUnwindSafe(next.run(request)).catch_unwind();
    let answered = answered.instrument(span.span().clone()).await;
    let mut response = answered.unwrap_or_else(|_| panicked());
    let failure = response.extensions_mut().remove::<ApiError>();
    let failure = failure.map(|error| error.redacted(redactor));
    if let Some(error) = &failure {
        error::render(error, &path, &mut response);
        record(&state, &context, error);
    }
    put_ids(&context, response.headers_mut());
    let refusal = failure.map(|error| error.denial().kind.code());
    watch::until_sent(response, span, refusal, context.failure())
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

/// Turns requests away while as many are in flight as may be. A streamed answer is in flight
/// until it ends; a whole one is no more work, however slowly its client takes it.
async fn shed(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let Ok(permit) = Arc::clone(state.in_flight()).try_acquire_owned() else {
        let message = "The gateway has as many requests as it can take; try again.";
        let denial = Denial::new(Kind::Overloaded, message).with_retry_after_ms(1_000);
        return ApiError::from(denial).into_response();
    };
    let mut response = next.run(request).await;
    if response.body().size_hint().exact().is_none() {
        response.extensions_mut().insert(watch::InFlight::new(permit));
    }
    response
}

/// Lets in only requests with a valid token, and makes their caller known.
async fn authenticate(
    State(state): State<AppState>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let caller = state.authenticator().authenticate(request.headers(), false).await?;
    if let Some(context) = request.extensions().get::<RequestContext>() {
        context.set_caller(caller);
    }
    Ok(next.run(request).await)
}

/// A limit's key is the client's address.
#[derive(Debug, Clone, Copy)]
struct ByAddress;

impl KeyExtractor for ByAddress {
    type Key = Option<IpAddr>;

    fn extract<T>(&self, request: &http::Request<T>) -> Result<Self::Key, GovernorError> {
        let context = request.extensions().get::<RequestContext>();
        Ok(context.and_then(RequestContext::address).map(customer))
    }
}

/// A limit's key is the caller's subject at its issuer.
#[derive(Debug, Clone, Copy)]
struct ByCaller;

/// A caller, told apart by issuer and subject alone.
#[derive(Debug, Clone)]
struct CallerKey(Arc<Caller>);

impl CallerKey {
    fn parts(&self) -> (&str, &str) {
        (&self.0.issuer, &self.0.subject)
    }
}

impl PartialEq for CallerKey {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for CallerKey {}

impl Hash for CallerKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

impl KeyExtractor for ByCaller {
    type Key = Option<CallerKey>;

    fn extract<T>(&self, request: &http::Request<T>) -> Result<Self::Key, GovernorError> {
        let context = request.extensions().get::<RequestContext>();
        Ok(context.and_then(RequestContext::caller).cloned().map(CallerKey))
    }
}

type Limit<K> = GovernorLayer<K, NoOpMiddleware<QuantaInstant>, Body>;

/// Requests a second for each address.
fn per_address(settings: &Settings, sweeper: &Sweeper) -> Limit<ByAddress> {
    let (rate, burst) = (settings.address_requests_per_second, settings.address_burst);
    limit(ByAddress, rate, burst, sweeper)
}

/// Requests a second for each caller.
fn per_caller(settings: &Settings, sweeper: &Sweeper) -> Limit<ByCaller> {
    let (rate, burst) = (settings.caller_requests_per_second, settings.caller_burst);
    limit(ByCaller, rate, burst, sweeper)
}

fn limit<K>(key: K, per_second: u32, burst: u32, sweeper: &Sweeper) -> Limit<K>
where
    K: KeyExtractor + Send + Sync + 'static,
    K::Key: Send + Sync + 'static,
{
    let nanos = 1_000_000_000 / u64::from(per_second.max(1));
    let config = GovernorConfigBuilder::default()
        .const_period(Duration::from_nanos(nanos.max(1)))
        .const_burst_size(burst.max(1))
        .key_extractor(key)
        .finish();
    // `finish` refuses a period or burst of 0, and these are at least 1.
    let config: Arc<GovernorConfig<K, NoOpMiddleware<QuantaInstant>>> = match config {
        Some(config) => Arc::new(config),
        None => unreachable!("period and burst are at least 1"),
    };
    let limiter = Arc::clone(config.limiter());
    sweeper.every_minute(move || limiter.retain_recent());
    GovernorLayer::new(config).error_handler(refuse)
}

#[expect(clippy::needless_pass_by_value, reason = "the signature that the governor asks for")]
fn refuse(error: GovernorError) -> http::Response<Body> {
    match error {
        GovernorError::TooManyRequests { wait_time, .. } => {
            // The governor cuts off the fraction; whoever waits just that long would be early.
            let retry_after_ms = (wait_time + 1) * 1_000;
            let message = format!("Too many requests; try again in {} s.", wait_time + 1);
            let denial = Denial::new(Kind::RateLimited, message);
            ApiError::from(denial.with_retry_after_ms(retry_after_ms)).into_response()
        }
        _ => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Runs what must be done now and then, until the gateway stops.
#[derive(Debug)]
pub struct Sweeper {
    pub tasks: TaskTracker,
    pub stop: CancellationToken,
}

impl Sweeper {
    pub(crate) fn every_minute(&self, sweep: impl Fn() + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            let mut minute = tokio::time::interval(Duration::from_mins(1));
            while stop.run_until_cancelled(minute.tick()).await.is_some() {
                sweep();
            }
        });
    }
}
