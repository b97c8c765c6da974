//! How a provider is reached: by way of a proxy, over TLS, over HTTP/2.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use http::{Response, StatusCode};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, pki_types::PrivateKeyDer},
};

use super::{
    Shell,
    check::GOOD,
    serve::{address, ready},
};
use crate::support::{app::chat, client::Client, upstream::MockUpstream};

/// A call through a gateway with this provider: its status and body.
async fn call(shell: &Shell, base_url: &str) -> (StatusCode, String) {
    shell.write("tollgate.toml", &GOOD.replace("http://127.0.0.1:9/v1", base_url));
    let mut running = shell.start(&["serve"]);
    let address = address(&mut running);
    let minted = ["mint-token", "--key", "issuer.pem", "--issuer", "https://issuer.test"];
    let token = shell.run(&[&minted[..], &["--capability", "model:reasoning"]].concat()).ok();
    let client = Client::new(address).with_token(token.trim_end());
    let response = client.post("/v1/chat/completions").json(&chat(false)).send().await;
    let answer = (response.status, response.text().await);
    assert_eq!(running.stop().code, Some(0));
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_the_environment_names_is_used_unless_the_host_is_exempt() {
    let proxy = MockUpstream::start().await;
    let root = proxy.base_url().replace("/v1", "");
    let shell = ready().with_env("HTTP_PROXY", root.clone()).with_env("NO_PROXY", "127.0.0.1");

    let (status, body) = call(&shell, "http://provider.test/v1").await;
    assert_eq!(status, 200, "{body}");
    let asked = proxy.request();
    assert_eq!(asked.path, "http://provider.test/v1/chat/completions");
    assert_eq!(asked.header("host"), Some("provider.test"));
    assert_eq!(asked.header("authorization"), Some("Bearer sk-0123456789abcdef"));

    let (status, body) = call(&shell, &format!("{root}/v1")).await;
    assert_eq!(status, 200, "{body}");
    let asked = proxy.requests().pop().unwrap();
    assert_eq!(asked.path, "/v1/chat/completions");
    assert!(asked.header("user-agent").unwrap().starts_with("tollgate/"), "{asked:?}");
}

/// An HTTP/2 server over TLS that refuses the first `refused` requests unread.
async fn serve_http2(listener: TcpListener, tls: ServerConfig, refused: usize) {
    let (acceptor, seen) = (TlsAcceptor::from(Arc::new(tls)), Arc::new(AtomicUsize::new(0)));
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (acceptor, seen) = (acceptor.clone(), Arc::clone(&seen));
        tokio::spawn(async move {
            let stream = acceptor.accept(stream).await.unwrap();
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((_, mut answer))) = connection.accept().await {
                if seen.fetch_add(1, Ordering::Relaxed) < refused {
                    answer.send_reset(h2::Reason::REFUSED_STREAM);
                    continue;
                }
                let head = Response::builder().header("content-type", "application/json");
                let body = json!({ "asked": seen.load(Ordering::Relaxed) }).to_string();
                let mut sending = answer.send_response(head.body(()).unwrap(), false).unwrap();
                sending.send_data(Bytes::from(body), true).unwrap();
            }
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http2_is_spoken_over_tls_and_what_is_refused_unread_is_sent_again() {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    for (refused, expected) in [(0, Some(1)), (2, Some(3)), (3, None)] {
        let shell = ready();
        shell.write("roots.pem", &cert.pem());
        let roots = shell.path("roots.pem").display().to_string();
        let shell = shell.with_env("SSL_CERT_FILE", roots);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://localhost:{}/v1", listener.local_addr().unwrap().port());
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let tls = ServerConfig::builder().with_no_client_auth();
        let mut tls = tls.with_single_cert(vec![cert.der().clone()], key).unwrap();
        tls.alpn_protocols = vec![b"h2".to_vec()];
        tokio::spawn(serve_http2(listener, tls, refused));

        let (status, body) = call(&shell, &url).await;
        match expected {
            Some(asked) => assert_eq!(body, json!({ "asked": asked }).to_string(), "{status}"),
            None => assert_eq!(status, StatusCode::BAD_GATEWAY, "{body}"),
        }
    }
}
