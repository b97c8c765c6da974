//! Tokens that were verified a moment ago.

use std::{fmt, sync::Arc};

use aws_lc_rs::digest;
use quick_cache::sync::Cache;

use super::deny::TokenIds;
use crate::domain::Caller;

/// A token is verified again after this long, whatever its `exp`.
const MAX_AGE_MS: u64 = 60_000;

/// Tokens kept; the least used go first.
const CAPACITY: usize = 16_384;

/// All 32 bytes: a cache keyed by less has let strangers in elsewhere.
pub(super) type TokenDigest = [u8; 32];

pub(super) fn digest_of(token: &[u8]) -> TokenDigest {
    let mut out = [0; 32];
    out.copy_from_slice(digest::digest(&digest::SHA256, token).as_ref());
    out
}

/// What verifying a token gave, and what it rests on.
#[derive(Debug)]
pub(super) struct Verified {
    pub caller: Arc<Caller>,
    pub ids: TokenIds,
    /// Its place among the issuers.
    pub issuer: usize,
    /// The issuer's key set that it was verified with.
    pub generation: u64,
    pub exp_ms: u64,
    pub checked_at_ms: u64,
}

impl Verified {
    fn is_fresh(&self, now_ms: u64) -> bool {
        // No leeway: past `exp` the full check decides. Nor from before it was verified, should
        // the clock be set back.
        let age_ms = now_ms.checked_sub(self.checked_at_ms);
        now_ms < self.exp_ms && age_ms.is_some_and(|age_ms| age_ms < MAX_AGE_MS)
    }
}

/// Verified tokens by their SHA-256. Refused ones are not kept: a stranger can make any number.
pub(super) struct TokenCache(Cache<TokenDigest, Arc<Verified>>);

impl fmt::Debug for TokenCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenCache").field("len", &self.0.len()).finish()
    }
}

impl TokenCache {
    pub(super) fn new() -> Self {
        Self(Cache::new(CAPACITY))
    }

    pub(super) fn get(&self, digest: &TokenDigest, now_ms: u64) -> Option<Arc<Verified>> {
        self.0.get(digest).filter(|verified| verified.is_fresh(now_ms))
    }

    pub(super) fn insert(&self, digest: TokenDigest, verified: Arc<Verified>) {
        self.0.insert(digest, verified);
    }
}
