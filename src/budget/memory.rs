//! The ledger of a single process.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use async_trait::async_trait;
use foldhash::fast::RandomState;
use tokio::time::Instant;

use super::{
    Bucket, Charge, Exhausted, Grant, Ledger, LedgerError, Limit, Refusal, Spent, Standing,
    state::{self, Entry, State as BucketState},
};
use crate::domain::CallId;

/// How long a reservation lives that nobody renews.
pub const RESERVATION_TTL: Duration = Duration::from_mins(1);
/// Names in tokens make buckets, so their number has a bound: beyond it nobody new is let in.
const MAX_BUCKETS: usize = 1 << 20;
/// After so many reservations, buckets that say nothing any more are let go.
const SWEEP_EVERY: u64 = 4_096;

/// Buckets in this process's memory: for one instance, and for trying things out.
///
/// Time is the wall clock as it was at the start, plus the process's monotonic clock: it never
/// steps.
#[derive(Debug)]
pub struct MemoryLedger {
    clock: Clock,
    state: Mutex<Store>,
}

#[derive(Debug)]
enum Clock {
    Process {
        started: Instant,
        started_micros: u64,
    },
    /// Microseconds since 1970, as somebody else says.
    Given(Arc<AtomicU64>),
}

#[derive(Debug, Default)]
struct Store {
    /// Hashed fast, and with a seed: its keys are as many as a call's limits, several times each.
    buckets: HashMap<String, BucketState, RandomState>,
    reservations: HashMap<CallId, Held, RandomState>,
    expiries: BTreeSet<(u64, CallId)>,
    reserved: u64,
}

/// A reservation that is open.
#[derive(Debug)]
struct Held {
    expires_micros: u64,
    has_left: bool,
    entries: Vec<(Arc<Bucket>, Entry)>,
}

impl Default for MemoryLedger {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryLedger {
    #[must_use]
    pub fn new() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let started_micros = u64::try_from(wall.as_micros()).unwrap_or(0);
        let clock = Clock::Process { started: Instant::now(), started_micros };
        Self { clock, state: Mutex::default() }
    }

    /// One that goes by `clock`, in microseconds since 1970: for tests, which can't wait for a
    /// month's end.
    #[must_use]
    pub fn by(clock: Arc<AtomicU64>) -> Self {
        Self { clock: Clock::Given(clock), state: Mutex::default() }
    }

    fn now_micros(&self) -> u64 {
        match &self.clock {
            Clock::Process { started, started_micros } => {
                let elapsed = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX / 2);
                started_micros.saturating_add(elapsed)
            }
            Clock::Given(clock) => clock.load(Ordering::Relaxed),
        }
    }

    /// The store, without reservations that are past their time. Nothing panics under the lock, so
    /// poison is no harm.
    fn store(&self, now: u64) -> MutexGuard<'_, Store> {
        let mut store = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        store.expire(now);
        store
    }
}

#[async_trait]
impl Ledger for MemoryLedger {
    async fn reserve(&self, id: CallId, charges: &[Charge]) -> Result<Grant, Refusal> {
        let now = self.now_micros();
        let mut store = self.store(now);
        if store.reservations.contains_key(&id) {
            return Err(LedgerError(format!("{id} has a reservation already")).into());
        }
        let mut states: Vec<BucketState> =
            charges.iter().map(|charge| store.state(&charge.bucket)).collect();
        check(charges, &states, now)?;
        store.take(id, charges, &mut states, now)?;
        if names_a_bucket_twice(charges) {
            states = charges.iter().map(|charge| store.state(&charge.bucket)).collect();
        }
        Ok(Grant { standings: standings(charges, &states, now) })
    }

    async fn depart(&self, id: CallId) -> Result<(), LedgerError> {
        let mut store = self.store(self.now_micros());
        let held = store.reservations.get_mut(&id);
        let held = held.ok_or_else(|| LedgerError(format!("{id} has no reservation")))?;
        held.has_left = true;
        Ok(())
    }

    async fn settle(&self, id: CallId, spent: Spent) -> Result<(), LedgerError> {
        let now = self.now_micros();
        self.store(now).settle(id, spent, now);
        Ok(())
    }

    async fn abandon(&self, ids: &[CallId]) -> Result<(), LedgerError> {
        let now = self.now_micros();
        let mut store = self.store(now);
        for id in ids {
            store.abandon(*id, now);
        }
        Ok(())
    }

    async fn renew(&self, ids: &[CallId]) -> Result<(), LedgerError> {
        let now = self.now_micros();
        let mut store = self.store(now);
        for id in ids {
            store.renew(*id, now);
        }
        Ok(())
    }

