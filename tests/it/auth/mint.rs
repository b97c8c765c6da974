//! Minting, and the files that keys live in.

use std::{fs, io, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use aws_lc_rs::{
    encoding::{AsDer, Pkcs8V1Der},
    rsa::{KeyPair as RsaKeyPair, KeySize},
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair},
};
use jsonwebtoken::Algorithm;
use serde_json::{Value, json};
use tollgate::{
    auth::{
        AuthOptions,
        mint::{MintError, SigningKey, SigningKeyError, TokenSpec, mint},
    },
    domain::{Caller, TrustLevel},
};

use super::support::{Gate, ISSUER, TempDir, issuer, pem};

fn spec() -> TokenSpec {
    TokenSpec {
        issuer: ISSUER.to_owned(),
        audience: vec!["tollgate".to_owned()],
        subject: "dev".to_owned(),
        tier: Some("pro".to_owned()),
        agent: Some("curl".to_owned()),
        capabilities: vec!["model:reasoning".to_owned(), "code:read".to_owned()],
        trust: Some(TrustLevel::L3),
        ttl: Duration::from_mins(10),
        extra: [("division".to_owned(), json!("research"))].into(),
    }
}

/// Who a gate that has `key`'s public half takes a minted token for.
async fn caller_of(key: &SigningKey, spec: &TokenSpec) -> Caller {
    let dir = TempDir::new();
    fs::write(dir.join("jwks.json"), key.public_jwks().to_string()).unwrap();
    let toml = issuer(&format!(
        "jwks_file = {:?}\nclaims = {{ extra = {{ division = \"division\" }} }}\n",
        dir.join("jwks.json")
    ));
    let real_time = |options: &mut AuthOptions| *options = AuthOptions::default();
    let gate = Gate::start(&toml, dir, real_time).await.unwrap();
    (*gate.try_token(mint(key, spec).unwrap()).await.unwrap()).clone()
}

