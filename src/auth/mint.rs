//! Minting tokens, for `tollgate dev` and `tollgate mint-token`.

use std::{collections::BTreeMap, time::Duration};

use jsonwebtoken::Header;
use serde_json::{Map, Value};

pub use super::signing_key::{SigningKey, SigningKeyError};
use super::{Clock, SystemClock};
use crate::domain::TrustLevel;

/// What a token is to say, under the claim names that the gateway reads by default.
#[derive(Debug, Clone, Default)]
pub struct TokenSpec {
    pub issuer: String,
    /// At least one.
    pub audience: Vec<String>,
    pub subject: String,
    pub tier: Option<String>,
    pub agent: Option<String>,
    pub capabilities: Vec<String>,
    pub trust: Option<TrustLevel>,
    /// Whole seconds; at least one.
    pub ttl: Duration,
    /// Further claims. None may have the name of one that is set from the fields above.
    pub extra: BTreeMap<String, Value>,
}

/// Why no token was minted.
#[derive(Debug, thiserror::Error)]
pub enum MintError {
    #[error("a token needs {0}")]
    Missing(&'static str),
    #[error("the further claim `{0}` is one that is set by other means")]
    Reserved(String),
    #[error("the token can't be signed: {0}")]
    Sign(#[source] jsonwebtoken::errors::Error),
}

/// A signed token, good from now for `spec.ttl`, with a `jti` of its own.
///
/// # Errors
/// [`MintError`].
pub fn mint(key: &SigningKey, spec: &TokenSpec) -> Result<String, MintError> {
    let claims = claims(spec, SystemClock.now_ms() / 1_000)?;
    let mut header = Header::new(key.algorithm());
    header.kid = Some(key.kid().to_owned());
    jsonwebtoken::encode(&header, &claims, key.encoding_key()).map_err(MintError::Sign)
}

fn claims(spec: &TokenSpec, now_s: u64) -> Result<Map<String, Value>, MintError> {
    let ttl_s = spec.ttl.as_secs();
    let needed = [
        ("an issuer", spec.issuer.is_empty()),
        ("an audience", spec.audience.is_empty()),
        ("a subject", spec.subject.is_empty()),
        ("a lifetime of at least a second", ttl_s == 0),
    ];
    if let Some((what, _)) = needed.into_iter().find(|(_, missing)| *missing) {
        return Err(MintError::Missing(what));
    }
    let optional = |text: &Option<String>| text.clone().map(Value::from);
    let known: [(&str, Option<Value>); 11] = [
        ("iss", Some(spec.issuer.clone().into())),
        ("aud", Some(spec.audience.clone().into())),
        ("sub", Some(spec.subject.clone().into())),
        ("iat", Some(now_s.into())),
        ("nbf", Some(now_s.into())),
        ("exp", Some(now_s.saturating_add(ttl_s).into())),
        ("jti", Some(uuid::Uuid::new_v4().to_string().into())),
        ("tier", optional(&spec.tier)),
        ("agent", optional(&spec.agent)),
        ("capabilities", Some(spec.capabilities.clone().into())),
        ("trust", spec.trust.map(|trust| trust.as_str().into())),
    ];
    if let Some((name, _)) = known.iter().find(|(name, _)| spec.extra.contains_key(*name)) {
        return Err(MintError::Reserved((*name).to_owned()));
    }
    let known = known.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Ok(known.chain(spec.extra.clone()).collect())
}
