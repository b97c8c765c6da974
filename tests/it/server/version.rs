//! HTTP/1.1 and HTTP/2 on one cleartext port, told apart by their first bytes.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use super::{Bounds, PATIENCE, SHORT, bounds, read_to_end, read_until, start};

#[tokio::test]
async fn a_first_request_may_come_byte_by_byte() {
    let server = start(bounds()).await;
    // The first three bytes might still become HTTP/2's preface.
    for head in ["PRI /who HTTP/1.1\r\nhost: x\r\n\r\n", "GET /who HTTP/1.1\r\nhost: x\r\n\r\n"] {
        let mut client = server.connect().await;
        for byte in head.bytes() {
            client.write_all(&[byte]).await.unwrap();
            tokio::task::yield_now().await;
        }
        let answer = read_until(&mut client, "\r\n\r\n").await;
        let status = if head.starts_with("GET") { "200 OK" } else { "405 Method Not Allowed" };
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{answer}");
    }
}

#[tokio::test]
async fn a_first_request_may_be_larger_than_what_is_read_of_it_first() {
    let server = start(bounds()).await;
    let mut client = server.connect().await;
    let long = "x".repeat(12_000);
    let who = format!("GET /who HTTP/1.1\r\nhost: x\r\nx-long: {long}\r\n\r\n");

    client.write_all(who.repeat(2).as_bytes()).await.unwrap();

    read_until(&mut client, "http 127.0.0.1").await;
    read_until(&mut client, "http 127.0.0.1").await;
}

#[tokio::test]
async fn half_an_http2_preface_is_cut() {
    let server = start(Bounds { header_timeout: SHORT, ..bounds() }).await;
    let mut client = server.connect().await;

    client.write_all(b"PRI * HT").await.unwrap();

    assert_eq!(read_to_end(&mut client).await, "");
}

#[tokio::test]
async fn http2_without_a_request_is_cut() {
    let server = start(Bounds { header_timeout: SHORT, ..bounds() }).await;
    let mut client = server.connect().await;

    // The preface and an empty SETTINGS frame (RFC 9113 §3.4).
    client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let mut bytes = Vec::new();

    let end = timeout(PATIENCE, client.read_to_end(&mut bytes)).await;
    assert!(end.is_ok(), "it is still open");
}

#[tokio::test]
async fn http2_is_spoken_with_prior_knowledge() {
    let server = start(bounds()).await;
    let client = reqwest::Client::builder().http2_prior_knowledge().build().unwrap();
    let body = vec![b'x'; 3_000_000];

    let url = format!("http://{}/echo", server.address);
    let answer = client.post(url).body(body.clone()).send().await.unwrap();

    assert_eq!(answer.version(), http::Version::HTTP_2);
    assert_eq!(answer.bytes().await.unwrap(), body, "larger than every window and buffer");
}
