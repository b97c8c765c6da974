//! A token taken apart, strictly, before anything about it is believed.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::Algorithm;
use serde_json::{Map, Value};

use super::{Reason, json};

/// A signed JWT in compact form (RFC 7515 §7.1), decoded and not yet verified.
#[derive(Debug)]
pub struct UnverifiedToken<'a> {
    /// What is signed: header and payload as they were sent.
    pub(super) signed: &'a [u8],
    /// Base64url, known to decode.
    pub(super) signature: &'a str,
    pub(super) algorithm: Algorithm,
    pub(super) kid: Option<String>,
    pub(super) claims: Map<String, Value>,
}

impl<'a> UnverifiedToken<'a> {
    /// The longest token that is looked at, in bytes.
    pub const MAX_LEN: usize = 8_192;

    /// Longer than any real `kid`: it is kept for each cached token and written to logs.
    const MAX_KID_LEN: usize = 512;

    /// Takes a token apart. Verifies nothing but its form.
    ///
    /// # Errors
    /// The first rule of form that it breaks.
    pub fn parse(token: &'a [u8]) -> Result<Self, Reason> {
        if token.len() > Self::MAX_LEN {
            return Err(Reason::TooLarge);
        }
        let token = std::str::from_utf8(token).map_err(|_| Reason::BadBase64)?;
        let mut parts = token.split('.');
        let (Some(header), Some(payload), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(Reason::NotThreeParts);
        };
        if header.is_empty() || payload.is_empty() || signature.is_empty() {
            return Err(Reason::NotThreeParts);
        }
        let (algorithm, kid) = read_header(&decode(header)?)?;
        let claims = json::parse_object(&decode(payload)?).ok_or(Reason::BadPayload)?;
        decode(signature)?;
        let signed = &token.as_bytes()[..header.len() + 1 + payload.len()];
        Ok(Self { signed, signature, algorithm, kid, claims })
    }

    /// `iss`, which says whose keys to try and proves nothing yet.
    pub(super) fn issuer(&self) -> Option<&str> {
        self.claims.get("iss").and_then(Value::as_str)
    }
}

/// This engine refuses padding, other alphabets, whitespace and non-zero trailing bits.
fn decode(part: &str) -> Result<Vec<u8>, Reason> {
    URL_SAFE_NO_PAD.decode(part).map_err(|_| Reason::BadBase64)
}

/// `alg` and `kid`. Of what else stands in a header, `jku`, `x5u`, `jwk` and `x5c` are ignored:
/// a token does not say where its keys are (RFC 8725 §3.10).
fn read_header(json: &[u8]) -> Result<(Algorithm, Option<String>), Reason> {
    let header = json::parse_object(json).ok_or(Reason::BadHeader)?;
    if ["crit", "zip", "b64"].iter().any(|name| header.contains_key(*name)) {
        return Err(Reason::UnsupportedHeader);
    }
    let algorithm = header.get("alg").and_then(Value::as_str).ok_or(Reason::BadHeader)?;
    match header.get("typ") {
        None => {}
        Some(Value::String(typ)) if is_jwt(typ) => {}
        Some(_) => return Err(Reason::WrongType),
    }
    let kid = match header.get("kid") {
        None => None,
        Some(Value::String(kid)) if kid.len() <= UnverifiedToken::MAX_KID_LEN => Some(kid.clone()),
        Some(_) => return Err(Reason::BadHeader),
    };
    // `none`, in any spelling, is no algorithm that this knows.
    let algorithm = algorithm.parse().map_err(|_| Reason::AlgorithmNotAllowed)?;
    Ok((algorithm, kid))
}

/// RFC 7519 §5.1 and RFC 9068 §2.1; media types have no case and may omit `application/`.
fn is_jwt(typ: &str) -> bool {
    const PREFIX: &str = "application/";
    let bare = match typ.split_at_checked(PREFIX.len()) {
        Some((prefix, rest)) if prefix.eq_ignore_ascii_case(PREFIX) => rest,
        _ => typ,
    };
    bare.eq_ignore_ascii_case("JWT") || bare.eq_ignore_ascii_case("at+jwt")
}
