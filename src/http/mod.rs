//! The wire: routes, layers, dialects. Nothing below this module knows of HTTP servers.

mod admit;
mod budgets;
mod context;
mod error;
mod extract;
mod layers;
mod metrics;
mod openai;
mod openapi;
mod ops;
mod respond;
mod router;
pub mod server;
mod sse;
mod streams;
mod watch;

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use tokio::sync::Semaphore;

pub use axum::Router;
pub use error::ApiError;
pub use layers::Sweeper;
pub use openapi::document;
pub use router::{admin_router, public_router};

use crate::{auth::Authenticator, pipeline::Gateway};

/// Denials of callers that are not known cost them nothing: of a flood of those so many a second
/// are recorded one by one, and the others counted.
const STRANGERS_RECORDED: Quota =
    Quota::per_second(NonZeroU32::new(20).unwrap()).allow_burst(NonZeroU32::new(200).unwrap());

/// What handlers and layers are given.
#[derive(Debug, Clone)]
pub struct AppState(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    gateway: Arc<Gateway>,
    authenticator: Arc<Authenticator>,
    settings: Settings,
    in_flight: Arc<Semaphore>,
    recorded: DefaultDirectRateLimiter,
    readiness: Readiness,
}

/// The parts of the configuration that the wire itself heeds.
#[derive(Debug, Clone)]
pub struct Settings {
    pub body_limit_bytes: usize,
    pub body_idle_timeout: Duration,
    pub keepalive: Duration,
    pub trusted_proxies: Vec<ipnet::IpNet>,
    pub max_in_flight: usize,
    pub address_requests_per_second: u32,
    pub address_burst: u32,
    pub caller_requests_per_second: u32,
    pub caller_burst: u32,
}

/// Is the gateway to be sent requests? Turned off at the beginning of a drain.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<std::sync::atomic::AtomicBool>);

impl Readiness {
    pub fn set(&self, ready: bool) {
        self.0.store(ready, std::sync::atomic::Ordering::Release);
    }

    #[must_use]
    pub fn get(&self) -> bool {
        self.0.load(std::sync::atomic::Ordering::Acquire)
    }
}

impl AppState {
    #[must_use]
    pub fn new(
        gateway: Arc<Gateway>,
        authenticator: Arc<Authenticator>,
        settings: Settings,
        readiness: Readiness,
    ) -> Self {
        let in_flight = Arc::new(Semaphore::new(settings.max_in_flight));
        let recorded = RateLimiter::direct(STRANGERS_RECORDED);
        Self(Arc::new(Inner { gateway, authenticator, settings, in_flight, recorded, readiness }))
    }

    fn gateway(&self) -> &Arc<Gateway> {
        &self.0.gateway
    }

    fn authenticator(&self) -> &Arc<Authenticator> {
        &self.0.authenticator
    }

    fn settings(&self) -> &Settings {
        &self.0.settings
    }

    fn in_flight(&self) -> &Arc<Semaphore> {
        &self.0.in_flight
    }

    /// Is a denial of somebody unknown to be recorded by itself, or only counted?
    fn records_stranger(&self) -> bool {
        self.0.recorded.check().is_ok()
    }

    fn readiness(&self) -> &Readiness {
        &self.0.readiness
    }
}
