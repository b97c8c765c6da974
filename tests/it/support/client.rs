//! A client that sees what real clients hide: single events as they come, how a stream ended, and
//! raw bytes both ways.

use std::{fmt, net::SocketAddr, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::AbortHandle,
    time::{Instant, timeout_at},
};

use super::event_stream::{EventStream, Item, ServerSentEvent};
pub use super::patience::eventually;

/// How long anything may take that a test did not give a time of its own.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    /// HTTP/2 over cleartext, without an upgrade (RFC 9113 §3.3).
    Http2,
}

/// Makes requests to one server, each on a connection of its own.
#[derive(Debug, Clone)]
pub struct Client {
    address: SocketAddr,
    protocol: Protocol,
    token: Option<String>,
}

impl Client {
    pub fn new(address: SocketAddr) -> Self {
        Self { address, protocol: Protocol::Http1, token: None }
    }

    pub fn http2(mut self) -> Self {
        self.protocol = Protocol::Http2;
        self
    }

    /// Sends this bearer token with each request.
    pub fn with_token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    pub fn get(&self, path: &str) -> Call {
        self.request(Method::GET, path)
    }

    pub fn post(&self, path: &str) -> Call {
        self.request(Method::POST, path)
    }

    pub fn delete(&self, path: &str) -> Call {
        self.request(Method::DELETE, path)
    }

    pub fn request(&self, method: Method, path: &str) -> Call {
        let mut headers = HeaderMap::new();
        if let Some(token) = &self.token {
            let value = HeaderValue::try_from(format!("Bearer {token}")).expect("a token");
            headers.insert(header::AUTHORIZATION, value);
        }
        let (client, path) = (self.clone(), path.to_owned());
        Call { client, method, path, headers, body: Bytes::new() }
    }
}

/// A request that was not sent yet.
#[must_use]
pub struct Call {
    client: Client,
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

impl Call {
    /// Sets a header, in the place of one of the same name.
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(name, HeaderValue::from_str(value).expect("a header's value"));
        self
    }

    /// Adds a header beside those of the same name.
    pub fn header_too(mut self, name: &'static str, value: &str) -> Self {
        self.headers.append(name, HeaderValue::from_str(value).expect("a header's value"));
        self
    }

    pub fn without_header(mut self, name: &'static str) -> Self {
        self.headers.remove(name);
        self
    }

    pub fn json(self, body: &serde_json::Value) -> Self {
        self.header("content-type", "application/json").body(body.to_string())
    }

    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Sends it and waits for the head of the answer.
    pub async fn send(self) -> Response {
        let shown = format!("{} {}", self.method, self.path);
        let sent = tokio::time::timeout(PATIENCE, self.try_send()).await;
        let answered = sent.unwrap_or_else(|_| panic!("{shown}: no answer in {PATIENCE:?}"));
        answered.unwrap_or_else(|error| panic!("{shown}: {error}"))
    }

    /// As [`Call::send`], where the server may refuse or hang up.
    pub async fn try_send(self) -> Result<Response, SendError> {
        let stream = TcpStream::connect(self.client.address).await?;
        stream.set_nodelay(true)?;
        let io = TokioIo::new(stream);
        let mut request = Request::builder().method(self.method).uri(match self.client.protocol {
            Protocol::Http1 => self.path,
            Protocol::Http2 => format!("http://{}{}", self.client.address, self.path),
        });
        *request.headers_mut().expect("the request is well-formed") = self.headers;
        if self.client.protocol == Protocol::Http1 {
            request = request.header(header::HOST, self.client.address.to_string());
        }
        let request = request.body(Full::new(self.body)).expect("the request is well-formed");
        let (answer, connection) = match self.client.protocol {
            Protocol::Http1 => {
                let (mut sender, connection) = http1::handshake(io).await?;
                let connection = tokio::spawn(connection).abort_handle();
                (sender.send_request(request).await?, connection)
            }
            Protocol::Http2 => {
                let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
                let connection = tokio::spawn(connection).abort_handle();
                (sender.send_request(request).await?, connection)
            }
        };
        let (head, body) = answer.into_parts();
        Ok(Response { status: head.status, headers: head.headers, body, connection })
    }
}

/// There was no answer.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    #[error("the connection: {0}")]
    Connection(#[from] std::io::Error),
    #[error("the answer: {0}")]
    Answer(#[from] hyper::Error),
}

/// An answer whose body is still coming. Dropping it closes the connection: the client hangs up.
pub struct Response {
    pub status: StatusCode,
    pub headers: HeaderMap,
    body: Incoming,
    connection: AbortHandle,
}

impl Drop for Response {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.status, self.headers)
    }
}

