//! One connection, from its handshake to its end.

use std::{
    convert::Infallible,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use axum::{Router, extract::ConnectInfo};
use bytes::Bytes;
use http::{Request, Response, uri::Scheme};
use hyper::{
    body::Incoming,
    rt::Executor,
    server::conn::{http1, http2},
    service::{Service, service_fn},
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, rustls};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Bounds, tls,
    version::{HttpVersion, tell_version},
    watch::{Activity, CountedBody, Verdict, watch},
    watched_io::WatchedIo,
};
use crate::stream::Seldom;

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
/// Holds a listener's connections: what they have in common.
pub(super) struct Conversations {
    http1: http1::Builder,
    http2: http2::Builder<Tracked>,
    router: Router,
    bounds: Bounds,
    tls: Option<TlsAcceptor>,
    stop: CancellationToken,
}

impl Conversations {
    pub(super) fn new(
        router: Router,
        bounds: Bounds,
        tls: Option<Arc<rustls::ServerConfig>>,
        stop: CancellationToken,
        tasks: &TaskTracker,
    ) -> Self {
        let mut http1 = http1::Builder::new();
        // Times are `watch`'s: hyper's own timer counts an idle connection as a slow head.
        http1.header_read_timeout(None).max_buf_size(BUFFER_LIMIT_BYTES);
        // What is written is small, and one piece already: putting its chunk's head and end around it
        // costs less than a queue of three, and that queue takes room while a stream is idle.
        http1.writev(false);
        let mut http2 = http2::Builder::new(Tracked(tasks.clone()));
        http2
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(HEAD_LIMIT_BYTES)
            .max_send_buf_size(BUFFER_LIMIT_BYTES)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
        Self { http1, http2, router, bounds, tls: tls.map(TlsAcceptor::from), stop }
    }

    /// Serves a connection to its end. What is rare is boxed: a connection's task takes as much
    /// room as the largest of what it may become.
    pub(super) async fn hold(&self, stream: TcpStream, peer: SocketAddr) {
        // Without it a stream's small frames wait for the peer's acknowledgements: 44 ms each.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%peer, %error, "the connection was gone before it began");
            return;
        }
        if let Some(tls) = &self.tls {
            return Box::pin(self.hold_tls(tls, stream, peer)).await;
        }
        let talk = Talk::new(&self.bounds, Scheme::HTTP, peer);
        let Some((version, stream, first)) = Box::pin(self.greet(stream, peer)).await else {
            return;
        };
        if version == HttpVersion::Http2 {
            return Box::pin(self.speak_http2(stream, first, talk)).await;
        }
        // As `speak_http1` does; but its arguments would keep their room beside what becomes of them.
        let io = TokioIo::new(WatchedIo::new(stream, first, Arc::clone(&talk.activity)));
        let connection = pin!(self.http1.serve_connection(io, self.service(&talk)));
        self.converse(connection, http1::Connection::graceful_shutdown, &talk).await;
    }

    /// What a client speaks, and what was read from it to know that.
    async fn greet(
        &self,
        mut stream: TcpStream,
        peer: SocketAddr,
    ) -> Option<(HttpVersion, TcpStream, Bytes)> {
        let told = tokio::select! {
            () = self.stop.cancelled() => return None,
            told = tell_version(&mut stream, self.bounds.header_timeout) => told,
        };
        match told {
            Ok((version, first)) => Some((version, stream, first)),
            Err(error) => {
                tracing::debug!(%peer, %error, "no request came");
                None
            }
        }
    }

    async fn hold_tls(&self, tls: &TlsAcceptor, stream: TcpStream, peer: SocketAddr) {
        let talk = Talk::new(&self.bounds, Scheme::HTTPS, peer);
        let handshake = tokio::select! {
            () = self.stop.cancelled() => return,
            handshake = timeout(self.bounds.header_timeout, tls.accept(stream)) => handshake,
        };
        match handshake {
            Ok(Ok(stream)) if stream.get_ref().1.alpn_protocol() == Some(tls::ALPN_H2) => {
                self.speak_http2(stream, Bytes::new(), talk).await;
            }
            Ok(Ok(stream)) => self.speak_http1(stream, Bytes::new(), talk).await,
            Ok(Err(error)) => tracing::debug!(%peer, %error, "a TLS handshake failed"),
            Err(_) => tracing::debug!(%peer, "a TLS handshake took too long"),
        }
    }

    /// `first` was read from the stream before.
    async fn speak_http1<S>(&self, stream: S, first: Bytes, talk: Talk)
    where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let io = TokioIo::new(WatchedIo::new(stream, first, Arc::clone(&talk.activity)));
        let connection = pin!(self.http1.serve_connection(io, self.service(&talk)));
        self.converse(connection, http1::Connection::graceful_shutdown, &talk).await;
    }

    async fn speak_http2<S>(&self, stream: S, first: Bytes, talk: Talk)
    where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let io = TokioIo::new(WatchedIo::new(stream, first, Arc::clone(&talk.activity)));
        let connection = pin!(self.http2.serve_connection(io, self.service(&talk)));
        self.converse(connection, http2::Connection::graceful_shutdown, &talk).await;
    }

    fn service(
        &self,
        talk: &Talk,
    ) -> impl Service<
        Request<Incoming>,
        Response = Response<CountedBody>,
        Error = Infallible,
        Future = impl Future<Output = Result<Response<CountedBody>, Infallible>> + Send + use<>,
    > + use<> {
        let Talk { scheme, peer, activity } = talk.clone();
        let router = self.router.clone();
        service_fn(move |mut request: Request<Incoming>| {
            let call = activity.call(request.version());
            request.extensions_mut().insert(ConnectInfo(peer));
            request.extensions_mut().insert(scheme.clone());
            let answer = tower::Service::call(&mut router.clone(), request);
            async move {
                let answer: Response<_> = answer.await?;
                Ok::<_, Infallible>(answer.map(|body| CountedBody::new(body, call)))
            }
        })
    }

    /// Serves one connection's requests until its end or one of its bounds.
    async fn converse<C>(
        &self,
        mut connection: Pin<&mut C>,
        end_gracefully: fn(Pin<&mut C>),
        talk: &Talk,
    ) where
        C: Future<Output = hyper::Result<()>>,
    {
        let Talk { peer, activity, .. } = talk;
        let verdict = tokio::select! {
            verdict = watch(connection.as_mut(), activity) => verdict,
            () = Seldom::new(self.stop.cancelled()) => Verdict::Stop,
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
        end_gracefully(connection.as_mut());
        tokio::select! {
            _ = connection => {}
            () = activity.quiet() => {}
            () = sleep(self.bounds.drain) => {
                tracing::debug!(%peer, "a connection was cut before its requests ended");
            }
        }
    }
}

/// What is known of one connection.
#[derive(Clone)]
struct Talk {
    scheme: Scheme,
    peer: SocketAddr,
    activity: Arc<Activity>,
}

impl Talk {
    fn new(bounds: &Bounds, scheme: Scheme, peer: SocketAddr) -> Self {
        let activity = Activity::new(bounds.header_timeout, bounds.idle_timeout);
        Self { scheme, peer, activity: Arc::new(activity) }
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
