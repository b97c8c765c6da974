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
    sync::Arc,
    time::Duration,
};

use axum::{body::Body, extract::Request, response::IntoResponse, routing::Route};
use governor::{clock::QuantaInstant, middleware::NoOpMiddleware};
use http::StatusCode;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::{Layer, Service, ServiceBuilder};
use tower_governor::{
    GovernorError, GovernorLayer,
    governor::{GovernorConfig, GovernorConfigBuilder},
    key_extractor::KeyExtractor,
};

use super::{
    ApiError, AppState, Settings,
    admit::{AuthenticateLayer, ShedLayer},
    context::{RequestContext, customer},
    respond::RespondLayer,
};
use crate::domain::{Caller, Denial, Kind};

/// The layers that every request passes, outermost first.
///
/// As one stack, and none by `from_fn`: both `Router` and that clone what they wrap for every request,
/// boxes included, which makes many of them cost their square.
pub(super) fn outer(state: &AppState, sweeper: &Sweeper) -> impl RouteLayer {
    ServiceBuilder::new()
        .layer(RespondLayer(state.clone()))
        .layer(per_address(state.settings(), sweeper))
        .layer(ShedLayer(state.clone()))
}

/// The layers of routes that take a token, outermost first.
pub(super) fn governed(state: &AppState, sweeper: &Sweeper) -> impl RouteLayer {
    ServiceBuilder::new()
        .layer(AuthenticateLayer(state.clone()))
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
