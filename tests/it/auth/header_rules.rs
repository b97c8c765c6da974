//! A token's own header (RFC 7515 §4.1, RFC 8725 §3).

use serde_json::{Value, json};
use tollgate::auth::Reason;

use super::support::{Gate, TestKey, b64, invalid, passes, refusal, refusal_of_text};

#[tokio::test]
async fn crit_is_refused() {
    let error = refusal(|draft| draft.header("crit", json!(["exp"]))).await;
    assert_eq!(error, invalid(Reason::UnsupportedHeader));
}

#[tokio::test]
async fn an_empty_crit_is_refused() {
    let error = refusal(|draft| draft.header("crit", json!([]))).await;
    assert_eq!(error, invalid(Reason::UnsupportedHeader));
}

#[tokio::test]
async fn zip_is_refused() {
    let error = refusal(|draft| draft.header("zip", "DEF")).await;
    assert_eq!(error, invalid(Reason::UnsupportedHeader));
}

#[tokio::test]
async fn b64_is_refused_even_where_it_is_true() {
    for value in [true, false] {
        let error = refusal(|draft| draft.header("b64", value)).await;
        assert_eq!(error, invalid(Reason::UnsupportedHeader));
    }
}

#[tokio::test]
async fn a_header_that_names_a_member_twice_is_refused() {
    let error = refusal_of_text(|draft| {
        let header = draft.header.to_string().replacen('{', "{\"alg\":\"EdDSA\",", 1);
        draft.key.sign_text(&header, &draft.claims.to_string())
    });
    assert_eq!(error.await, invalid(Reason::BadHeader));
}

#[tokio::test]
async fn a_header_that_is_no_object_is_refused() {
    for header in ["[]", "\"EdDSA\"", "null", "{\"alg\":\"EdDSA\"", "{\"alg\":\"EdDSA\"}x"] {
        let error =
            refusal_of_text(|draft| draft.key.sign_text(header, &draft.claims.to_string())).await;
        assert_eq!(error, invalid(Reason::BadHeader), "{header}");
    }
}

#[tokio::test]
async fn a_header_without_alg_is_refused() {
    let error = refusal(|draft| draft.without_header("alg")).await;
    assert_eq!(error, invalid(Reason::BadHeader));
}

#[tokio::test]
async fn an_alg_that_is_no_text_is_refused() {
    for alg in [json!(null), json!(["EdDSA"]), json!(1)] {
        let error = refusal(|draft| draft.header("alg", alg)).await;
        assert_eq!(error, invalid(Reason::BadHeader));
    }
}

#[tokio::test]
async fn none_is_no_algorithm_in_any_spelling() {
    for none in ["none", "None", "NONE", "nOnE", "", "eddsa"] {
        let error = refusal(|draft| draft.header("alg", none)).await;
        assert_eq!(error, invalid(Reason::AlgorithmNotAllowed), "{none}");
        let unsigned = refusal_of_text(|draft| {
            let header = json!({ "alg": none, "typ": "JWT" }).to_string();
            format!("{}.{}.", b64(header), b64(draft.claims.to_string()))
        });
        assert_eq!(unsigned.await, invalid(Reason::NotThreeParts), "{none}");
    }
}

#[tokio::test]
async fn a_typ_of_another_kind_of_token_is_refused() {
    let others = [json!("logout+jwt"), json!("dpop+jwt"), json!("JWE"), json!(""), json!(null)];
    for typ in others {
        let error = refusal(|draft| draft.header("typ", typ.clone())).await;
        assert_eq!(error, invalid(Reason::WrongType), "{typ}");
    }
}

#[tokio::test]
async fn typ_may_be_left_out_and_has_no_case_and_may_have_a_prefix() {
    passes(|draft| draft.without_header("typ")).await;
    for typ in ["JWT", "jwt", "at+jwt", "AT+JWT", "application/jwt", "Application/at+JWT"] {
        passes(|draft| draft.header("typ", typ)).await;
    }
}

#[tokio::test]
async fn a_kid_that_is_no_text_is_refused() {
    for kid in [json!(null), json!(1), json!(["key-1"]), json!({})] {
        let error = refusal(|draft| draft.header("kid", kid)).await;
        assert_eq!(error, invalid(Reason::BadHeader));
    }
}

#[tokio::test]
async fn a_kid_of_monstrous_length_is_refused() {
    let error = refusal(|draft| draft.header("kid", "k".repeat(513))).await;
    assert_eq!(error, invalid(Reason::BadHeader));
}

#[tokio::test]
async fn a_kid_is_only_ever_a_name() {
    for kid in ["../../../../dev/null", "key-1' OR '1'='1", "key-1\u{0}", "KEY-1", ""] {
        let error = refusal(|draft| draft.header("kid", kid)).await;
        assert_eq!(error, invalid(Reason::UnknownKey), "{kid}");
    }
}

#[tokio::test]
async fn a_key_that_the_token_brings_along_is_ignored() {
    let attacker = TestKey::ed25519("key-1");
    let brought: [(&str, Value); 4] = [
        ("jwk", attacker.jwk.clone()),
        ("jku", json!("http://127.0.0.1:1/keys")),
        ("x5u", json!("http://127.0.0.1:1/chain")),
        ("x5c", json!(["MIIB"])),
    ];
    for (name, value) in brought {
        // Harmless in a good token, and of no help to a forged one.
        passes(|draft| draft.header(name, value.clone())).await;
        let forged = refusal(|mut draft| {
            draft.key = attacker.clone();
            draft.header(name, value)
        });
        assert_eq!(forged.await, invalid(Reason::BadSignature), "{name}");
    }
}

#[tokio::test]
async fn an_algorithm_that_the_issuer_does_not_list_is_refused() {
    let (listed, other) = (TestKey::ed25519("key-1"), TestKey::p256("key-2"));
    let gate = Gate::with_issuer([&listed, &other], "algorithms = [\"EdDSA\"]").await;
    gate.try_token(listed.token()).await.unwrap();
    let error = gate.try_token(other.token()).await.unwrap_err();
    assert_eq!(error, invalid(Reason::AlgorithmNotAllowed));
}

#[tokio::test]
async fn a_public_key_is_not_taken_for_a_shared_secret() {
    let rsa = TestKey::rsa("key-1", 0);
    let gate = Gate::with_keys([&rsa]).await;
    gate.try_token(rsa.token()).await.unwrap();
    let jwks = super::support::jwks([&rsa]);
    let n = rsa.jwk["n"].as_str().unwrap();
    for secret in [jwks.as_bytes(), n.as_bytes(), rsa.jwk.to_string().as_bytes()] {
        let mut draft = rsa.draft().header("alg", "HS256");
        draft.key = TestKey::hmac(secret);
        let error = gate.try_token(draft.sign()).await.unwrap_err();
        assert_eq!(error, invalid(Reason::AlgorithmNotAllowed));
    }
}

#[tokio::test]
async fn each_supported_algorithm_passes() {
    use jsonwebtoken::Algorithm::{PS256, PS384, PS512, RS256, RS384, RS512};
    let rsa = [RS256, RS384, RS512, PS256, PS384, PS512]
        .map(|algorithm| TestKey::rsa("key-1", 0).with_algorithm(algorithm));
    let others = [TestKey::ed25519("key-1"), TestKey::p256("key-1"), TestKey::p384("key-1")];
    for key in rsa.iter().chain(&others) {
        let listed = format!("algorithms = [{:?}]", format!("{:?}", key.algorithm));
        let gate = Gate::with_issuer([key], &listed).await;
        gate.try_token(key.token()).await.unwrap();
    }
}
