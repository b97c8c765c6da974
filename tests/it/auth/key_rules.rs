//! What keys are taken from a JWK set (RFC 7517), and which key a token may use.

use jsonwebtoken::Algorithm;
use serde_json::{Value, json};
use tollgate::auth::{KeySet, KeySetError, Reason};

use super::support::{Gate, TestKey, b64, invalid, jwks};

fn refused_set<'a>(keys: impl IntoIterator<Item = &'a TestKey>) -> KeySetError {
    KeySet::parse(jwks(keys).as_bytes()).expect_err("the set is refused")
}

/// A key that is to be left out, beside a good one: the set loads, the good key works, and the
/// other one's tokens are refused.
async fn is_left_out(left_out: &TestKey) {
    let good = TestKey::ed25519("good");
    let gate = Gate::with_keys([&good, left_out]).await;
    gate.try_token(good.token()).await.expect("the good key works");
    let error = gate.try_token(left_out.token()).await.expect_err("the key is left out");
    assert_eq!(error, invalid(Reason::UnknownKey));
}

async fn works(key: &TestKey) {
    Gate::with_keys([key]).await.try_token(key.token()).await.expect("the key works");
}

#[tokio::test]
async fn kid_is_required_where_there_are_several_keys() {
    let (one, two) = (TestKey::ed25519("one"), TestKey::ed25519("two"));
    let gate = Gate::with_keys([&one, &two]).await;
    gate.try_token(one.token()).await.unwrap();
    gate.try_token(two.token()).await.unwrap();
    let error = gate.try_token(one.draft().without_header("kid").sign()).await.unwrap_err();
    assert_eq!(error, invalid(Reason::MissingKid));
}

#[tokio::test]
async fn kid_may_be_left_out_where_there_is_one_key() {
    let key = TestKey::ed25519("one");
    let gate = Gate::with_keys([&key]).await;
    gate.try_token(key.draft().without_header("kid").sign()).await.unwrap();
}

#[tokio::test]
async fn a_key_without_kid_is_for_tokens_without_kid() {
    let key = TestKey::ed25519("one").without("kid");
    let gate = Gate::with_keys([&key]).await;
    gate.try_token(key.token()).await.unwrap();
    let error = gate.try_token(key.draft().header("kid", "one").sign()).await.unwrap_err();
    assert_eq!(error, invalid(Reason::UnknownKey));
}

#[tokio::test]
async fn a_kid_that_no_key_has_is_refused() {
    let key = TestKey::ed25519("one");
    let gate = Gate::with_keys([&key]).await;
    let error = gate.try_token(key.draft().header("kid", "two").sign()).await.unwrap_err();
    assert_eq!(error, invalid(Reason::UnknownKey));
}

#[tokio::test]
async fn the_kid_of_another_key_is_refused() {
    let (one, two) = (TestKey::ed25519("one"), TestKey::ed25519("two"));
    let gate = Gate::with_keys([&one, &two]).await;
    let error = gate.try_token(one.draft().header("kid", "two").sign()).await.unwrap_err();
    assert_eq!(error, invalid(Reason::BadSignature));
}

#[tokio::test]
async fn a_key_is_used_with_its_own_kind_of_algorithm_alone() {
    let (edwards, elliptic) = (TestKey::ed25519("edwards"), TestKey::p256("elliptic"));
    let gate = Gate::with_keys([&edwards, &elliptic]).await;
    let error = gate.try_token(edwards.draft().header("kid", "elliptic").sign()).await;
    assert_eq!(error.unwrap_err(), invalid(Reason::AlgorithmMismatch));
}

#[tokio::test]
async fn a_key_that_states_its_alg_is_for_that_alone() {
    let key = TestKey::rsa("key-1", 0).with("alg", json!("RS256"));
    let listed = "algorithms = [\"RS256\", \"PS256\", \"RS512\"]";
    let gate = Gate::with_issuer([&key], listed).await;
    gate.try_token(key.token()).await.unwrap();
    for algorithm in [Algorithm::PS256, Algorithm::RS512] {
        let other = key.clone().with_algorithm(algorithm).token();
        let error = gate.try_token(&other).await.unwrap_err();
        assert_eq!(error, invalid(Reason::AlgorithmMismatch));
        // The same token passes where the key does not say.
        let silent = Gate::with_issuer([&key.clone().without("alg")], listed).await;
        silent.try_token(other).await.unwrap();
    }
}

