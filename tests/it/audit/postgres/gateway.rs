//! A whole gateway with its audit trail in Postgres.

use std::time::Duration;

use secrecy::ExposeSecret;
use tollgate::{config::AuditConfig, storage::postgres};

use super::{
    super::support::{TempDir, append, denial, intent},
    Postgres, config,
    outage::moved,
};
use crate::support::{
    app::{TestApp, chat},
    client::{Client, eventually},
    postgres::{PASSWORD, PostgresServer},
    proxy::{Network, Proxy},
};

const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn it_starts_while_the_database_is_away_and_ships_when_it_is_back() {
    let postgres = Postgres::start().await;
    let port = postgres.database.port();
    let proxy = Proxy::start(port).await;
    proxy.set(Network::Gone);
    let app = TestApp::with(|gateway| {
        let path = gateway.audit.path.clone();
        gateway.audit = config(&postgres.database);
        gateway.audit.path = path;
        for url in [&mut gateway.audit.url, &mut gateway.audit.owner_url] {
            *url = url.as_ref().map(|url| moved(url, port, proxy.port()));
        }
    })
    .await;
    let admin = Client::new(app.admin_address());
    let metrics = async || admin.get("/metrics").send().await.text().await;
    for _ in 0..3 {
        let call = app.alice().post("/v1/chat/completions").json(&chat(false));
        assert_eq!(call.send().await.status, 200);
    }
    assert_eq!(admin.get("/readyz").send().await.status, 200, "calls go on: it is ready");
    eventually(PATIENCE, async || metrics().await.contains("\ntollgate_audit_store_up 0\n")).await;
    let waiting = "\ntollgate_audit_unshipped_entries 6\n";
    eventually(PATIENCE, async || metrics().await.contains(waiting)).await;

    proxy.set(Network::Works);
    eventually(PATIENCE, async || {
        metrics().await.contains("\ntollgate_audit_unshipped_entries 0\n")
    })
    .await;
    assert!(metrics().await.contains("\ntollgate_audit_store_up 1\n"));
    assert!(metrics().await.contains("\ntollgate_audit_dead_letters_total 0\n"));
    let settled = "SELECT count(*) FROM tollgate.audit WHERE kind = 'settle' AND outcome = 'ok'";
    assert_eq!(postgres.number(settled).await, 3);
    assert_eq!(postgres.number("SELECT sum(calls)::int8 FROM tollgate.audit_usage").await, 3);
    app.shutdown().await;
}

#[tokio::test]
async fn it_stops_while_the_database_does_not_answer_and_owes_nothing() {
    let postgres = Postgres::start().await;
    let port = postgres.database.port();
    let proxy = Proxy::start(port).await;
    let app = TestApp::with(|gateway| {
        let path = gateway.audit.path.clone();
        gateway.audit = config(&postgres.database);
        gateway.audit.path = path;
        gateway.audit.url = Some(moved(&postgres.database.gateway_url(), port, proxy.port()));
    })
    .await;
    let admin = Client::new(app.admin_address());
    let call = || app.alice().post("/v1/chat/completions").json(&chat(false));
    assert_eq!(call().send().await.status, 200);
    let shipped = "\ntollgate_audit_unshipped_entries 0\n";
    eventually(PATIENCE, async || {
        admin.get("/metrics").send().await.text().await.contains(shipped)
    })
    .await;
    proxy.set(Network::Silent);
    assert_eq!(call().send().await.status, 200);
    app.shutdown().await;
    assert_eq!(postgres.number("SELECT count(*) FROM tollgate.audit").await, 2);
}

#[tokio::test]
async fn no_error_shows_the_password() {
    let postgres = Postgres::start().await;
    let mut wrong = config(&postgres.database);
    wrong.url = wrong.url.map(|url| moved(&url, postgres.database.port(), 1));
    assert!(!format!("{wrong:?}").contains(PASSWORD));
    postgres.sink.warm().await;
    let sink = postgres::sink(&wrong).unwrap();
    for sink in [&sink, &postgres.sink] {
        assert!(!format!("{sink:?}").contains(PASSWORD), "{sink:?}");
    }
    let error = append(&sink, &[intent()]).await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains(PASSWORD), "{error:?}");
}

#[tokio::test]
async fn the_servers_certificate_is_verified_where_that_is_asked_for() {
    let server = PostgresServer::start_own(false).await;
    let postgres = Postgres::on(server.database().await);
    postgres::migrate(&postgres.config).await.unwrap();
    let (ours, other) = (certificate(), certificate());
    server.speak_tls(&ours.0, &ours.1).await;
    let directory = TempDir::new();
    let with = |mode: &str, root: &str| {
        let path = directory.path().join("root.pem");
        std::fs::write(&path, root).unwrap();
        let url = postgres.database.gateway_url();
        let url = format!("{}?sslmode={mode}&sslrootcert={}", url.expose_secret(), path.display());
        AuditConfig { url: Some(url.into()), owner_url: None, ..postgres.config.clone() }
    };
    // The server takes note in its own time.
    eventually(PATIENCE, async || {
        let sink = postgres::sink(&with("verify-full", &ours.0)).unwrap();
        append(&sink, &[denial()]).await.is_ok()
    })
    .await;
    assert_eq!(postgres.number("SELECT count(*) FROM tollgate.audit").await, 1);
    let stranger = postgres::sink(&with("verify-full", &other.0)).unwrap();
    let error = append(&stranger, &[denial()]).await.unwrap_err().to_string();
    assert!(error.contains("certificate"), "{error}");
}

/// For this machine, by itself; and its key.
fn certificate() -> (String, String) {
    let pair = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    (pair.cert.pem(), pair.signing_key.serialize_pem())
}
