//! The registered claims (RFC 7519 §4.1).

use serde_json::{Value, json};
use tollgate::auth::{AuthError, Reason};

use super::support::{Gate, ISSUER, NOW_S, TestKey, invalid, passes, refusal, refusal_of_text};

/// As in `AuthConfig::default`.
const LEEWAY_S: u64 = 30;
const MAX_LIFETIME_S: u64 = 86_400;

#[tokio::test]
async fn iss_is_required() {
    let error = refusal(|draft| draft.without_claim("iss")).await;
    assert_eq!(error, invalid(Reason::UnknownIssuer));
}

#[tokio::test]
async fn iss_is_compared_exactly() {
    let others = [
        json!(format!("{ISSUER}/")),
        json!("https://BFF.example"),
        json!("http://bff.example"),
        json!(""),
        json!([ISSUER]),
        json!(null),
    ];
    for iss in others {
        let error = refusal(|draft| draft.claim("iss", iss.clone())).await;
        assert_eq!(error, invalid(Reason::UnknownIssuer), "{iss}");
    }
}

#[tokio::test]
async fn aud_is_required() {
    let error = refusal(|draft| draft.without_claim("aud")).await;
    assert_eq!(error, invalid(Reason::WrongAudience));
}

#[tokio::test]
async fn aud_must_name_us() {
    let others = [
        json!("someone-else"),
        json!("Tollgate"),
        json!("tollgate-admin"),
        json!(""),
        json!([]),
        json!(["a", "b"]),
        json!(null),
        json!(1),
        json!({ "tollgate": true }),
        json!([["tollgate"]]),
        json!(["tollgate", 1]),
    ];
    for aud in others {
        let error = refusal(|draft| draft.claim("aud", aud.clone())).await;
        assert_eq!(error, invalid(Reason::WrongAudience), "{aud}");
    }
}

#[tokio::test]
async fn aud_may_name_others_too() {
    passes(|draft| draft.claim("aud", json!(["someone-else", "tollgate"]))).await;
}

#[tokio::test]
async fn any_of_the_configured_audiences_will_do() {
    let key = TestKey::ed25519("key-1");
    let dir = super::support::TempDir::new();
    std::fs::write(dir.join("jwks.json"), super::support::jwks([&key])).unwrap();
    let toml = format!(
        "[[issuers]]\nissuer = \"{ISSUER}\"\naudience = [\"a\", \"b\"]\nalgorithms = [\"EdDSA\"]\n\
         jwks_file = {:?}",
        dir.join("jwks.json")
    );
    let gate = Gate::start(&toml, dir, |_| {}).await.unwrap();
    gate.try_token(key.draft().claim("aud", "b").sign()).await.unwrap();
    let error = gate.try_token(key.draft().sign()).await.unwrap_err();
    assert_eq!(error, invalid(Reason::WrongAudience));
}

#[tokio::test]
async fn exp_is_required() {
    let error = refusal(|draft| draft.without_claim("exp")).await;
    assert_eq!(error, invalid(Reason::MissingExpiry));
}

#[tokio::test]
async fn an_expired_token_is_refused_once_the_leeway_is_over() {
    let at = |exp: u64| {
        move |draft: super::support::Draft| {
            draft.claim("exp", exp).claim("iat", NOW_S - 900).claim("nbf", NOW_S - 900)
        }
    };
    passes(at(NOW_S - LEEWAY_S + 1)).await;
    // "on or after which it must not be accepted"
    assert_eq!(refusal(at(NOW_S - LEEWAY_S)).await, AuthError::Expired);
    assert_eq!(refusal(at(0)).await, AuthError::Expired);
}

#[tokio::test]
async fn nbf_is_checked_with_leeway() {
    passes(|draft| draft.claim("nbf", NOW_S + LEEWAY_S)).await;
    let error = refusal(|draft| draft.claim("nbf", NOW_S + LEEWAY_S + 1)).await;
    assert_eq!(error, invalid(Reason::NotYetValid));
}

#[tokio::test]
async fn iat_in_the_future_is_refused() {
    passes(|draft| draft.claim("iat", NOW_S + LEEWAY_S)).await;
    let error = refusal(|draft| draft.claim("iat", NOW_S + LEEWAY_S + 1)).await;
    assert_eq!(error, invalid(Reason::IssuedInFuture));
}

#[tokio::test]
async fn times_must_be_numbers_of_seconds() {
    let wrong = [
        json!("1800000600"),
        json!(null),
        json!(true),
        json!([1_800_000_600_u64]),
        json!(-1),
        json!(-0.5),
        // Milliseconds, a common mistake.
        json!(1_800_000_600_000_u64),
        json!(u64::MAX),
        json!(1e300),
    ];
    for name in ["exp", "nbf", "iat"] {
        for value in &wrong {
            let error = refusal(|draft| draft.claim(name, value.clone())).await;
            assert_eq!(error, invalid(Reason::BadTime), "{name}: {value}");
        }
    }
}

