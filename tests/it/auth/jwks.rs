//! A JWKS by URL: what is fetched, when, and what is done about a server that misbehaves.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use tollgate::auth::{AuthError, Reason};

use super::{
    jwks_server::{Answer, JwksServer},
    support::{Gate, TempDir, TestKey, eventually, invalid, issuer, jwks},
};

const COOLDOWN_S: u64 = 10;

/// A gate whose issuer's keys are at `server`.
async fn gate_at(server: &JwksServer, global_toml: &str) -> Gate {
    let toml = format!("{global_toml}\n{}", issuer(&format!("jwks_url = {:?}", server.url())));
    let quick = Duration::from_millis(300);
    let adjust = |options: &mut tollgate::auth::AuthOptions| options.fetch_timeout = quick;
    Gate::start(&toml, TempDir::new(), adjust).await.unwrap()
}

#[tokio::test]
async fn keys_are_fetched_once_at_the_start() {
    let key = TestKey::ed25519("one");
    let server = JwksServer::start(Answer::Set(jwks([&key]))).await;
    let gate = gate_at(&server, "").await;
    assert_eq!(gate.authenticator.ready(), Ok(()));
    for _ in 0..10 {
        gate.try_token(key.token()).await.unwrap();
    }
    assert_eq!(server.hits(), 1);
    gate.shut_down().await;
}

#[tokio::test]
async fn a_server_that_misbehaves_is_not_fatal_and_its_tokens_are_refused() {
    let key = TestKey::ed25519("one");
    let elsewhere = JwksServer::start(Answer::Set(jwks([&key]))).await;
    let mut oct = key.clone();
    oct.jwk = serde_json::json!({ "kty": "oct", "k": "c2VjcmV0", "kid": "two" });
    let same = TestKey::p256("one");
    let faults = [
        // The set is good, the status is not.
        Answer::Status(500, jwks([&key])),
        Answer::Status(404, jwks([&key])),
        Answer::Status(203, jwks([&key])),
        Answer::Redirect(elsewhere.url(), jwks([&key])),
        Answer::Hangup,
        Answer::Stall,
        Answer::Set(String::from("<html>sign in</html>")),
        Answer::Set(" ".repeat(262_145)),
        Answer::Set(jwks([&key, &oct])),
        Answer::Set(jwks([&key, &same])),
    ];
    for fault in faults {
        let server = JwksServer::start(fault).await;
        let gate = gate_at(&server, "").await;
        assert_eq!(server.hits(), 1);
        gate.authenticator.ready().expect_err("not ready without keys");
        assert_eq!(gate.try_token(key.token()).await.unwrap_err(), AuthError::Unavailable);
        // The first token made us ask once more; the cool-down holds the second one back.
        assert_eq!(gate.try_token(key.token()).await.unwrap_err(), AuthError::Unavailable);
        assert_eq!(server.hits(), 2);
        // And once the server behaves, all is well.
        server.answer_with(Answer::Set(jwks([&key])));
        gate.clock.advance_s(COOLDOWN_S);
        gate.try_token(key.token()).await.expect("the keys are there now");
        assert_eq!(gate.authenticator.ready(), Ok(()));
        gate.shut_down().await;
    }
    assert_eq!(elsewhere.hits(), 0, "no redirect was followed");
}

#[tokio::test]
async fn a_body_without_end_is_cut_at_the_size_and_not_at_the_timeout() {
    let server = JwksServer::start(Answer::Endless).await;
    let toml = issuer(&format!("jwks_url = {:?}", server.url()));
    let patient = |options: &mut tollgate::auth::AuthOptions| {
        options.fetch_timeout = Duration::from_mins(1);
    };
    let start = Gate::start(&toml, TempDir::new(), patient);
    let gate = tokio::time::timeout(Duration::from_secs(5), start).await;
    let gate = gate.expect("the fetch is given up long before its timeout").unwrap();
    gate.authenticator.ready().expect_err("there are no keys");
}

#[tokio::test]
async fn a_port_where_nobody_listens_is_not_fatal() {
    let server = JwksServer::start(Answer::Hangup).await;
    let toml = issuer("jwks_url = \"http://127.0.0.1:1/jwks.json\"");
    drop(server);
    let gate = Gate::from_toml(&toml).await.unwrap();
    let error = gate.try_token(TestKey::ed25519("one").token()).await.unwrap_err();
    assert_eq!(error, AuthError::Unavailable);
}