impl Response {
    /// The one header of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let values: Vec<_> = self.headers.get_all(name).iter().collect();
        assert!(values.len() <= 1, "`{name}` came twice: {values:?}");
        values.first().map(|value| value.to_str().expect("the header is text"))
    }

    /// The whole body.
    pub async fn bytes(mut self) -> Bytes {
        let deadline = Instant::now() + PATIENCE;
        let mut whole = Vec::new();
        while let Some(piece) = self.next_piece(deadline).await {
            let piece = piece.unwrap_or_else(|error| panic!("{self:?}: the body broke: {error}"));
            whole.extend_from_slice(&piece);
        }
        Bytes::from(whole)
    }

    pub async fn text(self) -> String {
        String::from_utf8(self.bytes().await.to_vec()).expect("the body is UTF-8")
    }

    pub async fn json(self) -> serde_json::Value {
        let text = self.text().await;
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Reads the body as an event stream.
    pub fn events(self) -> Events {
        Events {
            response: self,
            stream: EventStream::default(),
            unread: Bytes::new(),
            received: Vec::new(),
            comments: 0,
            retry_ms: None,
            broken: None,
        }
    }

    pub async fn next_piece(&mut self, deadline: Instant) -> Option<Result<Bytes, hyper::Error>> {
        loop {
            let Ok(frame) = timeout_at(deadline, self.body.frame()).await else {
                panic!("{self:?}: the body stood still");
            };
            match frame?.map(hyper::body::Frame::into_data) {
                Ok(Ok(bytes)) => return Some(Ok(bytes)),
                Ok(Err(_trailers)) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// An event stream, read one event at a time. Dropping it hangs up.
pub struct Events {
    response: Response,
    stream: EventStream,
    unread: Bytes,
    /// Every byte of the body so far.
    pub received: Vec<u8>,
    pub comments: usize,
    /// The last reconnection time.
    pub retry_ms: Option<u64>,
    /// Why the body ended early, if it did.
    pub broken: Option<String>,
}

impl Events {
    /// The next event, or `None` at the body's end, good or bad ([`Events::broken`] tells).
    /// Panics when `patience` is over.
    pub async fn next_event(&mut self, patience: Duration) -> Option<ServerSentEvent> {
        let deadline = Instant::now() + patience;
        loop {
            while let Some((&byte, rest)) = self.unread.split_first() {
                self.unread = self.unread.slice_ref(rest);
                for item in self.stream.push(byte) {
                    match item {
                        Item::Event(event) => return Some(event),
                        Item::Comment(_) => self.comments += 1,
                        Item::Retry(retry_ms) => self.retry_ms = Some(retry_ms),
                    }
                }
            }
            match self.response.next_piece(deadline).await? {
                Ok(bytes) => {
                    self.received.extend_from_slice(&bytes);
                    self.unread = bytes;
                }
                Err(error) => {
                    self.broken = Some(error.to_string());
                    return None;
                }
            }
        }
    }

    /// The next event, which has to come.
    pub async fn expect_event(&mut self) -> ServerSentEvent {
        let event = self.next_event(PATIENCE).await;
        event.unwrap_or_else(|| panic!("the stream ended; broken: {:?}", self.broken))
    }

    /// All further events, to the body's end.
    pub async fn rest(&mut self) -> Vec<ServerSentEvent> {
        let mut events = Vec::new();
        while let Some(event) = self.next_event(PATIENCE).await {
            events.push(event);
        }
        events
    }
}

/// A connection on which a test writes whatever it likes.
pub struct RawConnection {
    stream: TcpStream,
}

impl RawConnection {
    pub async fn open(address: SocketAddr) -> Self {
        Self::try_open(address).await.expect("the server listens")
    }

    /// As [`RawConnection::open`], where the server may be gone.
    pub async fn try_open(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream })
    }

    /// Fails once the server has closed.
    pub async fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// What the server writes until `end` has come. Panics when it closes before.
    pub async fn read_until(&mut self, end: &[u8]) -> Vec<u8> {
        let deadline = Instant::now() + PATIENCE;
        let mut read = Vec::new();
        while memchr::memmem::find(&read, end).is_none() {
            let shown = String::from_utf8_lossy(&read).into_owned();
            let more = timeout_at(deadline, self.stream.read_buf(&mut read)).await;
            let more = more.unwrap_or_else(|_| panic!("the server stood still after {shown:?}"));
            assert!(matches!(more, Ok(1..)), "the server closed ({more:?}) after {shown:?}");
        }
        read
    }

    /// What the server writes until it closes, in order or not. Panics when `patience` is over.
    pub async fn read_to_close(&mut self, patience: Duration) -> Vec<u8> {
        let deadline = Instant::now() + patience;
        let mut read = Vec::new();
        loop {
            match timeout_at(deadline, self.stream.read_buf(&mut read)).await {
                Ok(Ok(1..)) => {}
                Ok(Ok(0) | Err(_)) => return read,
                Err(elapsed) => panic!("{elapsed} after {:?}", String::from_utf8_lossy(&read)),
            }
        }
    }
}
