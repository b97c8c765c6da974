//! The accept loop: what a connection may and may not do, seen from a raw socket.

mod address;
mod stall;
mod tls;
mod version;

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{ConnectInfo, DefaultBodyLimit, Extension, State},
    response::Response,
    routing::{get, post},
};
use futures_util::stream;
use http::uri::Scheme;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Notify, Semaphore},
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tollgate::{
    config::{AdmissionConfig, ServerConfig, TlsConfig},
    http::server::{Bounds, serve, tls_config},
};

/// Nothing here takes longer than this unless it is broken.
const PATIENCE: Duration = Duration::from_secs(5);

/// The gates of `/held`: how far a request is, and how far it may go.
#[derive(Default)]
struct Gates {
    entered: Notify,
    leave: Notify,
}

struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    tasks: TaskTracker,
    gates: Arc<Gates>,
}

/// Short bounds; each test that waits for one sets the others to `PATIENCE` or more.
fn bounds() -> Bounds {
    Bounds {
        max_connections: 100,
        max_connections_per_address: 100,
        trusted_proxies: Vec::new(),
        header_timeout: PATIENCE * 2,
        idle_timeout: PATIENCE * 2,
        drain: PATIENCE * 2,
    }
}

const SHORT: Duration = Duration::from_millis(150);

fn router(gates: Arc<Gates>) -> Router {
    let who = |ConnectInfo(peer): ConnectInfo<SocketAddr>, Extension(scheme): Extension<Scheme>| async move {
        format!("{scheme} {}", peer.ip())
    };
    // An answer whose head comes at once and whose body when it is let go.
    let held = |State(gates): State<Arc<Gates>>| async move {
        gates.entered.notify_one();
        let body = stream::once(async move {
            gates.leave.notified().await;
            Ok::<_, std::convert::Infallible>(Bytes::from_static(b"finished"))
        });
        Response::new(Body::from_stream(body))
    };
    let endless = |State(gates): State<Arc<Gates>>| async move { stall::endless(gates) };
    Router::new()
        .route("/endless", get(endless))
        .route("/who", get(who))
        .route("/held", get(held))
        .route("/echo", post(|body: Bytes| async { body }).layer(DefaultBodyLimit::disable()))
        .with_state(gates)
}

async fn start(bounds: Bounds) -> Server {
    start_with(bounds, None).await
}

async fn start_with(bounds: Bounds, tls: Option<&TlsConfig>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = Server {
        address: listener.local_addr().unwrap(),
        stop: CancellationToken::new(),
        tasks: TaskTracker::new(),
        gates: Arc::default(),
    };
    let (router, stop) = (router(Arc::clone(&server.gates)), server.stop.clone());
    let tls = tls.map(|files| tls_config(files).unwrap());
    server.tasks.spawn(serve(listener, router, bounds, tls, stop, server.tasks.clone()));
    server
}

impl Server {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Waits until only the listener's own task is left.
    async fn connections_gone(&self) {
        let gone = async {
            while self.tasks.len() > 1 {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, gone).await.expect("a connection is still open");
    }

    async fn stopped(&self) {
        self.stop.cancel();
        self.tasks.close();
        timeout(PATIENCE, self.tasks.wait()).await.expect("a task is left");
    }
}

/// Everything until the server closes.
async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    // A reset is a close too.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("it is not closed");
    String::from_utf8(bytes).unwrap()
}

async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut text = String::new();
    let reading = async {
        while !text.ends_with(end) {
            text.push(char::from(stream.read_u8().await.unwrap()));
        }
    };
    timeout(PATIENCE, reading).await.expect("it did not come");
    text
}

/// Sends a byte every so often, as long as the server takes them, and returns for how long it did.
async fn trickle(stream: &mut TcpStream, text: &str) -> Duration {
    let started = Instant::now();
    let mut beats = tokio::time::interval(SHORT / 10);
    let mut scratch = [0; 64];
    for byte in text.bytes().cycle() {
        beats.tick().await;
        let closed = matches!(stream.try_read(&mut scratch), Ok(0));
        if closed || stream.write_all(&[byte]).await.is_err() {
            break;
        }
        assert!(started.elapsed() < PATIENCE, "it takes byte after byte");
    }
    started.elapsed()
}

const WHO: &[u8] = b"GET /who HTTP/1.1\r\nhost: x\r\n\r\n";

#[tokio::test]
async fn a_request_knows_its_peer_and_scheme() {
    let server = start(bounds()).await;
    let mut client = server.connect().await;

    client.write_all(WHO).await.unwrap();

    let answer = read_until(&mut client, "http 127.0.0.1").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
}

#[tokio::test]
async fn a_head_that_trickles_in_is_cut() {
    let server = start(Bounds { header_timeout: SHORT, ..bounds() }).await;
    let mut client = server.connect().await;

    client.write_all(b"GET /who HTTP/1.1\r\n").await.unwrap();
    let taken = trickle(&mut client, "x-more: 1\r\n").await;

    assert!(taken < SHORT * 10, "{taken:?}");
}

#[tokio::test]
async fn a_second_head_that_trickles_in_is_cut_long_before_an_idle_connection_is() {
    let server = start(Bounds { header_timeout: SHORT, ..bounds() }).await;
    let mut client = server.connect().await;
    client.write_all(WHO).await.unwrap();
    read_until(&mut client, "127.0.0.1").await;

    let taken = trickle(&mut client, "G").await;

    assert!(taken < SHORT * 10, "{taken:?}");
}

#[tokio::test]
async fn a_connection_that_says_nothing_is_cut() {
    let server = start(Bounds { header_timeout: SHORT, ..bounds() }).await;
    let mut client = server.connect().await;

    assert_eq!(read_to_end(&mut client).await, "");
}

