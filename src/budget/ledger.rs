//! The seam between reservations and where their buckets are kept.

use async_trait::async_trait;

use super::{Bucket, BucketKey, Standing};
use crate::domain::{CallId, Denial, Kind};

/// Keeps buckets. Every store passes one contract suite (`tests/it/ledger.rs`).
#[async_trait]
pub trait Ledger: Send + Sync {
    /// Takes one request and one slot from every bucket, or nothing at all, in one atomic step.
    ///
    /// # Errors
    /// [`Refusal::Exhausted`] names the bucket that was short, [`Refusal::Store`] a store that
    /// failed: nothing was taken then.
    async fn reserve(&self, id: CallId, buckets: &[Bucket]) -> Result<Grant, Refusal>;

    /// Gives back what is held only while a call runs. Idempotent by `id`.
    ///
    /// # Errors
    /// Where the store does not answer; the reservation expires by itself then.
    async fn settle(&self, id: CallId) -> Result<(), LedgerError>;
}

/// What was granted, and how the requests bucket stands after it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grant {
    pub requests: Option<Standing>,
}

/// Why nothing was granted.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error("{} of tier {} for {} are used up", .bucket.limit, .bucket.tier, .bucket.model)]
    Exhausted {
        bucket: BucketKey,
        /// A call that comes after this long passes, if no other comes first. `None`: it depends
        /// on when a running call ends.
        retry_after_micros: Option<u64>,
        /// How the requests bucket stands, if one applies.
        requests: Option<Standing>,
    },
    #[error(transparent)]
    Store(#[from] LedgerError),
}

/// The store of the budgets failed.
#[derive(Debug, thiserror::Error)]
#[error("the budget store failed: {0}")]
pub struct LedgerError(pub String);

impl Refusal {
    /// How the requests bucket stands, if one applies.
    #[must_use]
    pub const fn standing(&self) -> Option<Standing> {
        match self {
            Self::Exhausted { requests, .. } => *requests,
            Self::Store(_) => None,
        }
    }

    /// As the public sees it.
    #[must_use]
    pub fn to_denial(&self) -> Denial {
        match self {
            Self::Exhausted { retry_after_micros: Some(micros), .. } => {
                let retry_after_ms = micros.div_ceil(1_000).max(1);
                Denial::new(Kind::RateLimited, format!("{self}; try again in {retry_after_ms} ms."))
                    .with_retry_after_ms(retry_after_ms)
                    .with_param("model")
            }
            Self::Exhausted { .. } => Denial::new(
                Kind::ConcurrencyLimited,
                format!("{self}; wait for one to end, then try again."),
            )
            .with_retry_after_ms(1_000)
            .with_param("model"),
            Self::Store(_) => {
                Denial::new(Kind::Overloaded, "The budget store does not answer; try again.")
                    .with_retry_after_ms(1_000)
            }
        }
    }
}
