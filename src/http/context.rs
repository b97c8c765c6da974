//! What is known of a request, from its head on.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, OnceLock},
};

use axum::extract::{ConnectInfo, Request};
use http::HeaderMap;
use ipnet::IpNet;
use tokio::time::Instant;

use crate::{
    domain::{Caller, InvalidRunId, RequestId, RunId, TraceContext, TraceState},
    pipeline::Failure,
};

/// Made by the outermost layer for every request, and shared by all that see the request: the
/// limits, the handlers, and the responder that writes and audits a denial.
#[derive(Debug, Clone)]
pub struct RequestContext(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    request_id: RequestId,
    run_id: Result<Option<RunId>, InvalidRunId>,
    operation: &'static str,
    address: Option<IpAddr>,
    trace: TraceContext,
    trace_state: Option<TraceState>,
    arrived: Instant,
    caller: OnceLock<Arc<Caller>>,
    failure: Failure,
}

impl RequestContext {
    pub(super) fn new(
        request_id: RequestId,
        run_id: Result<Option<RunId>, InvalidRunId>,
        operation: &'static str,
        address: Option<IpAddr>,
        trace: TraceContext,
        trace_state: Option<TraceState>,
    ) -> Self {
        Self(Arc::new(Inner {
            request_id,
            run_id,
            operation,
            address,
            trace,
            trace_state,
            arrived: Instant::now(),
            caller: OnceLock::new(),
            failure: Failure::default(),
        }))
    }

    pub(super) fn request_id(&self) -> &RequestId {
        &self.0.request_id
    }

    /// The run that the request says it belongs to. What it says may be no id.
    pub(super) fn run_id(&self) -> Result<Option<&RunId>, InvalidRunId> {
        self.0.run_id.as_ref().map(Option::as_ref).map_err(|error| *error)
    }

    pub(super) fn operation(&self) -> &'static str {
        self.0.operation
    }

    /// The client's address, by way of the proxies that are trusted.
    pub(super) fn address(&self) -> Option<IpAddr> {
        self.0.address
    }

    pub(super) fn trace(&self) -> TraceContext {
        self.0.trace
    }

    /// What came beside the caller's `traceparent`.
    pub(super) fn trace_state(&self) -> Option<&TraceState> {
        self.0.trace_state.as_ref()
    }

    pub(super) fn arrived(&self) -> Instant {
        self.0.arrived
    }

    /// What made the request's call fail, once it has.
    pub(super) fn failure(&self) -> &Failure {
        &self.0.failure
    }

    /// Known once the request is authenticated.
    pub(super) fn caller(&self) -> Option<&Arc<Caller>> {
        self.0.caller.get()
    }

    pub(super) fn set_caller(&self, caller: Arc<Caller>) {
        // Set once a request, by the one layer that authenticates.
        let _ = self.0.caller.set(caller);
    }
}

/// A request belongs to one run or to none.
pub(super) fn run_id(headers: &HeaderMap) -> Result<Option<RunId>, InvalidRunId> {
    let mut values = headers.get_all("x-run-id").iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(InvalidRunId);
    }
    RunId::try_from(value.as_bytes()).map(Some)
}

/// The address of the client: the peer's, or, where the peer is a trusted proxy, the last one in
/// `X-Forwarded-For` that is none.
pub(super) fn client_address(request: &Request, trusted: &[IpNet]) -> Option<IpAddr> {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>()?.0.ip().to_canonical();
    let is_trusted = |address: &IpAddr| trusted.iter().any(|net| net.contains(address));
    if !is_trusted(&peer) {
        return Some(peer);
    }
    // Read from the end: what stands before the first untrusted address is that one's own word.
    let mut client = peer;
    for hop in forwarded_for(request.headers()).rev() {
        let Some(address) = parse_hop(hop) else { break };
        client = address.to_canonical();
        if !is_trusted(&client) {
            break;
        }
    }
    Some(client)
}

/// Whom an address is counted as. IPv6 networks are counted whole: a /64 is one customer.
pub(super) fn customer(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => IpAddr::V6((u128::from(v6) & (u128::MAX << 64)).into()),
    }
}

/// Every hop by itself: what a stranger wrote into the header must not spoil what a proxy added.
fn forwarded_for(headers: &HeaderMap) -> impl DoubleEndedIterator<Item = &[u8]> {
    let values = headers.get_all("x-forwarded-for").iter();
    values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
}

/// Some proxies write the port too.
fn parse_hop(hop: &[u8]) -> Option<IpAddr> {
    let hop = std::str::from_utf8(hop).ok()?.trim();
    let with_port = || hop.parse().ok().map(|address: SocketAddr| address.ip());
    hop.parse().ok().or_else(with_port)
}