#[tokio::test]
async fn a_key_whose_alg_does_not_fit_is_left_out() {
    let wrong = [
        TestKey::ed25519("wrong").with("alg", json!("ES256")),
        TestKey::p256("wrong").with("alg", json!("ES384")),
        TestKey::p384("wrong").with("alg", json!("ES256")),
        TestKey::rsa("wrong", 0).with("alg", json!("HS256")),
        TestKey::rsa("wrong", 0).with("alg", json!("RSA-OAEP")),
        TestKey::rsa("wrong", 0).with("alg", json!("none")),
        TestKey::ed25519("wrong").with("alg", json!(null)),
    ];
    for key in &wrong {
        is_left_out(key).await;
    }
    works(&TestKey::ed25519("key-1").with("alg", json!("EdDSA"))).await;
    works(&TestKey::p384("key-1").with("alg", json!("ES384"))).await;
}

#[tokio::test]
async fn a_key_for_encryption_is_left_out() {
    works(&TestKey::ed25519("key-1").with("use", json!("sig"))).await;
    for usage in [json!("enc"), json!("SIG"), json!(null), json!(["sig"])] {
        is_left_out(&TestKey::ed25519("wrong").with("use", usage)).await;
    }
}

#[tokio::test]
async fn a_key_whose_operations_lack_verify_is_left_out() {
    works(&TestKey::ed25519("key-1").with("key_ops", json!(["verify"]))).await;
    works(&TestKey::ed25519("key-1").with("key_ops", json!(["sign", "verify"]))).await;
    for operations in [json!(["sign"]), json!([]), json!("verify"), json!(null)] {
        is_left_out(&TestKey::ed25519("wrong").with("key_ops", operations)).await;
    }
}

#[tokio::test]
async fn a_key_of_a_kind_yet_to_come_is_left_out() {
    is_left_out(&TestKey::ed25519("future").with("kty", json!("AKP"))).await;
    is_left_out(&TestKey::ed25519("future").without("kty")).await;
    is_left_out(&TestKey::ed25519("future").with("kty", json!(1))).await;
}

#[tokio::test]
async fn a_key_on_another_curve_is_left_out() {
    for curve in ["Ed448", "X25519", "P-256", ""] {
        is_left_out(&TestKey::ed25519("wrong").with("crv", json!(curve))).await;
    }
    for curve in ["P-384", "P-521", "secp256k1", "p-256"] {
        is_left_out(&TestKey::p256("wrong").with("crv", json!(curve))).await;
    }
}

#[tokio::test]
async fn a_key_that_is_no_valid_key_is_left_out() {
    let point = TestKey::p256("x");
    let x = point.jwk["x"].clone();
    let wrong = [
        // Not on the curve, with all but certainty.
        TestKey::p256("wrong").with("x", x),
        TestKey::p256("wrong").with("x", json!(b64([0; 32]))).with("y", json!(b64([0; 32]))),
        TestKey::p256("wrong").with("x", json!(b64([1; 31]))),
        TestKey::p256("wrong").without("y"),
        TestKey::ed25519("wrong").with("x", json!(b64([1; 31]))),
        TestKey::ed25519("wrong").with("x", json!("not base64!")),
        TestKey::ed25519("wrong").without("x"),
        TestKey::rsa("wrong", 0).with("e", json!(b64([1]))),
        TestKey::rsa("wrong", 0).with("e", json!(b64([1, 0, 0]))),
        TestKey::rsa("wrong", 0).with("e", json!("")),
        TestKey::rsa("wrong", 0).with("n", json!(b64([0; 256]))),
        TestKey::rsa("wrong", 0).without("n"),
    ];
    for key in &wrong {
        is_left_out(key).await;
    }
}

