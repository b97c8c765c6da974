//! The ledger of a single process.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use tokio::time::Instant;

use super::{Bucket, BucketKey, Grant, Ledger, LedgerError, Limit, Refusal, Standing};
use crate::domain::CallId;

const MINUTE_MICROS: u64 = 60_000_000;

/// Buckets in this process's memory: for one instance, and for trying things out.
///
/// The keys are tiers × models of the configuration, so their number is bounded by it. Time is
/// the process's monotonic clock (tokio's, so that tests can pause it).
#[derive(Debug)]
pub struct MemoryLedger {
    epoch: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// GCRA's theoretical arrival time for each requests bucket, in microseconds since `epoch`.
    arrivals: HashMap<BucketKey, u64>,
    slots_taken: HashMap<BucketKey, u32>,
    /// The slots that each running call holds; with none, it has a reservation all the same.
    held: HashMap<CallId, Vec<BucketKey>>,
}

impl Default for MemoryLedger {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryLedger {
    #[must_use]
    pub fn new() -> Self {
        Self { epoch: Instant::now(), state: Mutex::default() }
    }

    fn now_micros(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Nothing panics under the lock, so poison is no harm.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Ledger for MemoryLedger {
    async fn reserve(&self, id: CallId, buckets: &[Bucket]) -> Result<Grant, Refusal> {
        let now = self.now_micros();
        let mut state = self.state();
        if state.held.contains_key(&id) {
            return Err(LedgerError(format!("{id} has a reservation already")).into());
        }
        let requests = buckets.iter().find_map(|bucket| state.standing(bucket, now));
        for bucket in buckets {
            if let Err(retry_after_micros) = state.check(bucket, now) {
                let bucket = bucket.key.clone();
                return Err(Refusal::Exhausted { bucket, retry_after_micros, requests });
            }
        }
        state.held.insert(id, Vec::new());
        for bucket in buckets {
            state.take(id, bucket, now);
        }
        Ok(Grant { requests: buckets.iter().find_map(|bucket| state.standing(bucket, now)) })
    }

    async fn settle(&self, id: CallId) -> Result<(), LedgerError> {
        let mut state = self.state();
        for key in state.held.remove(&id).unwrap_or_default() {
            if let Some(taken) = state.slots_taken.get_mut(&key) {
                *taken = taken.saturating_sub(1);
            }
        }
        Ok(())
    }
}

impl State {
    /// Has the bucket room for one more? If not: how long until it has, where that is known.
    fn check(&self, bucket: &Bucket, now: u64) -> Result<(), Option<u64>> {
        match bucket.limit {
            Limit::RequestsPerMinute(limit) => {
                let arrival = self.arrivals.get(&bucket.key).copied().unwrap_or(0).max(now);
                let full = now + burst_micros(limit);
                let next = arrival + interval_micros(limit);
                if next > full { Err(Some(next - full)) } else { Ok(()) }
            }
            Limit::Concurrent(limit) => {
                let taken = self.slots_taken.get(&bucket.key).copied().unwrap_or(0);
                if taken >= limit { Err(None) } else { Ok(()) }
            }
        }
    }

    fn take(&mut self, id: CallId, bucket: &Bucket, now: u64) {
        match bucket.limit {
            Limit::RequestsPerMinute(limit) => {
                let arrival = self.arrivals.entry(bucket.key.clone()).or_default();
                *arrival = (*arrival).max(now) + interval_micros(limit);
            }
            Limit::Concurrent(_) => {
                *self.slots_taken.entry(bucket.key.clone()).or_default() += 1;
                self.held.entry(id).or_default().push(bucket.key.clone());
            }
        }
    }

    fn standing(&self, bucket: &Bucket, now: u64) -> Option<Standing> {
        let Limit::RequestsPerMinute(limit) = bucket.limit else { return None };
        let arrival = self.arrivals.get(&bucket.key).copied().unwrap_or(0);
        let reset_micros = arrival.saturating_sub(now);
        let remaining = burst_micros(limit).saturating_sub(reset_micros) / interval_micros(limit);
        Some(Standing { limit, remaining, reset_micros })
    }
}

/// GCRA's emission interval, rounded up so that the rate is never above the limit.
fn interval_micros(per_minute: u64) -> u64 {
    MINUTE_MICROS.div_ceil(per_minute.clamp(1, MINUTE_MICROS))
}

/// How far ahead of now a bucket may be filled: just `per_minute` requests.
fn burst_micros(per_minute: u64) -> u64 {
    interval_micros(per_minute) * per_minute.clamp(1, MINUTE_MICROS)
}
