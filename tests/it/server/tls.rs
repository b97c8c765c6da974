use tollgate::{
    config::TlsConfig,
    http::server::{Bounds, TlsError, tls_config},
};

use super::{SHORT, bounds, read_to_end, start_with};

/// A certificate for localhost, as files.
struct Certificate {
    pem: String,
    files: TlsConfig,
}

impl Drop for Certificate {
    fn drop(&mut self) {
        // What stays behind in a temporary directory does no harm.
        let _ = std::fs::remove_file(&self.files.cert);
        let _ = std::fs::remove_file(&self.files.key);
    }
}

fn certificate() -> Certificate {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let name = uuid::Uuid::new_v4();
    let file = |end: &str| std::env::temp_dir().join(format!("tollgate-{name}.{end}"));
    let files = TlsConfig { cert: file("crt"), key: file("key") };
    std::fs::write(&files.cert, made.cert.pem()).unwrap();
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    Certificate { pem: made.cert.pem(), files }
}

#[tokio::test]
async fn tls_agrees_on_http2_or_http1() {
    let certificate = certificate();
    let server = start_with(bounds(), Some(&certificate.files)).await;
    let url = format!("https://localhost:{}/who", server.address.port());
    let root = || reqwest::Certificate::from_pem(certificate.pem.as_bytes()).unwrap();
    let client =
        || reqwest::Client::builder().tls_certs_only([root()]).resolve("localhost", server.address);

    let http2 = client().build().unwrap().get(&url).send().await.unwrap();
    let http1 = client().http1_only().build().unwrap().get(&url).send().await.unwrap();

    assert_eq!(http2.version(), http::Version::HTTP_2);
    assert_eq!(http1.version(), http::Version::HTTP_11);
    assert_eq!(http1.text().await.unwrap(), "https 127.0.0.1");
}

#[tokio::test]
async fn a_tls_handshake_that_does_not_come_is_cut() {
    let certificate = certificate();
    let short = Bounds { header_timeout: SHORT, ..bounds() };
    let server = start_with(short, Some(&certificate.files)).await;
    let mut client = server.connect().await;

    assert_eq!(read_to_end(&mut client).await, "");
}

#[test]
fn a_certificate_that_is_no_certificate_is_refused_by_its_path() {
    let certificate = certificate();
    let swapped =
        TlsConfig { cert: certificate.files.key.clone(), key: certificate.files.cert.clone() };
    let missing = TlsConfig { cert: "/nowhere.crt".into(), key: certificate.files.key.clone() };

    assert!(matches!(tls_config(&swapped), Err(TlsError::NoCertificate(_))));
    let message = tls_config(&missing).unwrap_err().to_string();
    assert!(message.starts_with("/nowhere.crt: "), "{message}");
}
