//! One key: how hot it is, and a lease of it.

use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, time::Instant};

use super::super::{Bucket, Limit, Measure, Spent, Standing};
use crate::domain::CallId;

/// Calls in [`HOT_WINDOW`] beyond which a key is hot. Ten cost the store 30 round trips, a lease 3.
const HOT_CALLS: u32 = 10;
pub(super) const HOT_WINDOW: Duration = Duration::from_millis(50);

/// A lease waits for calls that hold more than one part in so many of what would come back without:
/// what is lost of it is less than a fifth, and one long call does not hold up what others gave back.
const WORTH_WAITING: u64 = 4;

/// How hot a key is, and what serves it.
#[derive(Debug)]
pub(super) struct Key {
    window: Instant,
    calls: u32,
    calls_before: u32,
    pub(super) serving: Option<CallId>,
    /// A refill is under way until its sender is gone.
    pub(super) refill: Option<watch::Receiver<()>>,
    /// No lease was to be had: none is asked for before.
    pub(super) refused_until: Instant,
}

/// One reservation in the store, in microseconds of its bucket's time.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) bucket: Arc<Bucket>,
    /// The limit of the calls that it serves.
    pub(super) limit: Limit,
    pub(super) micros: u64,
    /// What its calls have taken, without what they gave back. Never beyond `micros`.
    pub(super) used: u64,
    /// Of `used`, what open calls have reserved.
    pub(super) held: u64,
    pub(super) calls: u32,
    pub(super) serves: bool,
    /// How far ahead of `taken` its bucket was filled, itself included.
    pub(super) ahead: u64,
    pub(super) taken: Instant,
    pub(super) ends: Instant,
}

/// A lease that has ended.
#[derive(Debug)]
pub(super) struct Closed {
    pub(super) id: CallId,
    pub(super) used: u64,
}

impl Closed {
    pub(super) const fn spent(&self) -> Spent {
        Spent::Actual { tokens: self.used, micro_usd: 0 }
    }
}

impl Key {
    pub(super) const fn new(now: Instant) -> Self {
        let (serving, refill) = (None, None);
        Self { window: now, calls: 0, calls_before: 0, serving, refill, refused_until: now }
    }

    /// Counts a call. Is the key hot?
    pub(super) fn note(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.window);
        if passed >= HOT_WINDOW {
            self.calls_before = if passed < 2 * HOT_WINDOW { self.calls } else { 0 };
            (self.window, self.calls) = (now, 0);
        }
        self.calls = self.calls.saturating_add(1);
        self.calls.max(self.calls_before) > HOT_CALLS
    }

    pub(super) fn refill(&self) -> Option<&watch::Receiver<()>> {
        self.refill.as_ref().filter(|refill| refill.has_changed().is_ok())
    }

    pub(super) fn is_cold(&self, now: Instant) -> bool {
        let is_old = now.saturating_duration_since(self.window) >= 2 * HOT_WINDOW;
        is_old && self.serving.is_none() && self.refill().is_none() && self.refused_until <= now
    }
}

impl Lease {
    pub(super) const fn left(&self) -> u64 {
        self.micros.saturating_sub(self.used)
    }

    /// Can it be settled? Requests come back whole or not at all, so nothing is waited for. What
    /// calls have reserved of tokens is mostly given back, so it waits for them, but not for the
    /// last ones: their part is lost then.
    pub(super) fn is_over(&self) -> bool {
        let is_paid = self.calls == 0 || self.limit.measure() == Some(Measure::Requests);
        !self.serves && (is_paid || self.left() >= self.held.saturating_mul(WORTH_WAITING))
    }

    /// How the bucket stood after the refill, less what was used since.
    pub(super) fn standing(&self, limit: &Limit, now: Instant) -> Standing {
        let since = now.saturating_duration_since(self.taken).as_micros();
        let leaked = u64::try_from(since).unwrap_or(u64::MAX);
        let ahead = self.ahead.saturating_sub(leaked).saturating_sub(self.left());
        let room = limit.burst_micros().saturating_sub(ahead);
        let burst = limit.most();
        let remaining = limit.rate_amount(room).min(burst);
        let used = burst - remaining;
        Standing { limit: burst, used, reserved: 0, remaining, reset_micros: ahead }
    }
}
