//! What a bucket is: a key, a limit, and how it stands.

use std::fmt;

/// A bucket's name in the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BucketKey {
    pub tier: String,
    pub model: String,
    pub limit: LimitKind,
}

/// Which limit a bucket enforces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LimitKind {
    Requests,
    Concurrent,
}

impl fmt::Display for LimitKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Requests => "requests per minute",
            Self::Concurrent => "concurrent calls",
        })
    }
}

/// A limit and its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// A token bucket that holds this many and refills in a minute, kept as GCRA.
    RequestsPerMinute(u64),
    /// Slots that are taken while a call runs.
    Concurrent(u32),
}

impl Limit {
    #[must_use]
    pub const fn kind(self) -> LimitKind {
        match self {
            Self::RequestsPerMinute(_) => LimitKind::Requests,
            Self::Concurrent(_) => LimitKind::Concurrent,
        }
    }
}

/// One bucket that a call must pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    pub key: BucketKey,
    pub limit: Limit,
}

impl Bucket {
    #[must_use]
    pub const fn new(key: BucketKey, limit: Limit) -> Self {
        Self { key, limit }
    }
}

/// How a requests bucket stands, for the `x-ratelimit-*` headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    pub limit: u64,
    pub remaining: u64,
    /// Until the bucket is full again.
    pub reset_micros: u64,
}
