//! Which header a token is taken from, and what a refusal says.

use tollgate::{
    auth::{AuthError, Reason},
    domain::Kind,
};

use super::support::{Gate, ISSUER, TempDir, TestKey, invalid, issuer, jwks};

#[tokio::test]
async fn no_header_is_no_token() {
    let gate = Gate::with_keys([&TestKey::ed25519("one")]).await;
    assert_eq!(gate.try_headers(&[]).await.unwrap_err(), AuthError::Missing);
}

#[tokio::test]
async fn another_scheme_or_an_empty_one_is_no_token() {
    let key = TestKey::ed25519("one");
    let gate = Gate::with_keys([&key]).await;
    let basic = format!("Basic {}", key.token());
    let token = key.token();
    let digest = format!("Digest {}", key.token());
    let none = [
        basic.as_str(),
        digest.as_str(),
        "Bearer",
        "Bearer ",
        "Bearer   ",
        "",
        "Bear",
        "BearerX y",
        &token,
        "🦀",
    ];
    for value in none {
        let error = gate.try_headers(&[("authorization", value.as_bytes())]).await.unwrap_err();
        assert_eq!(error, AuthError::Missing, "{value}");
    }
}

#[tokio::test]
async fn the_scheme_has_no_case_and_may_be_followed_by_spaces() {
    let key = TestKey::ed25519("one");
    let gate = Gate::with_keys([&key]).await;
    for scheme in ["Bearer ", "bearer ", "BEARER ", "Bearer   "] {
        let value = format!("{scheme}{}", key.token());
        gate.try_headers(&[("authorization", value.as_bytes())]).await.unwrap();
    }
}

#[tokio::test]
async fn two_authorization_headers_are_refused() {
    let key = TestKey::ed25519("one");
    let gate = Gate::with_keys([&key]).await;
    let value = format!("Bearer {}", key.token());
    let header = ("authorization", value.as_bytes());
    let error = gate.try_headers(&[header, header]).await.unwrap_err();
    assert_eq!(error, invalid(Reason::SeveralTokens));
    let error = gate.try_headers(&[header, ("authorization", b"Basic eA==")]).await.unwrap_err();
    assert_eq!(error, invalid(Reason::SeveralTokens));
}

#[tokio::test]
async fn two_tokens_in_one_header_are_refused() {
    let key = TestKey::ed25519("one");
    let gate = Gate::with_keys([&key]).await;
    let value = format!("{}, Bearer {}", key.token(), key.token());
    gate.try_token(value).await.expect_err("a list is no token");
}

#[tokio::test]
async fn x_api_key_is_taken_where_the_route_takes_it_and_nowhere_else() {
    let key = TestKey::ed25519("one");
    let gate = Gate::with_keys([&key]).await;
    let token = key.token();
    let header = [("x-api-key", token.as_bytes())];
    gate.try_on_key_route(&header).await.expect("on /v1/messages");
    assert_eq!(gate.try_headers(&header).await.unwrap_err(), AuthError::Missing);
}

#[tokio::test]
async fn two_different_tokens_in_two_headers_are_refused() {
    let key = TestKey::ed25519("one");
    let gate = Gate::with_keys([&key]).await;
    let (token, other) = (key.token(), key.draft().claim("sub", "user-2").sign());
    let bearer = format!("Bearer {token}");
    let bearer = ("authorization", bearer.as_bytes());
    let error = gate.try_on_key_route(&[bearer, ("x-api-key", other.as_bytes())]).await;
    assert_eq!(error.unwrap_err(), invalid(Reason::SeveralTokens));
    gate.try_on_key_route(&[bearer, ("x-api-key", token.as_bytes())]).await.expect("the same");
    gate.try_on_key_route(&[bearer, ("x-api-key", b"")]).await.expect("an empty one is none");
    let keys = [("x-api-key", token.as_bytes()), ("x-api-key", token.as_bytes())];
    let error = gate.try_on_key_route(&keys).await.unwrap_err();
    assert_eq!(error, invalid(Reason::SeveralTokens));
}

/// [`ISSUER`] in the usual header, `https://access.example` in Cloudflare's.
async fn gate_of_two(order: [usize; 2]) -> (Gate, TestKey, TestKey) {
    let (bff, access) = (TestKey::ed25519("bff"), TestKey::rsa("access", 0));
    let dir = TempDir::new();
    std::fs::write(dir.join("bff.json"), jwks([&bff])).unwrap();
    std::fs::write(dir.join("access.json"), jwks([&access])).unwrap();
    let entries = [
        issuer(&format!("jwks_file = {:?}\n", dir.join("bff.json"))),
        issuer(&format!(
            "header = \"Cf-Access-Jwt-Assertion\"\njwks_file = {:?}\n",
            dir.join("access.json")
        ))
        .replace(ISSUER, "https://access.example"),
    ];
    let toml = order.map(|index| entries[index].as_str()).concat();
    (Gate::start(&toml, dir, |_| {}).await.unwrap(), bff, access)
}

