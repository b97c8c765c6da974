//! The issuer that the gateway believes, and its callers' tokens.

use std::{fs, path::Path, time::SystemTime};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::json;

use super::Outcome;

pub const ISSUER: &str = "https://bench.example";
pub const AUDIENCE: &str = "tollgate";
pub const TIER: &str = "bench";
pub const CAPABILITY: &str = "model:reasoning";

/// Several, so that what the gateway keeps for each caller is not one entry alone.
const CALLERS: usize = 64;

const KEY_ID: &str = "bench-1";
const LIFETIME_S: u64 = 3_600;

/// Makes a key; writes its JWKS (RFC 8037 §2) and a JSON array of tokens that it signed.
pub fn issue(jwks: &Path, tokens: &Path) -> Outcome<()> {
    let signing = key(jwks)?;
    let signed = (0..CALLERS).map(|caller| sign(&signing, caller, CAPABILITY));
    let signed = signed.collect::<Outcome<Vec<_>>>()?;
    fs::write(tokens, serde_json::to_string(&signed)?)?;
    Ok(())
}

/// Makes a key; writes its JWKS and returns a token for `capability` alone.
pub fn issue_one(jwks: &Path, capability: &str) -> Outcome<String> {
    sign(&key(jwks)?, 0, capability)
}

fn key(jwks: &Path) -> Outcome<EncodingKey> {
    let key = Ed25519KeyPair::generate()?;
    let x = BASE64_URL_SAFE_NO_PAD.encode(key.public_key().as_ref());
    let public = json!({
        "keys": [{
            "kty": "OKP", "crv": "Ed25519", "x": x, "kid": KEY_ID, "alg": "EdDSA", "use": "sig",
        }]
    });
    fs::write(jwks, public.to_string())?;
    Ok(EncodingKey::from_ed_der(key.to_pkcs8()?.as_ref()))
}

fn sign(key: &EncodingKey, caller: usize, capability: &str) -> Outcome<String> {
    let mut header = Header::new(Algorithm::EdDSA);
    header.kid = Some(KEY_ID.to_owned());
    let now_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
    let claims = json!({
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": format!("bench-user-{caller}"),
        "iat": now_s,
        "nbf": now_s,
        "exp": now_s + LIFETIME_S,
        "jti": format!("bench-{caller}"),
        "tier": TIER,
        "capabilities": [capability, "budget:tokens-per-day:1_000_000_000", "budget:usd-per-day:1_000_000"],
        "agent": "bench-agent",
        "trust": "L1",
    });
    Ok(encode(&header, &claims, key)?)
}