#[tokio::test]
async fn an_unknown_kid_makes_us_fetch_once_in_a_cooldown() {
    let (old, new) = (TestKey::ed25519("old"), TestKey::ed25519("new"));
    let server = JwksServer::start(Answer::Set(jwks([&old]))).await;
    let gate = gate_at(&server, "").await;
    for _ in 0..5 {
        let error = gate.try_token(new.token()).await.unwrap_err();
        assert_eq!(error, invalid(Reason::UnknownKey));
    }
    assert_eq!(server.hits(), 2, "one at the start, one for the unknown kid");
    gate.clock.advance_s(COOLDOWN_S - 1);
    gate.try_token(new.token()).await.unwrap_err();
    assert_eq!(server.hits(), 2, "the cool-down is not over");
    gate.clock.advance_s(1);
    gate.try_token(new.token()).await.unwrap_err();
    assert_eq!(server.hits(), 3);
    gate.try_token(old.token()).await.expect("known keys are not held up");
}

#[tokio::test]
async fn a_hundred_tokens_of_a_new_key_cause_one_fetch_and_all_pass() {
    let (old, new) = (TestKey::ed25519("old"), TestKey::ed25519("new"));
    let server = JwksServer::start(Answer::Set(jwks([&old]))).await;
    let gate = gate_at(&server, "").await;
    server.answer_with(Answer::Held(jwks([&old, &new])));
    let token = new.token();
    let tries = join_all((0..100).map(|_| gate.try_token(&token)));
    let release = async {
        eventually("the fetch began", async || server.hits() == 2).await;
        server.release();
    };
    let (results, ()) = tokio::join!(tries, release);
    assert!(results.iter().all(Result::is_ok));
    assert_eq!(server.hits(), 2);
}

#[tokio::test]
async fn a_hundred_tokens_of_a_key_that_is_not_there_cause_one_fetch() {
    let (old, unknown) = (TestKey::ed25519("old"), TestKey::ed25519("unknown"));
    let server = JwksServer::start(Answer::Set(jwks([&old]))).await;
    let gate = gate_at(&server, "").await;
    server.answer_with(Answer::Held(jwks([&old])));
    let token = unknown.token();
    let tries = join_all((0..100).map(|_| gate.try_token(&token)));
    let release = async {
        eventually("the fetch began", async || server.hits() == 2).await;
        server.release();
    };
    let (results, ()) = tokio::join!(tries, release);
    let refused = Err(invalid(Reason::UnknownKey));
    assert!(results.iter().all(|result| *result == refused));
    assert_eq!(server.hits(), 2, "those who waited did not ask again one by one");
}

#[tokio::test]
async fn a_token_that_comes_while_a_fetch_is_under_way_waits_for_it() {
    let (old, new) = (TestKey::ed25519("old"), TestKey::ed25519("new"));
    let server = JwksServer::start(Answer::Set(jwks([&old]))).await;
    let gate = gate_at(&server, "").await;
    server.answer_with(Answer::Held(jwks([&old, &new])));
    let token = new.token();
    let late = async {
        eventually("the fetch began", async || server.hits() == 2).await;
        let release = async { server.release() };
        tokio::join!(biased; gate.try_token(&token), release).0
    };
    let (first, late) = tokio::join!(gate.try_token(&token), late);
    first.expect("the one who made us ask");
    late.expect("the one who came later");
    assert_eq!(server.hits(), 2);
}

#[tokio::test]
async fn only_so_many_wait_for_a_fetch_and_the_rest_are_told_to_come_back() {
    let (old, new) = (TestKey::ed25519("old"), TestKey::ed25519("new"));
    let server = JwksServer::start(Answer::Set(jwks([&old]))).await;
    let gate = gate_at(&server, "").await;
    server.answer_with(Answer::Held(jwks([&old, &new])));
    let token = new.token();
    let tries = join_all((0..256).map(|_| gate.try_token(&token)));
    let one_more = async {
        eventually("the fetch began", async || server.hits() == 2).await;
        let result = gate.try_token(&token).await;
        server.release();
        result
    };
    let (results, one_more) = tokio::join!(tries, one_more);
    assert_eq!(one_more.unwrap_err(), AuthError::Unavailable);
    assert!(results.iter().all(Result::is_ok));
}

