//! What is listened on, and what is turned away before any work is done for it.

use std::{net::SocketAddr, path::PathBuf};

use ipnet::IpNet;
use serde::Deserialize;

/// `[server]`: what is listened on and the bounds of one connection and request.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub struct ServerConfig {
    pub listen: SocketAddr,
    /// Health and readiness; never to be reachable by the public.
    pub admin_listen: SocketAddr,
    pub body_limit_bytes: usize,
    /// For the whole head of a request, and for a TLS handshake.
    pub header_timeout_s: u64,
    /// The longest pause between two pieces of a request's body.
    pub body_idle_timeout_s: u64,
    pub request_timeout_s: u64,
    /// What open streams get to finish in after SIGTERM.
    pub drain_s: u64,
    /// Peers whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNet>,
    pub tls: Option<TlsConfig>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            admin_listen: SocketAddr::from(([127, 0, 0, 1], 9090)),
            body_limit_bytes: 4_194_304,
            header_timeout_s: 10,
            body_idle_timeout_s: 30,
            request_timeout_s: 600,
            drain_s: 30,
            trusted_proxies: Vec::new(),
            tls: None,
        }
    }
}

/// `server.tls`: PEM files of a certificate chain and its key.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct TlsConfig {
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// `[admission]`: what is turned away before any work is done for it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub struct AdmissionConfig {
    /// Connections open at once; further ones wait in the kernel's queue.
    pub max_connections: usize,
    /// Of one address, or IPv6 /64, open at once; further ones are closed. Peers of
    /// `server.trusted_proxies` are not bound by it: through one come many clients.
    pub max_connections_per_address: usize,
    /// Requests in flight at once (open streams count); beyond it 503 `overloaded`.
    pub max_in_flight: usize,
    /// Requests a second of one address, before authentication.
    pub address_requests_per_second: u32,
    pub address_burst: u32,
    /// Requests a second of one subject, after authentication.
    pub caller_requests_per_second: u32,
    pub caller_burst: u32,
}

impl Default for AdmissionConfig {
    fn default() -> Self {
        Self {
            max_connections: 16_384,
            max_connections_per_address: 1_024,
            max_in_flight: 8_192,
            address_requests_per_second: 500,
            address_burst: 1_000,
            caller_requests_per_second: 200,
            caller_burst: 400,
        }
    }
}