fn write_key(path: &Path, pem: &str) {
    fs::write(path, pem).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

#[tokio::test]
async fn a_minted_token_says_what_it_was_told_to() {
    let dir = TempDir::new();
    let key = SigningKey::generate_file(&dir.join("key.pem")).unwrap();
    let caller = caller_of(&key, &spec()).await;
    assert_eq!(caller.subject, "dev");
    assert_eq!(caller.tier, "pro");
    assert_eq!(caller.agent.as_deref(), Some("curl"));
    assert_eq!(caller.capabilities.to_string(), "code:read model:reasoning");
    assert_eq!(caller.trust, TrustLevel::L3);
    assert_eq!(caller.extra["division"], "research");
}

#[tokio::test]
async fn a_key_in_a_file_is_the_key_that_was_made() {
    let dir = TempDir::new();
    let path = dir.join("data/keys/key.pem");
    let made = SigningKey::generate_file(&path).unwrap();
    let loaded = SigningKey::load(&path).unwrap();
    assert_eq!(made.kid(), loaded.kid());
    assert_eq!(made.public_jwks(), loaded.public_jwks());
    caller_of(&loaded, &spec()).await;
}

#[test]
fn a_key_file_is_for_its_owner_alone() {
    let dir = TempDir::new();
    let path = dir.join("key.pem");
    SigningKey::generate_file(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    for mode in [0o640, 0o604, 0o620, 0o644, 0o660] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let error = SigningKey::load(&path).unwrap_err();
        assert!(matches!(error, SigningKeyError::Exposed { .. }), "{mode:o}: {error}");
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    SigningKey::load(&path).unwrap();
}

#[test]
fn a_key_file_that_is_there_is_left_alone() {
    let dir = TempDir::new();
    let path = dir.join("key.pem");
    let first = SigningKey::generate_file(&path).unwrap();
    let error = SigningKey::generate_file(&path).unwrap_err();
    let SigningKeyError::File { source, .. } = error else { panic!("{error}") };
    assert_eq!(source.kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(SigningKey::load(&path).unwrap().kid(), first.kid());
    let left = fs::read_dir(path.parent().unwrap()).unwrap().count();
    assert_eq!(left, 1, "no draft is left behind");
}

#[tokio::test]
async fn keys_of_other_kinds_are_loaded_too() {
    let dir = TempDir::new();
    let path = dir.join("key.pem");
    let elliptic = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
    let rsa = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let rsa_der: Pkcs8V1Der<'_> = rsa.as_der().unwrap();
    let pems = [
        (pem(elliptic.to_pkcs8v1().unwrap().as_ref()), Algorithm::ES256),
        (pem(rsa_der.as_ref()), Algorithm::RS256),
    ];
    for (pem, algorithm) in pems {
        write_key(&path, &pem);
        let key = SigningKey::load(&path).unwrap();
        assert_eq!(key.algorithm(), algorithm);
        assert_eq!(caller_of(&key, &spec()).await.subject, "dev");
    }
}

#[test]
fn what_is_no_key_is_refused() {
    let dir = TempDir::new();
    let path = dir.join("key.pem");
    let key = pem(&[0; 48]);
    for text in ["", "key", "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----", &key] {
        write_key(&path, text);
        let error = SigningKey::load(&path).unwrap_err();
        assert!(matches!(error, SigningKeyError::NotAKey { .. }), "{error}");
    }
    let error = SigningKey::load(&dir.join("nowhere.pem")).unwrap_err();
    assert!(matches!(error, SigningKeyError::File { .. }), "{error}");
}

#[test]
fn the_kid_is_the_thumbprint_of_rfc_8037() {
    // RFC 8037, appendix A.1 (the key) and A.3 (its thumbprint), as PKCS#8.
    let seed = [
        0x9d, 0x61, 0xb1, 0x9d, 0xef, 0xfd, 0x5a, 0x60, 0xba, 0x84, 0x4a, 0xf4, 0x92, 0xec, 0x2c,
        0xc4, 0x44, 0x49, 0xc5, 0x69, 0x7b, 0x32, 0x69, 0x19, 0x70, 0x3b, 0xac, 0x03, 0x1c, 0xae,
        0x7f, 0x60,
    ];
    let prefix = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
    let dir = TempDir::new();
    let path = dir.join("key.pem");
    write_key(&path, &pem(&[&prefix[..], &seed].concat()));
    let key = SigningKey::load(&path).unwrap();
    assert_eq!(key.kid(), "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
    let expected = json!({ "keys": [{
        "kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
        "use": "sig", "alg": "EdDSA", "kid": "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k",
    }] });
    assert_eq!(key.public_jwks(), expected);
}

#[test]
fn a_token_without_the_needful_is_not_minted() {
    let dir = TempDir::new();
    let key = SigningKey::generate_file(&dir.join("key.pem")).unwrap();
    let lacking = [
        TokenSpec { issuer: String::new(), ..spec() },
        TokenSpec { audience: Vec::new(), ..spec() },
        TokenSpec { subject: String::new(), ..spec() },
        TokenSpec { ttl: Duration::from_millis(999), ..spec() },
    ];
    for spec in &lacking {
        assert!(matches!(mint(&key, spec).unwrap_err(), MintError::Missing(_)));
    }
    for name in ["exp", "iss", "jti", "capabilities"] {
        let extra = [(name.to_owned(), Value::from(1))].into();
        let error = mint(&key, &TokenSpec { extra, ..spec() }).unwrap_err();
        assert!(matches!(error, MintError::Reserved(reserved) if reserved == name));
    }
}

#[test]
fn each_token_has_a_jti_of_its_own() {
    let dir = TempDir::new();
    let key = SigningKey::generate_file(&dir.join("key.pem")).unwrap();
    assert_ne!(mint(&key, &spec()).unwrap(), mint(&key, &spec()).unwrap());
}

#[test]
fn a_key_shows_nothing_of_its_private_half() {
    let dir = TempDir::new();
    let path = dir.join("key.pem");
    let key = SigningKey::generate_file(&path).unwrap();
    let pem = fs::read_to_string(&path).unwrap();
    let body = pem.lines().nth(1).unwrap();
    for shown in [format!("{key:?}"), key.public_jwks().to_string()] {
        assert!(!shown.contains(&body[40..]), "{shown}");
        assert!(!shown.contains("\"d\""), "{shown}");
    }
}
