//! Where records go to stay.

use std::{error::Error, time::Duration};

use async_trait::async_trait;

use super::{Linked, WRITE_DEADLINE};

/// A store of audit records.
///
/// The contract, which `tests/it/audit/contract.rs` holds every implementation to:
/// - `append` writes all of `records` or none; once it returns `Ok` they survive a kill -9.
/// - An id that is already there is left as it is, so a batch may be sent again.
/// - Of a call's terminal entries queries show the first. Later ones are stored all the same,
///   marked as superseded, for the chain has no gaps.
/// - Every value and every link comes back as it was.
/// - It may be dropped midway; what it was writing is then there in whole or not at all.
#[async_trait]
pub trait AuditSink: Send + Sync {
    /// Writes a batch, in order.
    ///
    /// # Errors
    /// [`SinkError`]; the batch may or may not have been written, and may be sent again.
    async fn append(&self, records: &[Linked<'_>]) -> Result<(), SinkError>;

    /// After this long an append is given up. Longer for a store that bounds each of its steps itself.
    fn deadline(&self) -> Duration {
        WRITE_DEADLINE
    }

    /// Records that the store would take in no batch, and that were kept apart, since the start.
    fn dead_letters(&self) -> u64 {
        0
    }
}

/// The store did not take a batch.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    #[error("the audit store can't be written: {0}")]
    Write(#[source] Box<dyn Error + Send + Sync>),
    #[error("the audit store did not answer within {0} s")]
    TimedOut(u64),
    #[error("the audit store's adapter panicked")]
    Panicked,
}

impl SinkError {
    pub fn write(source: impl Error + Send + Sync + 'static) -> Self {
        Self::Write(Box::new(source))
    }
}
