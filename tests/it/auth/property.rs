//! Whatever a stranger sends: no panic, and no entry.

use std::sync::LazyLock;

use http::{HeaderMap, HeaderValue};
use proptest::prelude::*;
use serde_json::json;
use tokio::runtime::{Builder, Runtime};
use tollgate::auth::{AuthError, KeySet, Reason, UnverifiedToken};

use super::support::{Gate, TestKey, b64};

struct Shared {
    runtime: Runtime,
    gate: Gate,
    key: TestKey,
}

static SHARED: LazyLock<Shared> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let key = TestKey::ed25519("key-1");
    let gate = runtime.block_on(Gate::with_keys([&key]));
    Shared { runtime, gate, key }
});

fn outcome(token: &[u8]) -> Result<(), AuthError> {
    SHARED.runtime.block_on(SHARED.gate.try_token(token)).map(drop)
}

proptest! {
    #[test]
    fn any_bytes_are_refused_without_a_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let _ = UnverifiedToken::parse(&bytes);
        let _ = KeySet::parse(&bytes);
        let mut headers = HeaderMap::new();
        if let Ok(value) = HeaderValue::from_bytes(&bytes) {
            headers.insert("authorization", value);
        }
        let authenticator = &SHARED.gate.authenticator;
        let result = SHARED.runtime.block_on(authenticator.authenticate(&headers, true));
        prop_assert!(result.is_err());
    }

    #[test]
    fn token_like_text_is_refused_without_a_panic(text in "[A-Za-z0-9_=-]{0,40}(\\.[A-Za-z0-9_-]{0,40}){0,4}") {
        prop_assert!(outcome(text.as_bytes()).is_err());
    }

    #[test]
    fn well_formed_tokens_without_the_key_are_refused(
        alg in "EdDSA|ES256|RS256|HS256|none|[a-zA-Z0-9]{0,6}",
        kid in prop::option::of("key-1|[ -~]{0,12}"),
        extra in prop::sample::subsequence(vec!["jku", "jwk", "x5u", "x5c"], 0..=4),
        signature in prop::collection::vec(any::<u8>(), 1..100),
    ) {
        let mut draft = SHARED.key.draft().header("alg", alg).without_header("kid");
        if let Some(kid) = kid {
            draft = draft.header("kid", kid);
        }
        for name in extra {
            draft = draft.header(name, json!("x"));
        }
        let parts = [b64(draft.header.to_string()), b64(draft.claims.to_string()), b64(signature)];
        prop_assert!(outcome(parts.join(".").as_bytes()).is_err());
    }

    #[test]
    fn a_good_token_with_any_byte_changed_is_refused(at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let mut token = SHARED.key.token().into_bytes();
        let at = at.index(token.len());
        prop_assume!(token[at] != to && (0x21..0x7f).contains(&to));
        token[at] = to;
        prop_assert!(outcome(&token).is_err());
    }

    #[test]
    fn a_token_cut_anywhere_is_refused(at in any::<prop::sample::Index>()) {
        let token = SHARED.key.token();
        let at = at.index(token.len());
        prop_assert!(outcome(&token.as_bytes()[..at]).is_err());
        prop_assert!(outcome(&token.as_bytes()[at + 1..]).is_err());
    }

    #[test]
    fn only_a_fresh_exp_passes(exp in any::<i64>(), fraction in 0.0..1.0_f64) {
        #[expect(clippy::cast_precision_loss, reason = "any number will do")]
        let exp = exp as f64 + fraction;
        let error = outcome(SHARED.key.draft().claim("exp", exp).sign().as_bytes()).err();
        let expected = [
            Some(AuthError::Expired),
            Some(AuthError::Invalid(Reason::BadTime)),
            Some(AuthError::Invalid(Reason::LifetimeTooLong)),
        ];
        prop_assert!(expected.contains(&error) || error.is_none());
        let good = (1_799_999_970.0..=1_800_086_400.001).contains(&exp);
        prop_assert_eq!(error.is_none(), good, "{}", exp);
    }
}

/// The properties above mean something only if the gate they try opens at all.
#[test]
fn the_good_token_itself_passes() {
    outcome(SHARED.key.token().as_bytes()).unwrap();
}