#[tokio::test]
async fn an_idle_connection_outlives_the_header_timeout_and_is_closed_after_its_own() {
    let server = start(Bounds { header_timeout: SHORT, idle_timeout: SHORT * 4, ..bounds() }).await;
    let mut client = server.connect().await;
    client.write_all(WHO).await.unwrap();
    read_until(&mut client, "127.0.0.1").await;

    let idle = Instant::now();
    assert_eq!(read_to_end(&mut client).await, "");
    assert!(idle.elapsed() > SHORT * 3, "closed after {:?}", idle.elapsed());
}

#[tokio::test]
async fn an_idle_http2_connection_is_closed() {
    let server = start(Bounds { idle_timeout: SHORT, ..bounds() }).await;
    let client = reqwest::Client::builder().http2_prior_knowledge().build().unwrap();
    let url = format!("http://{}/who", server.address);
    client.get(&url).send().await.unwrap().text().await.unwrap();

    server.connections_gone().await;
}

#[tokio::test]
async fn a_client_that_hangs_up_ends_its_request() {
    let server = start(bounds()).await;
    let mut client = server.connect().await;
    client.write_all(b"GET /held HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    server.gates.entered.notified().await;

    drop(client);

    server.connections_gone().await;
}

#[tokio::test]
async fn an_answer_may_take_longer_than_both_timeouts() {
    let short = Bounds { header_timeout: SHORT, idle_timeout: SHORT, ..bounds() };
    let server = start(short).await;
    let mut client = server.connect().await;
    client.write_all(b"GET /held HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    read_until(&mut client, "\r\n\r\n").await;

    let silence = timeout(SHORT * 4, client.read_u8()).await;
    assert!(silence.is_err(), "it was cut: {silence:?}");
    server.gates.leave.notify_one();

    assert!(read_until(&mut client, "0\r\n\r\n").await.contains("finished"));
}

#[tokio::test]
async fn a_body_that_comes_slowly_is_no_slow_head() {
    let server = start(Bounds { header_timeout: SHORT, ..bounds() }).await;
    let mut client = server.connect().await;
    client.write_all(b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n").await.unwrap();
    for byte in [b"o", b"k"] {
        let early = timeout(SHORT * 2, client.read_u8()).await;
        assert!(early.is_err(), "it was cut: {early:?}");
        client.write_all(byte).await.unwrap();
    }
    assert!(read_until(&mut client, "\r\n\r\nok").await.starts_with("HTTP/1.1 200 "));

    client.write_all(WHO).await.unwrap();

    read_until(&mut client, "127.0.0.1").await;
}

#[tokio::test]
async fn a_head_that_is_too_large_is_431() {
    let server = start(bounds()).await;
    let mut client = server.connect().await;
    let head = format!("GET /who HTTP/1.1\r\nhost: x\r\nx-long: {}\r\n\r\n", "x".repeat(70_000));

    // The server may hang up before it has read all of it.
    let _ = client.write_all(head.as_bytes()).await;

    let answer = read_until(&mut client, "\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
}

#[tokio::test]
async fn more_headers_than_a_hundred_are_431() {
    let server = start(bounds()).await;
    let mut client = server.connect().await;
    let head = format!("GET /who HTTP/1.1\r\nhost: x\r\n{}\r\n", "x: 1\r\n".repeat(100));

    client.write_all(head.as_bytes()).await.unwrap();

    let answer = read_until(&mut client, "\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_for_a_place() {
    let server = start(Bounds { max_connections: 1, ..bounds() }).await;
    let mut first = server.connect().await;
    first.write_all(WHO).await.unwrap();
    read_until(&mut first, "127.0.0.1").await;

    let mut second = server.connect().await;
    second.write_all(WHO).await.unwrap();
    let unserved = timeout(SHORT, second.read_u8()).await;
    assert!(unserved.is_err(), "there was no place for it: {unserved:?}");
    drop(first);

    read_until(&mut second, "127.0.0.1").await;
}

#[tokio::test]
async fn a_stop_refuses_new_connections_and_finishes_the_request_in_flight() {
    let server = start(bounds()).await;
    let mut client = server.connect().await;
    let mut idle = server.connect().await;
    client.write_all(b"GET /held HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    server.gates.entered.notified().await;

    server.stop.cancel();
    assert_eq!(read_to_end(&mut idle).await, "", "a connection without a request is closed");
    let refused = async {
        while TcpStream::connect(server.address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, refused).await.expect("it still listens");
    server.gates.leave.notify_one();

    let answer = read_to_end(&mut client).await;
    assert!(answer.contains("finished") && answer.ends_with("0\r\n\r\n"), "{answer}");
    server.stopped().await;
}

#[tokio::test]
async fn a_stop_ends_even_if_a_request_does_not() {
    let server = start(Bounds { drain: SHORT, ..bounds() }).await;
    let mut http1 = server.connect().await;
    http1.write_all(b"GET /held HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    server.gates.entered.notified().await;
    let http2 = reqwest::Client::builder().http2_prior_knowledge().build().unwrap();
    let held = http2.get(format!("http://{}/held", server.address)).send().await.unwrap();

    server.stopped().await;

    assert!(!read_to_end(&mut http1).await.contains("finished"));
    assert!(held.text().await.is_err());
}

#[test]
fn bounds_come_from_the_configuration_and_leave_the_last_frames_time() {
    let bounds = Bounds::new(&ServerConfig::default(), &AdmissionConfig::default());

    assert_eq!(bounds.header_timeout, Duration::from_secs(10));
    assert_eq!(bounds.max_connections, 16_384);
    assert_eq!(bounds.max_connections_per_address, 1_024);
    assert!(bounds.drain > Duration::from_secs(30));
    assert!(bounds.max_connections <= Semaphore::MAX_PERMITS);
}
