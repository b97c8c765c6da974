//! The accept loop and its connections, over hyper itself.
//!
//! `axum::serve` sets no `TCP_NODELAY` and gives hyper no timer. Here each connection has a bound
//! on its head, its handshake, its idleness and its end, and their number has one too, in all and
//! for each address.

mod address;
mod io;
mod tls;
mod watch;

use std::{
    convert::Infallible, io as std_io, net::SocketAddr, pin::pin, sync::Arc, time::Duration,
};

use axum::{Router, extract::ConnectInfo};
use http::{Request, uri::Scheme};
use hyper::{body::Incoming, rt::Executor, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::conn::auto,
};
use ipnet::IpNet;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, rustls};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::Service;

pub use address::{AddressPlace, Addresses};
pub use rustls::ServerConfig as ServerTls;
pub use tls::{TlsError, tls_config};

use self::{
    io::WatchedIo,
    watch::{Activity, CountedBody, Verdict, watch},
};
use crate::config::{AdmissionConfig, ServerConfig};

/// An HTTP/2 request's whole head; beyond it 431.
const HEAD_LIMIT_BYTES: u32 = 65_536;
/// What one connection buffers in each direction. A head of HTTP/1 must fit in; beyond it 431.
const BUFFER_LIMIT_BYTES: usize = 65_536;
/// Requests at once on one HTTP/2 connection.
const MAX_STREAMS: u32 = 256;
/// What a peer may send ahead on one stream, and on all of a connection's.
const STREAM_WINDOW_BYTES: u32 = 262_144;
const CONNECTION_WINDOW_BYTES: u32 = 524_288;
/// An HTTP/2 peer that does not answer a ping is gone.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
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
    /// Without a request for this long, or with answers that are not read for this long, a
    /// connection is closed.
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
/// Requests carry `ConnectInfo<SocketAddr>` and [`Scheme`] as extensions. Speaks HTTP/1.1 and
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
    let shared = Arc::new(Shared {
        builders: Builders::new(&tasks),
        router,
        bounds,
        tls: tls.map(TlsAcceptor::from),
        stop: stop.clone(),
    });
    let accepting = async {
        // The semaphore is never closed, so this goes on until it is dropped.
        while let Ok(place) = Arc::clone(&places).acquire_owned().await {
            let (stream, peer) = accept(&listener).await;
            let Some(address_place) = addresses.take(peer.ip()) else {
                let refused = addresses.refused();
                tracing::debug!(%peer, refused, "an address has too many connections");
                continue;
            };
            let shared = Arc::clone(&shared);
            tasks.spawn(async move {
                shared.run(stream, peer).await;
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
    use std_io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
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

/// hyper's settings, for each way in which a version is agreed on.
struct Builders {
    /// By the connection's first bytes.
    either: auto::Builder<Tracked>,
    http1: auto::Builder<Tracked>,
    http2: auto::Builder<Tracked>,
}

impl Builders {
    fn new(tasks: &TaskTracker) -> Self {
        let mut either = auto::Builder::new(Tracked(tasks.clone()));
        // Times are `watch`'s: hyper's own timer counts an idle connection as a slow head.
        either.http1().header_read_timeout(None).max_buf_size(BUFFER_LIMIT_BYTES);
        either
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(HEAD_LIMIT_BYTES)
            .max_send_buf_size(BUFFER_LIMIT_BYTES)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
        Self { http1: either.clone().http1_only(), http2: either.clone().http2_only(), either }
    }
}

/// Runs HTTP/2's streams as tasks that are waited for, too.
#[derive(Debug, Clone)]
struct Tracked(TaskTracker);

impl<F> Executor<F> for Tracked
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}

/// What a listener's connections have in common.
struct Shared {
    builders: Builders,
    router: Router,
    bounds: Bounds,
    tls: Option<TlsAcceptor>,
    stop: CancellationToken,
}

impl Shared {
    async fn run(&self, stream: TcpStream, peer: SocketAddr) {
        // Without it a stream's small frames wait for the peer's acknowledgements: 44 ms each.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%peer, %error, "the connection was gone before it began");
            return;
        }
        let Some(tls) = &self.tls else {
            return self.converse(&self.builders.either, Scheme::HTTP, stream, peer).await;
        };
        let handshake = timeout(self.bounds.header_timeout, tls.accept(stream));
        let handshake = tokio::select! {
            () = self.stop.cancelled() => return,
            handshake = handshake => handshake,
        };
        match handshake {
            Ok(Ok(stream)) => {
                let is_h2 = stream.get_ref().1.alpn_protocol() == Some(tls::ALPN_H2);
                let builder = if is_h2 { &self.builders.http2 } else { &self.builders.http1 };
                self.converse(builder, Scheme::HTTPS, stream, peer).await;
            }
            Ok(Err(error)) => tracing::debug!(%peer, %error, "a TLS handshake failed"),
            Err(_) => tracing::debug!(%peer, "a TLS handshake took too long"),
        }
    }

    /// Serves one connection's requests until its end or one of its bounds.
    async fn converse(
        &self,
        builder: &auto::Builder<Tracked>,
        scheme: Scheme,
        stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
        peer: SocketAddr,
    ) {
        let activity =
            Arc::new(Activity::new(self.bounds.header_timeout, self.bounds.idle_timeout));
        let calls = Arc::clone(&activity);
        let service = service_fn(move |mut request: Request<Incoming>| {
            let call = calls.call(request.version());
            request.extensions_mut().insert(ConnectInfo(peer));
            request.extensions_mut().insert(scheme.clone());
            let answer = self.router.clone().call(request);
            async move {
                let answer = answer.await?;
                Ok::<_, Infallible>(answer.map(|body| CountedBody::new(body, call)))
            }
        });
        let io = TokioIo::new(WatchedIo::new(stream, Arc::clone(&activity)));
        let mut connection = pin!(builder.serve_connection(io, service));
        let verdict = tokio::select! {
            verdict = watch(connection.as_mut(), &activity) => verdict,
            () = self.stop.cancelled() => Verdict::Stop,
        };
        match verdict {
            Verdict::Ended(Ok(())) => return,
            Verdict::Ended(Err(error)) => {
                return tracing::debug!(%peer, %error, "a connection broke off");
            }
            Verdict::Late => return tracing::debug!(%peer, "a request's head took too long"),
            Verdict::Stalled => return tracing::debug!(%peer, "an answer was not read for long"),
            Verdict::Idle | Verdict::Stop => {}
        }
        // What is in flight may end; a head that is half there, or to come, may not begin.
        connection.as_mut().graceful_shutdown();
        tokio::select! {
            _ = connection => {}
            () = activity.quiet() => {}
            () = sleep(self.bounds.drain) => {
                tracing::debug!(%peer, "a connection was cut before its requests ended");
            }
        }
    }
}
