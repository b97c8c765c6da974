//! The accept loop and its connections, over hyper itself.
//!
//! `axum::serve` sets no `TCP_NODELAY` and gives hyper no timer. Here each connection has a bound
//! on its head, its handshake, its idleness and its end, and their number has one too, in all and
//! for each address.

mod address;
mod connection;
mod tls;
mod version;
mod watch;
mod watched_io;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::Router;
use ipnet::IpNet;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::sleep,
};
use tokio_rustls::rustls;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use address::{AddressPlace, Addresses};
pub use rustls::ServerConfig as ServerTls;
pub use tls::{TlsError, tls_config};

use self::connection::Conversations;
use crate::config::{AdmissionConfig, ServerConfig};

/// Longer than the 60 s for which load balancers keep an idle connection, so that it is they
/// who close it and no request meets a connection that was just closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(75);
/// After `drain_s` streams get their last frame; this is for its way out.
const DRAIN_GRACE: Duration = Duration::from_secs(5);
/// After an accept that failed for want of something, such as file descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_secs(1);

/// What a listener's connections may take.
#[derive(Debug, Clone)]
pub struct Bounds {
    /// Open at once; further ones wait in the kernel's queue.
    pub max_connections: usize,
    /// Of one address (IPv6: of one /64); further ones are closed at once.
    pub max_connections_per_address: usize,
    /// Their connections are not counted as of one address.
    pub trusted_proxies: Vec<IpNet>,
    /// For a TLS handshake, for a connection's first request, and for each request's head.
    pub header_timeout: Duration,
    /// Without a request for this long a connection is closed, and with answers of which nothing
    /// is read for this long to twice as long.
    pub idle_timeout: Duration,
    /// From `stop` on, for requests in flight to end.
    pub drain: Duration,
}

impl Bounds {
    #[must_use]
    pub fn new(server: &ServerConfig, admission: &AdmissionConfig) -> Self {
        Self {
            max_connections: admission.max_connections,
            max_connections_per_address: admission.max_connections_per_address,
            trusted_proxies: server.trusted_proxies.clone(),
            header_timeout: Duration::from_secs(server.header_timeout_s),
            idle_timeout: IDLE_TIMEOUT,
            drain: Duration::from_secs(server.drain_s) + DRAIN_GRACE,
        }
    }
}

/// Accepts connections until `stop`, and then closes the listener and returns.
///
/// Connections are `tasks`. After `stop` they finish the requests that are in flight, take no
/// new ones, and are cut when `bounds.drain` is over: `tasks.wait()` ends by then.
///
/// Requests carry `ConnectInfo<SocketAddr>` and `http::uri::Scheme` as extensions. Speaks HTTP/1.1 and
/// HTTP/2; over TLS as ALPN agrees, without as the first bytes say.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    bounds: Bounds,
    tls: Option<Arc<rustls::ServerConfig>>,
    stop: CancellationToken,
    tasks: TaskTracker,
) {
    let places = Arc::new(Semaphore::new(bounds.max_connections));
    let addresses =
        Addresses::new(bounds.max_connections_per_address, bounds.trusted_proxies.clone());
    let addresses = Arc::new(addresses);
    let conversations = Arc::new(Conversations::new(router, bounds, tls, stop.clone(), &tasks));
    let accepting = async {
        // The semaphore is never closed, so this goes on until it is dropped.
        while let Ok(place) = Arc::clone(&places).acquire_owned().await {
            let (stream, peer) = accept(&listener).await;
            let Some(address_place) = addresses.take(peer.ip()) else {
                let refused = addresses.refused();
                tracing::debug!(%peer, refused, "an address has too many connections");
                continue;
            };
            let conversations = Arc::clone(&conversations);
            tasks.spawn(async move {
                conversations.hold(stream, peer).await;
                drop((place, address_place));
            });
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = accepting => {}
    }
}

/// The next connection; waits out what goes wrong with the listener.
async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            // That one connection's own trouble; the next is no worse for it.
            Err(error)
                if matches!(
                    error.kind(),
                    ConnectionAborted | ConnectionRefused | ConnectionReset
                ) => {}
            Err(error) => {
                tracing::warn!(%error, "no connection can be accepted; trying again");
                sleep(ACCEPT_BACKOFF).await;
            }
        }
    }
}