#[tokio::test]
async fn a_token_passes_in_its_own_issuers_header_alone() {
    let (gate, bff, access) = gate_of_two([0, 1]).await;
    let bff = bff.token();
    let access = access.draft().claim("iss", "https://access.example").sign();
    gate.try_token(&bff).await.unwrap();
    gate.try_headers(&[("cf-access-jwt-assertion", access.as_bytes())]).await.unwrap();
    // Also once they are cached, as they are now.
    for _ in 0..2 {
        let error = gate.try_token(&access).await.unwrap_err();
        assert_eq!(error, invalid(Reason::WrongSource));
        let error = gate.try_headers(&[("cf-access-jwt-assertion", bff.as_bytes())]).await;
        assert_eq!(error.unwrap_err(), invalid(Reason::WrongSource));
        let error = gate.try_on_key_route(&[("x-api-key", access.as_bytes())]).await.unwrap_err();
        assert_eq!(error, invalid(Reason::WrongSource));
    }
}

#[tokio::test]
async fn where_both_headers_are_there_the_first_issuers_header_decides() {
    for order in [[0, 1], [1, 0]] {
        let (gate, bff, access) = gate_of_two(order).await;
        let bearer = format!("Bearer {}", bff.token());
        let access = access.draft().claim("iss", "https://access.example").sign();
        let both =
            [("authorization", bearer.as_bytes()), ("cf-access-jwt-assertion", access.as_bytes())];
        let caller = gate.try_headers(&both).await.unwrap();
        let first = [ISSUER, "https://access.example"][order[0]];
        assert_eq!(caller.issuer, first);
        // No second try with the other.
        let broken = [both, [("authorization", b"Bearer x"), ("cf-access-jwt-assertion", b"x")]];
        let broken = match order {
            [0, 1] => [broken[1][0], broken[0][1]],
            _ => [broken[0][0], broken[1][1]],
        };
        let error = gate.try_headers(&broken).await.unwrap_err();
        assert_eq!(error, invalid(Reason::NotThreeParts));
    }
}

#[tokio::test]
async fn headers_that_no_issuer_names_are_ignored() {
    let (key, other) = (TestKey::rsa("one", 0), TestKey::ed25519("two"));
    let gate = Gate::with_issuer([&key], "header = \"cf-access-jwt-assertion\"").await;
    let token = key.token();
    let assertion = ("cf-access-jwt-assertion", token.as_bytes());
    let bearer = format!("Bearer {}", other.token());
    let bearer = ("authorization", bearer.as_bytes());
    // An SDK insists on sending some Authorization header.
    gate.try_headers(&[assertion, bearer]).await.unwrap();
    assert_eq!(gate.try_headers(&[bearer]).await.unwrap_err(), AuthError::Missing);
    let api_key = [("x-api-key", token.as_bytes())];
    assert_eq!(gate.try_on_key_route(&api_key).await.unwrap_err(), AuthError::Missing);
}

#[test]
fn a_refusal_is_a_401_with_the_right_challenge() {
    let challenge =
        |error: AuthError| error.www_authenticate().map(|value| value.to_str().unwrap().to_owned());
    assert_eq!(AuthError::Missing.kind(), Kind::MissingToken);
    // RFC 6750 §3.1: no error where no token was sent.
    assert_eq!(challenge(AuthError::Missing).unwrap(), "Bearer realm=\"tollgate\"");
    assert_eq!(AuthError::Expired.kind(), Kind::ExpiredToken);
    let expired = "Bearer error=\"invalid_token\", error_description=\"the token has expired\"";
    assert_eq!(challenge(AuthError::Expired).unwrap(), expired);
    let audience = invalid(Reason::WrongAudience);
    assert_eq!(audience.kind(), Kind::InvalidToken);
    assert_eq!(audience.reason(), "wrong_audience");
    let challenge_of_audience = "Bearer error=\"invalid_token\", \
                                 error_description=\"its aud does not name this gateway\"";
    assert_eq!(challenge(audience).unwrap(), challenge_of_audience);
    assert_eq!(audience.denial().kind.status(), 401);
}

#[test]
fn keys_that_cant_be_had_are_not_the_callers_fault() {
    let error = AuthError::Unavailable;
    assert_eq!(error.kind().status(), 503);
    assert_eq!(error.www_authenticate(), None);
    let denial = error.denial();
    assert!(denial.kind.retryable());
    assert!(denial.retry_after_ms.is_some());
}
