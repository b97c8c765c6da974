//! An issuer's public keys (RFC 7517 §5).

use std::collections::HashSet;

use jsonwebtoken::Algorithm;
use serde_json::Value;

use super::{
    Reason, json,
    jwk::{self, Entry, PublicKey},
};

/// The keys of one JWK set that may verify tokens. Never empty.
#[derive(Debug)]
pub struct KeySet {
    keys: Vec<PublicKey>,
    /// A configured secret is one key whatever a token calls it.
    ignores_kid: bool,
}

/// Why a JWK set is refused as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeySetError {
    #[error("it is larger than {} bytes", KeySet::MAX_LEN)]
    TooLarge,
    #[error("it is not a JSON object with a list `keys` of objects, all names unique")]
    Malformed,
    #[error("it has more than {} keys", KeySet::MAX_KEYS)]
    TooManyKeys,
    #[error("two keys have the same kid")]
    DuplicateKid,
    #[error("{0}")]
    Spoiled(&'static str),
    #[error("none of its keys can verify tokens")]
    NoUsableKey,
}

impl KeySet {
    /// The largest set that is read, in bytes.
    pub const MAX_LEN: usize = 262_144;
    pub const MAX_KEYS: usize = 64;

    /// Reads a JWK set. Keys for other uses, of unknown kinds or out of range are left out.
    ///
    /// # Errors
    /// [`KeySetError`] where the set as a whole can't be trusted.
    pub fn parse(json: &[u8]) -> Result<Self, KeySetError> {
        if json.len() > Self::MAX_LEN {
            return Err(KeySetError::TooLarge);
        }
        let mut set = json::parse_object(json).ok_or(KeySetError::Malformed)?;
        let Some(Value::Array(entries)) = set.remove("keys") else {
            return Err(KeySetError::Malformed);
        };
        if entries.len() > Self::MAX_KEYS {
            return Err(KeySetError::TooManyKeys);
        }
        let mut kids = HashSet::new();
        let mut keys = Vec::new();
        for entry in &entries {
            let entry = entry.as_object().ok_or(KeySetError::Malformed)?;
            let kid = entry.get("kid").and_then(Value::as_str);
            if kid.is_some_and(|kid| !kids.insert(kid)) {
                return Err(KeySetError::DuplicateKid);
            }
            match jwk::read(entry) {
                Entry::Usable(key) => keys.push(key),
                Entry::Skipped(why) => tracing::debug!(kid, why, "a key is left out of its set"),
                Entry::Spoils(why) => return Err(KeySetError::Spoiled(why)),
            }
        }
        if keys.is_empty() {
            return Err(KeySetError::NoUsableKey);
        }
        Ok(Self { keys, ignores_kid: false })
    }

    pub(super) fn from_secret(secret: &[u8], algorithms: Vec<Algorithm>) -> Self {
        Self { keys: vec![PublicKey::from_secret(secret, algorithms)], ignores_kid: true }
    }

    /// The key that a token's `kid` names. Without one there must be only one key to mean.
    pub(super) fn select(&self, kid: Option<&str>) -> Result<&PublicKey, Reason> {
        match (kid, self.keys.as_slice()) {
            (_, [only]) if self.ignores_kid || kid.is_none() => Ok(only),
            (None, _) => Err(Reason::MissingKid),
            (Some(_), keys) => {
                keys.iter().find(|key| key.kid.as_deref() == kid).ok_or(Reason::UnknownKey)
            }
        }
    }
}
