//! How the store is doing: counters for metrics, and a word in the log when that changes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Why a command to the store brought nothing. Says nothing of where the store is, or of its
/// password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    #[error("it did not answer in time")]
    Timeout,
    #[error("there is no connection to it")]
    Connection,
    #[error("it can only be read")]
    ReadOnly,
    #[error("it is still loading its data")]
    Loading,
    #[error("its cluster sent the command elsewhere or is down")]
    Cluster,
    #[error("it does not let this user in, or not do this")]
    Denied,
    #[error("it has no memory left")]
    Full,
    #[error("too many commands wait for it")]
    Busy,
    #[error("it failed a moment ago and is left alone")]
    Resting,
    #[error("it gave an answer that is none")]
    Answer,
}

impl Failure {
    pub const ALL: [Self; 10] = [
        Self::Timeout,
        Self::Connection,
        Self::ReadOnly,
        Self::Loading,
        Self::Cluster,
        Self::Denied,
        Self::Full,
        Self::Busy,
        Self::Resting,
        Self::Answer,
    ];

    /// As a metric's label says it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Connection => "connection",
            Self::ReadOnly => "read_only",
            Self::Loading => "loading",
            Self::Cluster => "cluster",
            Self::Denied => "denied",
            Self::Full => "full",
            Self::Busy => "busy",
            Self::Resting => "resting",
            Self::Answer => "answer",
        }
    }

    /// May the command have been carried out all the same?
    #[must_use]
    pub const fn is_ambiguous(self) -> bool {
        matches!(self, Self::Timeout | Self::Connection | Self::Answer)
    }

    /// Is a new connection worth more than this one?
    pub(super) const fn spoils_connection(self) -> bool {
        !matches!(self, Self::Loading | Self::Full | Self::Busy | Self::Resting)
    }

    /// Was the store asked at all?
    pub(super) const fn is_of_the_store(self) -> bool {
        !matches!(self, Self::Busy | Self::Resting)
    }
}

/// Counters of one store, and whether it last answered.
#[derive(Debug, Default)]
pub struct LedgerHealth {
    answered: AtomicU64,
    failed: [AtomicU64; Failure::ALL.len()],
    reloaded: AtomicU64,
    lost: AtomicU64,
    unsettled: AtomicU64,
    shared: AtomicU64,
    is_down: AtomicBool,
}

impl LedgerHealth {
    /// Commands that were answered.
    #[must_use]
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Commands that failed so.
    #[must_use]
    pub fn failed(&self, failure: Failure) -> u64 {
        self.failed[failure as usize].load(Ordering::Relaxed)
    }

    /// How often a script had to be loaded (again): after a start, a restart, a failover.
    #[must_use]
    pub fn reloaded(&self) -> u64 {
        self.reloaded.load(Ordering::Relaxed)
    }

    /// Reservations that were gone when they were to be settled: the store was emptied, or they
    /// were not renewed in time. What was spent on them beyond what they held is not in the books.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Settlements that the store did not take in time: their reservations have expired.
    #[must_use]
    pub fn unsettled(&self) -> u64 {
        self.unsettled.load(Ordering::Relaxed)
    }

    /// Calls that were let in on this gateway's own share of the limits, without the store.
    #[must_use]
    pub fn shared(&self) -> u64 {
        self.shared.load(Ordering::Relaxed)
    }

    /// Did the store answer when it was last asked? True until it is asked.
    #[must_use]
    pub fn is_up(&self) -> bool {
        !self.is_down.load(Ordering::Relaxed)
    }

    pub(super) fn note_answer(&self) {
        self.answered.fetch_add(1, Ordering::Relaxed);
        // Read first: a line that all write is slow.
        if self.is_down.load(Ordering::Relaxed) && self.is_down.swap(false, Ordering::Relaxed) {
            tracing::info!("the budget store answers again");
        }
    }

    pub(super) fn note_failure(&self, failure: Failure) {
        self.failed[failure as usize].fetch_add(1, Ordering::Relaxed);
        if failure.is_of_the_store() && !self.is_down.swap(true, Ordering::Relaxed) {
            tracing::error!(kind = failure.as_str(), "the budget store fails: {failure}");
        }
    }

    pub(super) fn note_reload(&self) {
        self.reloaded.fetch_add(1, Ordering::Relaxed);
    }

    pub(in crate::budget) fn note_unsettled(&self) {
        self.unsettled.fetch_add(1, Ordering::Relaxed);
    }

    pub(in crate::budget) fn note_shared(&self) {
        self.shared.fetch_add(1, Ordering::Relaxed);
    }

    pub(in crate::budget) fn note_lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }
}
