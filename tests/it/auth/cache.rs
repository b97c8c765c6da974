//! Verified tokens are remembered, and not for too long; the deny list knows no cache.

use serde_json::json;
use tollgate::{
    auth::{AuthError, Reason},
    config::DenyConfig,
};

use super::support::{Gate, NOW_S, TestKey, invalid, jwks};

fn same<T>(one: &std::sync::Arc<T>, two: &std::sync::Arc<T>) -> bool {
    std::sync::Arc::ptr_eq(one, two)
}

#[tokio::test]
async fn a_token_is_verified_once_in_a_minute() {
    let key = TestKey::ed25519("one");
    let gate = Gate::with_keys([&key]).await;
    let token = key.token();
    let first = gate.try_token(&token).await.unwrap();
    assert!(same(&first, &gate.try_token(&token).await.unwrap()));
    gate.clock.advance_s(59);
    assert!(same(&first, &gate.try_token(&token).await.unwrap()));
    gate.clock.advance_s(1);
    assert!(!same(&first, &gate.try_token(&token).await.unwrap()), "verified anew at 60 s");
}

#[tokio::test]
async fn tokens_that_differ_in_a_byte_are_two() {
    let key = TestKey::ed25519("one");
    let gate = Gate::with_keys([&key]).await;
    let token = key.token();
    gate.try_token(&token).await.unwrap();
    for at in [0, token.len() / 2, token.len() - 5] {
        let mut other = token.clone().into_bytes();
        other[at] = if other[at] == b'A' { b'B' } else { b'A' };
        gate.try_token(other).await.expect_err("the cache does not know this one");
    }
}

#[tokio::test]
async fn a_cached_token_expires_when_it_says() {
    let key = TestKey::ed25519("one");
    let gate = Gate::with_keys([&key]).await;
    let token = key.draft().claim("exp", NOW_S + 20).sign();
    let first = gate.try_token(&token).await.unwrap();
    gate.clock.advance_s(19);
    assert!(same(&first, &gate.try_token(&token).await.unwrap()));
    gate.clock.advance_s(1);
    let in_leeway = gate.try_token(&token).await.unwrap();
    assert!(!same(&first, &in_leeway), "past exp the cache is not asked");
    gate.clock.advance_s(30);
    assert_eq!(gate.try_token(&token).await.unwrap_err(), AuthError::Expired);
}

#[tokio::test]
async fn a_refusal_is_not_remembered() {
    let key = TestKey::ed25519("one");
    let gate = Gate::with_keys([&key]).await;
    let token = key.draft().claim("nbf", NOW_S + 60).sign();
    assert_eq!(gate.try_token(&token).await.unwrap_err(), invalid(Reason::NotYetValid));
    gate.clock.advance_s(30);
    gate.try_token(&token).await.expect("its time has come");
}

#[tokio::test]
async fn a_changed_key_set_forgets_what_it_verified() {
    let (old, new) = (TestKey::ed25519("old"), TestKey::ed25519("new"));
    let gate = Gate::with_keys([&old]).await;
    let token = old.token();
    let first = gate.try_token(&token).await.unwrap();
    std::fs::write(gate.dir.join("jwks.json"), jwks([&new, &old])).unwrap();
    gate.try_token(new.token()).await.unwrap();
    let again = gate.try_token(&token).await.unwrap();
    assert!(!same(&first, &again), "verified anew under the new set");
}

#[tokio::test]
async fn the_deny_list_is_live_and_reaches_cached_tokens() {
    let key = TestKey::ed25519("one");
    let gate = Gate::with_keys([&key]).await;
    let token = key.token();
    let lists = [
        DenyConfig { jti: vec!["token-1".to_owned()], ..DenyConfig::default() },
        DenyConfig { sub: vec!["user-1".to_owned()], ..DenyConfig::default() },
        DenyConfig { kid: vec!["one".to_owned()], ..DenyConfig::default() },
    ];
    for list in &lists {
        gate.try_token(&token).await.expect("not denied yet, and cached");
        gate.authenticator.set_deny_list(list);
        assert_eq!(gate.try_token(&token).await.unwrap_err(), invalid(Reason::Denied));
        assert_eq!(gate.try_token(key.token()).await.unwrap_err(), invalid(Reason::Denied));
        gate.authenticator.set_deny_list(&DenyConfig::default());
    }
    let others = DenyConfig {
        jti: vec!["user-1".to_owned(), "one".to_owned()],
        sub: vec!["token-1".to_owned(), "one".to_owned()],
        kid: vec!["user-1".to_owned(), "token-1".to_owned()],
    };
    gate.authenticator.set_deny_list(&others);
    gate.try_token(&token).await.expect("each list is for its own kind of name");
}

#[tokio::test]
async fn the_deny_list_of_the_configuration_holds_from_the_start() {
    let key = TestKey::ed25519("one");
    let dir = super::support::TempDir::new();
    std::fs::write(dir.join("jwks.json"), jwks([&key])).unwrap();
    let issuer = super::support::issuer(&format!("jwks_file = {:?}\n", dir.join("jwks.json")));
    let toml = format!("{issuer}[deny]\nsub = [\"user-1\"]\n");
    let gate = Gate::start(&toml, dir, |_| {}).await.unwrap();
    assert_eq!(gate.try_token(key.token()).await.unwrap_err(), invalid(Reason::Denied));
    gate.try_token(key.draft().claim("sub", "user-2").sign()).await.unwrap();
}

#[tokio::test]
async fn a_kid_is_denied_even_if_the_token_does_not_name_it() {
    let key = TestKey::ed25519("one");
    let gate = Gate::with_keys([&key]).await;
    let nameless = key.draft().without_header("kid").sign();
    gate.try_token(&nameless).await.unwrap();
    let list = DenyConfig { kid: vec!["one".to_owned()], ..DenyConfig::default() };
    gate.authenticator.set_deny_list(&list);
    assert_eq!(gate.try_token(&nameless).await.unwrap_err(), invalid(Reason::Denied));
}

#[tokio::test]
async fn a_subject_is_denied_by_its_sub_and_by_what_it_is_mapped_from() {
    let key = TestKey::ed25519("one");
    let gate = Gate::with_issuer([&key], "claims = { subject = \"email|sub\" }").await;
    let token = key.draft().claim("email", json!("a@example.com")).sign();
    for name in ["user-1", "a@example.com"] {
        gate.authenticator.set_deny_list(&DenyConfig::default());
        gate.try_token(&token).await.unwrap();
        let list = DenyConfig { sub: vec![name.to_owned()], ..DenyConfig::default() };
        gate.authenticator.set_deny_list(&list);
        assert_eq!(gate.try_token(&token).await.unwrap_err(), invalid(Reason::Denied));
    }
}