    async fn standings(&self, buckets: &[&Bucket]) -> Result<Vec<Standing>, LedgerError> {
        let now = self.now_micros();
        let store = self.store(now);
        let standing = |it: &&Bucket| state::standing(&it.limit, &store.state(it), now);
        Ok(buckets.iter().map(standing).collect())
    }
}

/// Is there room for every charge?
fn check(charges: &[Charge], states: &[BucketState], now: u64) -> Result<(), Refusal> {
    let short = charges.iter().zip(states).enumerate().filter_map(|(position, (charge, state))| {
        let short = state::check(&charge.bucket.limit, state, charge.amount, now).err()?;
        Some((short, position, charge))
    });
    // Never, then latest; a slot's end is not known, and comes soonest.
    let Some((short, position, charge)) = short.max_by_key(|(short, ..)| *short) else {
        return Ok(());
    };
    Err(Refusal::Exhausted(Box::new(Exhausted {
        charge: charge.clone(),
        position,
        retry_after_micros: short.retry_after_micros(),
        standings: standings(charges, states, now),
    })))
}

fn names_a_bucket_twice(charges: &[Charge]) -> bool {
    let keys = || charges.iter().map(|charge| charge.bucket.key());
    keys().enumerate().any(|(i, key)| keys().take(i).any(|earlier| earlier == key))
}

fn standings(charges: &[Charge], states: &[BucketState], now: u64) -> Vec<Standing> {
    let each = charges.iter().zip(states);
    each.map(|(charge, state)| state::standing(&charge.bucket.limit, state, now)).collect()
}

fn expiry(now: u64) -> u64 {
    now + u64::try_from(RESERVATION_TTL.as_micros()).unwrap_or(u64::MAX / 2)
}

impl Store {
    fn state(&self, bucket: &Bucket) -> BucketState {
        self.buckets.get(bucket.key()).copied().unwrap_or_default()
    }

    /// Takes every charge, of states that are the buckets' own.
    fn take(
        &mut self,
        id: CallId,
        charges: &[Charge],
        states: &mut [BucketState],
        now: u64,
    ) -> Result<(), LedgerError> {
        self.reserved += 1;
        if self.reserved.is_multiple_of(SWEEP_EVERY) {
            self.buckets.retain(|_, bucket| !bucket.is_idle(now));
        }
        if self.buckets.len() + charges.len() > MAX_BUCKETS {
            return Err(LedgerError(format!("there are {MAX_BUCKETS} buckets already")));
        }
        let mut entries = Vec::with_capacity(charges.len());
        for (Charge { bucket, amount }, state) in charges.iter().zip(states) {
            // Not of the copy: two charges may be of one bucket.
            let entry = if let Some(place) = self.buckets.get_mut(bucket.key()) {
                let entry = state::take(&bucket.limit, place, *amount, now);
                *state = *place;
                entry
            } else {
                let entry = state::take(&bucket.limit, state, *amount, now);
                self.buckets.insert(bucket.key().to_owned(), *state);
                entry
            };
            entries.push((Arc::clone(bucket), entry));
        }
        let expires_micros = expiry(now);
        self.expiries.insert((expires_micros, id));
        self.reservations.insert(id, Held { expires_micros, has_left: false, entries });
        Ok(())
    }

    fn settle(&mut self, id: CallId, spent: Spent, now: u64) {
        let Some(held) = self.reservations.remove(&id) else { return };
        self.expiries.remove(&(held.expires_micros, id));
        for (bucket, entry) in held.entries {
            if let Some(state) = self.buckets.get_mut(bucket.key()) {
                state::settle(&bucket.limit, state, &entry, spent, now);
            }
        }
    }

    fn renew(&mut self, id: CallId, now: u64) {
        if let Some(held) = self.reservations.get_mut(&id) {
            self.expiries.remove(&(held.expires_micros, id));
            held.expires_micros = expiry(now);
            self.expiries.insert((held.expires_micros, id));
        }
    }

    fn expire(&mut self, now: u64) {
        while let Some(&(expires_micros, id)) = self.expiries.first()
            && expires_micros <= now
        {
            self.abandon(id, now);
        }
    }

    fn abandon(&mut self, id: CallId, now: u64) {
        let has_left = self.reservations.get(&id).is_some_and(|held| held.has_left);
        self.settle(id, if has_left { Spent::Reserved } else { Spent::Nothing }, now);
    }
}

impl Limit {
    /// Is it held only while a call runs?
    #[must_use]
    pub const fn is_slots(&self) -> bool {
        matches!(self, Self::Slots(_))
    }
}