#[tokio::test]
async fn a_number_too_large_for_json_is_refused() {
    for number in ["1e999", "-1e999", "NaN", "Infinity"] {
        let error = refusal_of_text(|draft| {
            let payload = draft.claims.to_string();
            let payload = payload.replace(&(NOW_S + 600).to_string(), number);
            assert!(payload.contains(number));
            draft.key.sign_text(&draft.header.to_string(), &payload)
        });
        assert_eq!(error.await, invalid(Reason::BadPayload), "{number}");
    }
}

#[tokio::test]
async fn times_may_have_fractions() {
    #[expect(clippy::cast_precision_loss, reason = "seconds of this century are exact in an f64")]
    let now = NOW_S as f64;
    passes(|draft| draft.claim("exp", now + 60.5).claim("iat", now - 0.25)).await;
    let just_over = now - 30.001;
    let error = refusal(|draft| draft.claim("exp", just_over).claim("iat", now - 60.0)).await;
    assert_eq!(error, AuthError::Expired);
}

#[tokio::test]
async fn the_lifetime_is_capped() {
    passes(|draft| draft.claim("exp", NOW_S + MAX_LIFETIME_S)).await;
    let error = refusal(|draft| draft.claim("exp", NOW_S + MAX_LIFETIME_S + 1)).await;
    assert_eq!(error, invalid(Reason::LifetimeTooLong));
}

#[tokio::test]
async fn the_lifetime_counts_from_iat_and_not_from_now() {
    let error = refusal(|draft| draft.claim("iat", NOW_S - MAX_LIFETIME_S).claim("exp", NOW_S + 1));
    assert_eq!(error.await, invalid(Reason::LifetimeTooLong));
}

#[tokio::test]
async fn without_iat_the_lifetime_counts_from_nbf() {
    let old = |exp: u64| {
        move |draft: super::support::Draft| {
            draft.without_claim("iat").claim("nbf", NOW_S - 100).claim("exp", exp)
        }
    };
    passes(old(NOW_S - 100 + MAX_LIFETIME_S)).await;
    let error = refusal(old(NOW_S - 100 + MAX_LIFETIME_S + 1)).await;
    assert_eq!(error, invalid(Reason::LifetimeTooLong));
}

#[tokio::test]
async fn without_iat_and_nbf_the_lifetime_counts_from_now() {
    let bare = |exp: u64| {
        move |draft: super::support::Draft| {
            draft.without_claim("iat").without_claim("nbf").claim("exp", exp)
        }
    };
    passes(bare(NOW_S + MAX_LIFETIME_S)).await;
    let error = refusal(bare(NOW_S + MAX_LIFETIME_S + 1)).await;
    assert_eq!(error, invalid(Reason::LifetimeTooLong));
}

#[tokio::test]
async fn a_jti_or_sub_that_could_not_be_denied_is_refused() {
    for name in ["jti", "sub"] {
        for value in [json!(1), json!(null), json!(["a"])] {
            let error = refusal(|draft| draft.claim(name, value.clone())).await;
            let AuthError::Invalid(reason) = error else { panic!("{error}") };
            assert_eq!(reason, Reason::BadClaim(name), "{name}: {value}");
        }
    }
}

#[tokio::test]
async fn jti_may_be_left_out() {
    passes(|draft| draft.without_claim("jti")).await;
}

#[tokio::test]
async fn an_issuer_is_verified_with_its_own_keys_alone() {
    let (one, two) = (TestKey::ed25519("one"), TestKey::ed25519("two"));
    let dir = super::support::TempDir::new();
    std::fs::write(dir.join("one.json"), super::support::jwks([&one])).unwrap();
    std::fs::write(dir.join("two.json"), super::support::jwks([&two])).unwrap();
    let entry = |issuer: &str, audience: &str, file| {
        format!(
            "[[issuers]]\nissuer = {issuer:?}\naudience = [{audience:?}]\n\
             algorithms = [\"EdDSA\"]\njwks_file = {:?}\n",
            dir.join(file)
        )
    };
    let toml = entry("one", "for-one", "one.json") + &entry("two", "for-two", "two.json");
    let gate = Gate::start(&toml, dir, |_| {}).await.unwrap();
    let of = |key: &TestKey, iss: &str, aud: &str| {
        key.draft().claim("iss", Value::from(iss)).claim("aud", aud).sign()
    };
    assert_eq!(gate.try_token(of(&one, "one", "for-one")).await.unwrap().issuer, "one");
    assert_eq!(gate.try_token(of(&two, "two", "for-two")).await.unwrap().issuer, "two");
    let error = gate.try_token(of(&two, "one", "for-one")).await.unwrap_err();
    assert_eq!(error, invalid(Reason::UnknownKey));
    let error = gate.try_token(of(&one, "one", "for-two")).await.unwrap_err();
    assert_eq!(error, invalid(Reason::WrongAudience));
}