#[tokio::test]
async fn a_caller_who_hangs_up_does_not_break_off_the_fetch() {
    let (old, new) = (TestKey::ed25519("old"), TestKey::ed25519("new"));
    let server = JwksServer::start(Answer::Set(jwks([&old]))).await;
    let gate = Arc::new(gate_at(&server, "").await);
    server.answer_with(Answer::Held(jwks([&old, &new])));
    let (caller, token) = (Arc::clone(&gate), new.token());
    let hung_up = tokio::spawn(async move { caller.try_token(&token).await.map(drop) });
    eventually("the fetch began", async || server.hits() == 2).await;
    hung_up.abort();
    let _ = hung_up.await;
    server.release();
    // Within the cool-down, so it is the first caller's fetch that brings the key.
    eventually("the key is known", async || gate.try_token(new.token()).await.is_ok()).await;
    assert_eq!(server.hits(), 2);
}

#[tokio::test]
async fn a_forged_algorithm_causes_no_fetch() {
    let key = TestKey::ed25519("one");
    let server = JwksServer::start(Answer::Set(jwks([&key]))).await;
    let gate = gate_at(&server, "").await;
    let mut draft = TestKey::hmac(&[7; 64]).draft().header("kid", "unknown");
    draft.header["alg"] = "HS256".into();
    let error = gate.try_token(draft.sign()).await.unwrap_err();
    assert_eq!(error, invalid(Reason::AlgorithmNotAllowed));
    assert_eq!(server.hits(), 1);
}

#[tokio::test]
async fn the_last_good_set_is_kept_for_a_bounded_time() {
    let key = TestKey::ed25519("one");
    let server = JwksServer::start(Answer::Set(jwks([&key]))).await;
    let gate = gate_at(&server, "jwks_max_stale_s = 400\njwks_refresh_s = 300").await;
    server.answer_with(Answer::Status(500, String::new()));
    gate.clock.advance_s(400);
    gate.try_token(key.token()).await.expect("still good at 400 s");
    assert_eq!(gate.authenticator.ready(), Ok(()));
    gate.clock.advance_s(1);
    // The very token that was cached a second ago is refused too.
    assert_eq!(gate.try_token(key.token()).await.unwrap_err(), AuthError::Unavailable);
    let unready = gate.authenticator.ready().unwrap_err();
    assert!(unready.contains("https://bff.example"), "{unready}");
    // The same set, seen again, is good again.
    server.answer_with(Answer::Set(jwks([&key])));
    gate.clock.advance_s(COOLDOWN_S);
    gate.try_token(key.token()).await.expect("renewed");
}

#[tokio::test]
async fn a_spoiled_set_does_not_replace_a_good_one() {
    let key = TestKey::ed25519("one");
    let server = JwksServer::start(Answer::Set(jwks([&key]))).await;
    let gate = gate_at(&server, "").await;
    server.answer_with(Answer::Set(jwks([&key, &TestKey::p256("one")])));
    gate.try_token(TestKey::ed25519("unknown").token()).await.unwrap_err();
    assert_eq!(server.hits(), 2);
    gate.try_token(key.token()).await.expect("the good set is still there");
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_is_refused() {
    use tokio_rustls::{
        TlsAcceptor,
        rustls::{
            ServerConfig,
            pki_types::{CertificateDer, PrivateKeyDer},
        },
    };
    let made = rcgen::generate_simple_self_signed([String::from("localhost")]).unwrap();
    let certificate = CertificateDer::from(made.cert.der().to_vec());
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder().with_no_client_auth();
    let config = config.with_single_cert(vec![certificate], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let handshake = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        acceptor.accept(stream).await.map(drop)
    });
    let toml = issuer(&format!("jwks_url = \"https://localhost:{port}/jwks.json\""));
    let gate = Gate::from_toml(&toml).await.unwrap();
    gate.authenticator.ready().expect_err("no keys over an unvouched connection");
    handshake.await.unwrap().expect_err("the client breaks off the handshake");
}
