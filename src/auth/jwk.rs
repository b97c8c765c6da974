//! One public key of a JWK set (RFC 7517 §4), checked as strictly as the tokens it verifies.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, ParsedPublicKey,
    RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, VerificationAlgorithm,
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey};
use serde_json::{Map, Value};

/// A key that may verify, and with which algorithms.
#[derive(Debug)]
pub(super) struct PublicKey {
    pub kid: Option<String>,
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

/// What becomes of an entry of a set's `keys`.
#[derive(Debug)]
pub(super) enum Entry {
    Usable(PublicKey),
    /// Not for us, or not understood: RFC 7517 §5 says to go on without it.
    Skipped(&'static str),
    /// A set that holds such a thing is not to be trusted at all.
    Spoils(&'static str),
}

impl PublicKey {
    /// A shared secret, from the configuration alone.
    pub(super) fn from_secret(secret: &[u8], algorithms: Vec<Algorithm>) -> Self {
        Self { kid: None, algorithms, key: DecodingKey::from_secret(secret) }
    }

    pub(super) fn permits(&self, algorithm: Algorithm) -> bool {
        self.algorithms.contains(&algorithm)
    }

    /// Does `signature` (base64url) belong to `signed`? In constant time where it is a MAC.
    pub(super) fn verifies(&self, signed: &[u8], signature: &str, algorithm: Algorithm) -> bool {
        self.permits(algorithm)
            && jsonwebtoken::crypto::verify(signature, signed, &self.key, algorithm)
                .unwrap_or(false)
    }
}

/// Reads one entry of a set's `keys`.
pub(super) fn read(jwk: &Map<String, Value>) -> Entry {
    let text = |name| jwk.get(name).and_then(Value::as_str);
    match text("kty") {
        Some("oct") => return Entry::Spoils("it publishes a secret (`oct`)"),
        Some(_) if jwk.contains_key("d") => return Entry::Spoils("it publishes a private key"),
        _ => {}
    }
    let kid = match jwk.get("kid") {
        None => None,
        Some(Value::String(kid)) => Some(kid.clone()),
        Some(_) => return Entry::Skipped("its kid is not text"),
    };
    if let Some(why) = not_for_verifying(jwk) {
        return Entry::Skipped(why);
    }
    let material = match text("kty") {
        Some("OKP") => ed25519(jwk),
        Some("EC") => elliptic(jwk),
        Some("RSA") => rsa(jwk),
        _ => Err("its kty is not known"),
    };
    let (key, fitting) = match material {
        Ok(material) => material,
        Err(why) => return Entry::Skipped(why),
    };
    match own_algorithms(jwk, fitting) {
        Some(algorithms) => Entry::Usable(PublicKey { kid, algorithms, key }),
        None => Entry::Skipped("its alg does not fit its kty and crv, or is not known"),
    }
}

/// `use` and `key_ops` (RFC 7517 §4.2, §4.3), where they are there, must allow it.
fn not_for_verifying(jwk: &Map<String, Value>) -> Option<&'static str> {
    let for_signatures = jwk.get("use").is_none_or(|usage| usage == "sig");
    let may_verify = match jwk.get("key_ops") {
        None => true,
        Some(Value::Array(operations)) => operations.iter().any(|one| one == "verify"),
        Some(_) => false,
    };
    match (for_signatures, may_verify) {
        (false, _) => Some("its use is not sig"),
        (true, false) => Some("its key_ops lack verify"),
        (true, true) => None,
    }
}

/// A key that states its `alg` is for that one alone.
fn own_algorithms(jwk: &Map<String, Value>, fitting: &[Algorithm]) -> Option<Vec<Algorithm>> {
    match jwk.get("alg") {
        None => Some(fitting.to_vec()),
        Some(stated) => {
            let stated: Algorithm = stated.as_str()?.parse().ok()?;
            fitting.contains(&stated).then(|| vec![stated])
        }
    }
}

type Material = Result<(DecodingKey, &'static [Algorithm]), &'static str>;

/// RFC 8037 §2.
fn ed25519(jwk: &Map<String, Value>) -> Material {
    if jwk.get("crv").is_none_or(|curve| curve != "Ed25519") {
        return Err("its crv is not known");
    }
    let x = coordinate(jwk, "x", 32)?;
    parses(&ED25519, &x)?;
    Ok((DecodingKey::from_ed_der(&x), &[Algorithm::EdDSA]))
}

/// RFC 7518 §6.2.1.
fn elliptic(jwk: &Map<String, Value>) -> Material {
    let (len, verifier, fitting): (_, &'static dyn VerificationAlgorithm, &[_]) =
        match jwk.get("crv").and_then(Value::as_str) {
            Some("P-256") => (32, &ECDSA_P256_SHA256_FIXED, &[Algorithm::ES256]),
            Some("P-384") => (48, &ECDSA_P384_SHA384_FIXED, &[Algorithm::ES384]),
            _ => return Err("its crv is not known"),
        };
    let mut point = vec![0x04];
    point.extend(coordinate(jwk, "x", len)?);
    point.extend(coordinate(jwk, "y", len)?);
    // This is what finds that a point is not on its curve.
    parses(verifier, &point)?;
    Ok((DecodingKey::from_ec_der(&point), fitting))
}

fn parses(algorithm: &'static dyn VerificationAlgorithm, key: &[u8]) -> Result<(), &'static str> {
    ParsedPublicKey::new(algorithm, key).map(drop).map_err(|_| "it is not a valid public key")
}

/// RFC 7518 §6.3.1; the sizes are DESIGN §5's.
fn rsa(jwk: &Map<String, Value>) -> Material {
    let (n, e) = (integer(jwk, "n")?, integer(jwk, "e")?);
    let bits = n.len() * 8 - n.first().map_or(0, |byte| byte.leading_zeros() as usize);
    if !(2_048..=8_192).contains(&bits) {
        return Err("its modulus has not 2048 to 8192 bits");
    }
    // An exponent of 1 would make each message its own signature; even ones are no keys.
    let is_odd = |number: &[u8]| number.last().is_some_and(|byte| byte % 2 == 1);
    if !is_odd(&n) || !is_odd(&e) || e == [1] || e.len() > 4 {
        return Err("it is not a valid public key");
    }
    RsaPublicKeyComponents { n: &n, e: &e }
        .to_parsed_public_key(&RSA_PKCS1_2048_8192_SHA256)
        .map_err(|_| "it is not a valid public key")?;
    Ok((DecodingKey::from_rsa_raw_components(&n, &e), RSA))
}

const RSA: &[Algorithm] = &[
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
];

fn bytes(jwk: &Map<String, Value>, name: &str) -> Result<Vec<u8>, &'static str> {
    let text = jwk.get(name).and_then(Value::as_str).ok_or("a member is missing")?;
    URL_SAFE_NO_PAD.decode(text).map_err(|_| "a member is not base64url")
}

fn coordinate(jwk: &Map<String, Value>, name: &str, len: usize) -> Result<Vec<u8>, &'static str> {
    bytes(jwk, name).and_then(|bytes| {
        if bytes.len() == len { Ok(bytes) } else { Err("a coordinate has the wrong length") }
    })
}

/// A `Base64urlUInt` (RFC 7518 §2). Some issuers put zeros before it, which change nothing.
fn integer(jwk: &Map<String, Value>, name: &str) -> Result<Vec<u8>, &'static str> {
    let mut bytes = bytes(jwk, name)?;
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    bytes.drain(..zeros);
    if bytes.is_empty() { Err("a number is zero") } else { Ok(bytes) }
}

/// Is this one of the algorithms whose key is a shared secret?
pub(super) fn is_hmac(algorithm: Algorithm) -> bool {
    algorithm.family() == AlgorithmFamily::Hmac
}
