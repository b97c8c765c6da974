//! How a provider is reached: over connections of our own, or by way of the proxy that the environment
//! names for it.
//!
//! Our own are hyper's. `reqwest` has it all, and is what proxies are left to; but for each request it
//! parses the URL anew, twice, and copies the head three times, for redirects that we don't follow.

use std::{
    error::Error,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{FutureExt as _, future::BoxFuture};
use http::{Request, Response, Uri};
use http_body::{Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::{
    client::{
        legacy::{self, connect::HttpConnector},
        proxy::matcher::Matcher,
    },
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use reqwest::redirect;
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::rustls::{ClientConfig, crypto::aws_lc_rs};
use tower::Service;

/// An idle connection is kept no longer.
const POOL_IDLE: Duration = Duration::from_mins(1);
/// How often a silent peer is asked whether it is there, and how often in vain until it is not.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 3;
/// What a provider may send ahead over HTTP/2 on one stream, and on all of a connection's. One client
/// that reads slowly must not fill the window that all calls share.
const HTTP2_STREAM_WINDOW_BYTES: u32 = 256 << 10;
const HTTP2_CONNECTION_WINDOW_BYTES: u32 = 64 << 20;
/// So often a request that the server says it has not begun is sent again.
const MAX_RESENDS: usize = 2;

type Cause = Box<dyn Error + Send + Sync>;

/// A provider's pool of connections.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one for each provider")]
pub(super) enum Client {
    Direct(legacy::Client<Connector, Full<Bytes>>),
    Proxied(reqwest::Client),
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) struct SendError {
    pub is_connect: bool,
    pub cause: String,
}

impl Client {
    /// For what `to` is at. `connect` bounds a handshake, TLS included.
    ///
    /// # Errors
    /// A sentence on why there can be none.
    pub fn new(to: &Uri, connect: Duration) -> Result<Self, String> {
        let failed = |error: &dyn fmt::Display| format!("the HTTP client cannot be built: {error}");
        if Matcher::from_env().intercept(to).is_some() {
            let client = reqwest::Client::builder()
                .connect_timeout(connect)
                .redirect(redirect::Policy::none())
                .pool_idle_timeout(POOL_IDLE)
                .tcp_nodelay(true)
                .http2_initial_stream_window_size(HTTP2_STREAM_WINDOW_BYTES)
                .http2_initial_connection_window_size(HTTP2_CONNECTION_WINDOW_BYTES)
                .build();
            return client.map(Self::Proxied).map_err(|error| failed(&error));
        }
        let connector = Connector::new(connect).map_err(|error| failed(&error))?;
        let client = legacy::Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE)
            .http2_initial_stream_window_size(HTTP2_STREAM_WINDOW_BYTES)
            .http2_initial_connection_window_size(HTTP2_CONNECTION_WINDOW_BYTES)
            .build(connector);
        Ok(Self::Direct(client))
    }

    /// Sends the request that `make` makes, and takes the answer's head. Redirects are not followed.
    pub async fn send(
        &self,
        make: impl Fn() -> Request<Bytes> + Send,
    ) -> Result<Response<Body>, SendError> {
        match self {
            Self::Direct(client) => {
                let response = send_directly(client, make).await.map_err(|error| SendError {
                    is_connect: error.is_connect(),
                    cause: causes(error.source()),
                })?;
                Ok(response.map(Body::Direct))
            }
            Self::Proxied(client) => {
                let sent = async { client.execute(make().try_into()?).await };
                let response = sent.await.map_err(|error: reqwest::Error| SendError {
                    is_connect: error.is_connect(),
                    cause: causes(error.source()),
                })?;
                Ok(Response::<reqwest::Body>::from(response).map(Body::Proxied))
            }
        }
    }
}

async fn send_directly(
    client: &legacy::Client<Connector, Full<Bytes>>,
    make: impl Fn() -> Request<Bytes> + Send,
) -> Result<Response<Incoming>, legacy::Error> {
    let mut sent = client.request(make().map(Full::new)).await;
    for _ in 0..MAX_RESENDS {
        if !sent.as_ref().is_err_and(is_untouched) {
            break;
        }
        sent = client.request(make().map(Full::new)).await;
    }
    sent
}

/// Does the server say that it has not begun with the request? (RFC 9113 §§6.8, 8.7.)
fn is_untouched(error: &legacy::Error) -> bool {
    let Some(error) = sources(error).find_map(|cause| cause.downcast_ref::<h2::Error>()) else {
        return false;
    };
    let is_shutdown = error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR);
    let is_refused = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
    error.is_remote() && (is_shutdown || is_refused)
}

fn sources<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(error.source(), |cause| (*cause).source())
}

/// An error's causes, for the log. What is at the top of `reqwest`'s has the URL in its text; it holds
/// no credentials (validation sees to it), but is left out all the same.
fn causes(first: Option<&(dyn Error + 'static)>) -> String {
    let mut text = String::new();
    for cause in std::iter::successors(first, |cause| (*cause).source()) {
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&cause.to_string());
    }
    if text.is_empty() { "the connection failed".to_owned() } else { text }
}

/// An answer's body, as it comes in.
#[derive(Debug)]
pub(super) enum Body {
    Direct(Incoming),
    Proxied(reqwest::Body),
}

impl http_body::Body for Body {
    type Data = Bytes;
    /// What broke it off, in a sentence.
    type Error = String;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, String>>> {
        match self.get_mut() {
            Self::Direct(body) => {
                let frame = Pin::new(body).poll_frame(context);
                frame.map_err(|error| causes(Some(&error)))
            }
            Self::Proxied(body) => {
                let frame = Pin::new(body).poll_frame(context);
                frame.map_err(|error| causes(error.source()))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Direct(body) => body.is_end_stream(),
            Self::Proxied(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Direct(body) => body.size_hint(),
            Self::Proxied(body) => body.size_hint(),
        }
    }
}

/// Makes connections. Shared, as hyper's client copies it for each request.
#[derive(Debug, Clone)]
pub(super) struct Connector(Arc<Connecting>);

#[derive(Debug)]
struct Connecting {
    https: HttpsConnector<HttpConnector>,
    within: Duration,
}

impl Connector {
    fn new(within: Duration) -> Result<Self, Cause> {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_keepalive(Some(KEEPALIVE));
        http.set_keepalive_interval(Some(KEEPALIVE));
        http.set_keepalive_retries(Some(KEEPALIVE_PROBES));
        // Of several addresses each gets its share of it.
        http.set_connect_timeout(Some(within));
        let tls = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_platform_verifier()?
            .with_no_client_auth();
        let https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        let https = https.enable_all_versions().wrap_connector(http);
        Ok(Self(Arc::new(Connecting { https, within })))
    }
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = Cause;
    type Future = BoxFuture<'static, Result<Self::Response, Cause>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Cause>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let Connecting { https, within } = &*self.0;
        let (connecting, within) = (https.clone().call(to), *within);
        let connected = async move {
            let late = |_| format!("no connection within {} ms", within.as_millis());
            timeout(within, connecting).await.map_err(late)?
        };
        connected.boxed()
    }
}
