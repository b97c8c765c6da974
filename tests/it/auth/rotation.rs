//! Keys that change while the gateway runs.

use std::fs;

use tollgate::auth::Reason;

use super::{
    jwks_server::{Answer, JwksServer},
    support::{Gate, TempDir, TestKey, eventually, invalid, issuer, jwks},
};

#[tokio::test]
async fn a_new_key_at_the_url_is_found_when_a_token_names_it() {
    let (old, new) = (TestKey::ed25519("old"), TestKey::ed25519("new"));
    let server = JwksServer::start(Answer::Set(jwks([&old]))).await;
    let gate = Gate::from_toml(&issuer(&format!("jwks_url = {:?}", server.url()))).await.unwrap();
    gate.try_token(old.token()).await.unwrap();
    server.answer_with(Answer::Set(jwks([&old, &new])));
    gate.try_token(new.token()).await.expect("the new key is fetched");
    gate.try_token(old.token()).await.expect("the old key is still there");
}

#[tokio::test]
async fn a_new_key_in_the_file_is_found_when_a_token_names_it() {
    let (old, new) = (TestKey::ed25519("old"), TestKey::ed25519("new"));
    let gate = Gate::with_keys([&old]).await;
    gate.try_token(old.token()).await.unwrap();
    fs::write(gate.dir.join("jwks.json"), jwks([&new])).unwrap();
    gate.try_token(new.token()).await.expect("the new key is read");
    let error = gate.try_token(old.token()).await.unwrap_err();
    assert_eq!(error, invalid(Reason::UnknownKey));
}

#[tokio::test]
async fn a_key_withdrawn_from_the_url_is_forgotten_in_the_background() {
    let (old, new) = (TestKey::ed25519("old"), TestKey::ed25519("new"));
    let server = JwksServer::start(Answer::Set(jwks([&old, &new]))).await;
    let url = issuer(&format!("jwks_url = {:?}", server.url()));
    let gate = Gate::from_toml(&format!("jwks_refresh_s = 1\n{url}")).await.unwrap();
    let token = old.token();
    gate.try_token(&token).await.unwrap();
    server.answer_with(Answer::Set(jwks([&new])));
    eventually("the cached token of the withdrawn key is refused", async || {
        gate.try_token(&token).await == Err(invalid(Reason::UnknownKey))
    })
    .await;
    gate.try_token(new.token()).await.unwrap();
    gate.shut_down().await;
}

#[tokio::test]
async fn a_key_withdrawn_from_the_file_is_forgotten_in_the_background() {
    let (old, new) = (TestKey::ed25519("old"), TestKey::ed25519("new"));
    let dir = TempDir::new();
    let path = dir.join("jwks.json");
    fs::write(&path, jwks([&old])).unwrap();
    let toml = format!("jwks_refresh_s = 1\n{}", issuer(&format!("jwks_file = {path:?}")));
    let gate = Gate::start(&toml, dir, |_| {}).await.unwrap();
    let token = old.token();
    gate.try_token(&token).await.unwrap();
    fs::write(&path, jwks([&new])).unwrap();
    eventually("the cached token of the withdrawn key is refused", async || {
        gate.try_token(&token).await == Err(invalid(Reason::UnknownKey))
    })
    .await;
    gate.shut_down().await;
}

#[tokio::test]
async fn a_file_that_went_bad_leaves_the_keys_as_they_were() {
    let key = TestKey::ed25519("one");
    let gate = Gate::with_keys([&key]).await;
    fs::write(gate.dir.join("jwks.json"), "{ half a fi").unwrap();
    gate.try_token(TestKey::ed25519("two").token()).await.unwrap_err();
    gate.try_token(key.token()).await.expect("the good keys are still there");
    fs::remove_file(gate.dir.join("jwks.json")).unwrap();
    gate.clock.advance_s(10);
    gate.try_token(TestKey::ed25519("two").token()).await.unwrap_err();
    gate.try_token(key.token()).await.expect("the good keys are still there");
}

#[tokio::test]
async fn cloudflare_access_rotates_with_an_overlap() {
    let (old, new) = (TestKey::rsa("old", 0), TestKey::rsa("new", 1));
    let server = JwksServer::start(Answer::Set(jwks([&old]))).await;
    let toml = issuer(&format!(
        "algorithms = [\"RS256\"]\njwks_url = {:?}\nheader = \"Cf-Access-Jwt-Assertion\"\n",
        server.url()
    ));
    let gate = Gate::from_toml(&toml).await.unwrap();
    let assertion = async |token: String| {
        gate.try_headers(&[("cf-access-jwt-assertion", token.as_bytes())]).await
    };
    assertion(old.token()).await.expect("before the rotation");
    server.answer_with(Answer::Set(jwks([&new, &old])));
    assertion(new.token()).await.expect("the new key in the overlap");
    assertion(old.token()).await.expect("the old key in the overlap");
    server.answer_with(Answer::Set(jwks([&new])));
    gate.clock.advance_s(10);
    // Any unknown kid brings the set in which the old key is no more.
    assertion(TestKey::rsa("unknown", 1).token()).await.unwrap_err();
    assert_eq!(assertion(old.token()).await.unwrap_err(), invalid(Reason::UnknownKey));
    assertion(new.token()).await.expect("the new key after the overlap");
}
