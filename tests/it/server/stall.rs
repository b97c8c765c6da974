//! A client that does not read what it asked for.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::body::{Body, Bytes};
use axum::response::Response;
use futures_util::stream;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::{Instant, timeout},
};

use super::{Bounds, Gates, PATIENCE, SHORT, bounds, start};

/// An answer without an end, which says when it is given up.
pub(super) fn endless(gates: Arc<Gates>) -> Response {
    struct Dropped(Arc<Gates>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.entered.notify_one();
        }
    }
    let body = stream::unfold(Dropped(gates), |dropped| async move {
        tokio::task::yield_now().await;
        Some((Ok::<_, Infallible>(Bytes::from_static(&[b'x'; 16_384])), dropped))
    });
    Response::new(Body::from_stream(body))
}

const ENDLESS: &[u8] = b"GET /endless HTTP/1.1\r\nhost: x\r\n\r\n";

#[tokio::test]
async fn an_answer_that_nobody_reads_is_given_up() {
    let server = start(Bounds { idle_timeout: SHORT, ..bounds() }).await;
    let mut client = server.connect().await;
    client.write_all(ENDLESS).await.unwrap();

    timeout(PATIENCE, server.gates.entered.notified()).await.expect("it is held for ever");
    server.connections_gone().await;
    server.stopped().await;
}

#[tokio::test]
async fn an_http2_answer_that_nobody_reads_is_given_up() {
    let short = Bounds { header_timeout: SHORT, idle_timeout: SHORT, ..bounds() };
    let server = start(short).await;
    let stream = hyper_util::rt::TokioIo::new(server.connect().await);
    let executor = hyper_util::rt::TokioExecutor::new();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(executor, stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = http::Request::get(format!("http://{}/endless", server.address));
    let request = request.body(http_body_util::Empty::<Bytes>::new()).unwrap();
    let answer = sender.send_request(request).await.unwrap();

    timeout(PATIENCE, server.gates.entered.notified()).await.expect("it is held for ever");
    server.connections_gone().await;
    drop((answer, connection));
    server.stopped().await;
}

#[tokio::test]
async fn an_answer_that_is_read_slowly_goes_on() {
    let server = start(Bounds { idle_timeout: SHORT, ..bounds() }).await;
    let mut client = server.connect().await;
    client.write_all(ENDLESS).await.unwrap();

    let (started, mut buffer) = (Instant::now(), vec![0; 8 << 20]);
    let mut beats = tokio::time::interval(Duration::from_millis(20));
    while started.elapsed() < SHORT * 4 {
        beats.tick().await;
        client.read_exact(&mut buffer).await.expect("it goes on");
    }
    drop(client);
    server.connections_gone().await;
    server.stopped().await;
}
