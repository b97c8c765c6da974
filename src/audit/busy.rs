//! Since when the disk has been waited for.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tokio::time::Instant;

/// Whether somebody waits, and since when, for others to see.
#[derive(Debug)]
pub(super) struct Busy {
    origin: Instant,
    /// Milliseconds since `origin`, and 1; 0 while nobody waits.
    since: AtomicU64,
}

impl Default for Busy {
    fn default() -> Self {
        Self { origin: Instant::now(), since: AtomicU64::new(0) }
    }
}

impl Busy {
    pub(super) fn begin(&self) {
        self.since.store(self.now().saturating_add(1), Ordering::Relaxed);
    }

    pub(super) fn end(&self) {
        self.since.store(0, Ordering::Relaxed);
    }

    pub(super) fn has_lasted(&self, limit: Duration) -> bool {
        let since = self.since.load(Ordering::Relaxed);
        // The clock is looked at only while somebody waits: each call asks.
        since != 0 && u128::from(self.now().saturating_sub(since - 1)) >= limit.as_millis()
    }

    fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