#[tokio::test]
async fn zeros_before_an_rsa_modulus_change_nothing() {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    let key = TestKey::rsa("key-1", 0);
    let n = URL_SAFE_NO_PAD.decode(key.jwk["n"].as_str().unwrap()).unwrap();
    let padded = [&[0, 0][..], &n].concat();
    works(&key.with("n", json!(b64(padded)))).await;
}

#[test]
fn rsa_keys_have_2048_to_8192_bits() {
    let of_bits = |bits: usize| {
        let mut n = vec![0xff; bits.div_ceil(8)];
        n[0] = 0xff >> ((8 - bits % 8) % 8);
        let key = TestKey::rsa("key-1", 0).with("n", json!(b64(n)));
        KeySet::parse(jwks([&key]).as_bytes()).map(drop)
    };
    assert_eq!(of_bits(1_024), Err(KeySetError::NoUsableKey));
    assert_eq!(of_bits(2_047), Err(KeySetError::NoUsableKey));
    assert_eq!(of_bits(2_048), Ok(()));
    assert_eq!(of_bits(8_192), Ok(()));
    assert_eq!(of_bits(8_193), Err(KeySetError::NoUsableKey));
    assert_eq!(of_bits(16_384), Err(KeySetError::NoUsableKey));
}

#[test]
fn a_shared_secret_spoils_the_set() {
    let good = TestKey::ed25519("good");
    let secret = json!({ "kty": "oct", "k": b64([7; 64]), "kid": "secret", "alg": "HS256" });
    let mut oct = TestKey::hmac(&[7; 64]);
    oct.jwk = secret;
    assert!(matches!(refused_set([&good, &oct]), KeySetError::Spoiled(_)));
    assert!(matches!(refused_set([&oct.with("use", json!("enc"))]), KeySetError::Spoiled(_)));
}

#[test]
fn a_private_key_spoils_the_set() {
    let good = TestKey::ed25519("good");
    let leaked = TestKey::ed25519("leaked").with("d", json!(b64([7; 32])));
    assert!(matches!(refused_set([&good, &leaked]), KeySetError::Spoiled(_)));
}

#[test]
fn a_kid_that_is_there_twice_spoils_the_set() {
    let (one, two) = (TestKey::ed25519("same"), TestKey::p256("same"));
    assert_eq!(refused_set([&one, &two]), KeySetError::DuplicateKid);
    // Even where only one of the two could be used.
    let encrypting = two.with("use", json!("enc"));
    assert_eq!(refused_set([&one, &encrypting]), KeySetError::DuplicateKid);
}

#[test]
fn a_set_of_more_than_64_keys_is_refused() {
    let keys: Vec<TestKey> = (0..65).map(|n| TestKey::ed25519(&n.to_string())).collect();
    assert_eq!(refused_set(&keys), KeySetError::TooManyKeys);
    KeySet::parse(jwks(&keys[..64]).as_bytes()).expect("64 keys are taken");
}

#[test]
fn a_set_without_a_usable_key_is_refused() {
    assert_eq!(refused_set([]), KeySetError::NoUsableKey);
    let encrypting = TestKey::ed25519("one").with("use", json!("enc"));
    assert_eq!(refused_set([&encrypting]), KeySetError::NoUsableKey);
}

#[test]
fn what_is_no_jwk_set_is_refused() {
    let no_sets: [&[u8]; 9] = [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b"{\"keys\":{}}",
        b"{\"keys\":[1]}",
        b"{\"keys\":[],\"keys\":[]}",
        b"{\"keys\":[{\"kty\":\"OKP\",\"kty\":\"EC\"}]}",
        b"\xff",
    ];
    for text in no_sets {
        assert_eq!(KeySet::parse(text).unwrap_err(), KeySetError::Malformed);
    }
}

#[test]
fn a_set_larger_than_256_kib_is_refused() {
    let set: Value = serde_json::from_str(&jwks([&TestKey::ed25519("one")])).unwrap();
    let mut text = set.to_string();
    text.push_str(&" ".repeat(KeySet::MAX_LEN - text.len()));
    KeySet::parse(text.as_bytes()).expect("256 KiB are taken");
    text.push(' ');
    assert_eq!(KeySet::parse(text.as_bytes()).unwrap_err(), KeySetError::TooLarge);
}
