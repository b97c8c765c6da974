//! What is leased, and to whom: all that one lock guards. It waits for nothing.
//!
//! A lease is counted in microseconds of its bucket's time, as the bucket's own state is: so what
//! many calls take of it adds up to what they would have taken of the bucket, to the microsecond.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use tokio::{sync::watch, time::Instant};

use super::super::{Bucket, Charge, Grant, Limit, MAX_PER_MINUTE, Measure, RESERVATION_TTL, Spent};
use super::key::{Closed, HOT_WINDOW, Key, Lease};
use crate::domain::CallId;

/// A lease that holds fewer calls than this saves too little to be worth it.
const LEAST_CALLS: u64 = 4;
/// Names in tokens make keys, so their number has a bound: those beyond it are not leased.
const MAX_KEYS: usize = 1 << 16;
/// So is that of calls that were served from leases and are open.
const MAX_CALLS: usize = 1 << 20;
/// After so many calls, keys that are cold are let go.
const SWEEP_EVERY: u64 = 4_096;
/// Room for what is charged whatever the bucket holds: ten years, which any clock can add up.
const DEBT_ROOM_MICROS: u64 = 10 * 365 * 86_400 * 1_000_000;

#[derive(Debug)]
pub(super) struct Table {
    lease_micros: u64,
    keys: HashMap<String, Key>,
    leases: HashMap<CallId, Lease>,
    calls: HashMap<CallId, Call>,
    expiries: BTreeSet<(Instant, CallId)>,
    noted: u64,
}

/// A call that was served from leases.
#[derive(Debug)]
struct Call {
    expires: Instant,
    has_left: bool,
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    lease: CallId,
    bucket: Arc<Bucket>,
    amount: u64,
}

/// What comes of a call's look for leases.
pub(super) enum Step {
    Granted(Grant),
    /// No lease serves it: the store is to be asked.
    Through,
    /// The id has a reservation already.
    Reserved,
    /// `refills` are to be started; when what is waited for is over, another look is worth it.
    Wait {
        refills: Vec<Refill>,
        waits: Vec<watch::Receiver<()>>,
    },
}

/// A lease that is to be taken.
pub(super) struct Refill {
    pub(super) charge: Charge,
    limit: Limit,
    /// What served until now.
    pub(super) old: Option<Closed>,
    pub(super) done: watch::Sender<()>,
}

/// What the store is to be told.
#[derive(Debug, Default)]
pub(super) struct Owed {
    pub(super) closed: Vec<Closed>,
    /// What was spent beyond a reservation, to be charged whether there is room or not.
    pub(super) debts: Vec<Charge>,
}

/// `bucket`, counted in microseconds of its time: tokens at the highest rate are just that.
fn in_micros(bucket: &Bucket, burst: u64) -> Arc<Bucket> {
    let limit = Limit::Rate { measure: Measure::Tokens, per_minute: MAX_PER_MINUTE, burst };
    Arc::new(bucket.with_limit(limit))
}

impl Table {
    pub(super) fn new(lease_micros: u64) -> Self {
        Self {
            lease_micros,
            keys: HashMap::new(),
            leases: HashMap::new(),
            calls: HashMap::new(),
            expiries: BTreeSet::new(),
            noted: 0,
        }
    }

    pub(super) fn open(&self) -> usize {
        self.calls.len()
    }

    /// Serves a call whose charges are all rates, if each has a lease with enough left.
    /// `is_first`: it is counted once, however often it looks.
    pub(super) fn take(
        &mut self,
        id: CallId,
        charges: &[Charge],
        now: Instant,
        is_first: bool,
    ) -> Step {
        if self.calls.contains_key(&id) {
            return Step::Reserved;
        }
        if !charges.iter().all(|it| self.size(it).is_some()) || meets_twice(charges) {
            return Step::Through;
        }
        if is_first && !self.note(charges, now) {
            return Step::Through;
        }
        let mut lacking = Vec::new();
        for charge in charges {
            match self.serves(charge, now) {
                Some(true) => {}
                Some(false) => lacking.push(charge),
                None => return Step::Through,
            }
        }
        if lacking.is_empty() {
            return self.grant(id, charges, now);
        }
        let (mut refills, mut waits) = (Vec::new(), Vec::new());
        for charge in lacking {
            self.refill(charge, &mut refills, &mut waits);
        }
        Step::Wait { refills, waits }
    }

    /// How large a lease for such a charge is, if it is worth one.
    fn size(&self, charge: &Charge) -> Option<u64> {
        let limit = &charge.bucket.limit;
        let size = self.lease_micros.min(limit.burst_micros());
        let least = limit.rate_micros(charge.amount).saturating_mul(LEAST_CALLS);
        (least <= size).then_some(size)
    }

    /// Counts a call of these keys. Are all hot?
    fn note(&mut self, charges: &[Charge], now: Instant) -> bool {
        self.noted += 1;
        if self.noted.is_multiple_of(SWEEP_EVERY) {
            self.keys.retain(|_, key| !key.is_cold(now));
        }
        let mut all_hot = true;
        for charge in charges {
            let name = charge.bucket.key();
            if let Some(key) = self.keys.get_mut(name) {
                all_hot = key.note(now) && all_hot;
            } else {
                all_hot = false;
                if self.keys.len() < MAX_KEYS {
                    let key = self.keys.entry(name.to_owned()).or_insert(Key::new(now));
                    key.note(now);
                }
            }
        }
        all_hot
    }

    /// Has its key a lease with enough left? `None`: it can't have one now.
    fn serves(&self, charge: &Charge, now: Instant) -> Option<bool> {
        let key = self.keys.get(charge.bucket.key())?;
        let limit = &charge.bucket.limit;
        if let Some(lease) = key.serving.and_then(|id| self.leases.get(&id))
            && now < lease.ends
        {
            if lease.limit != *limit {
                // A changed limit holds at once; two at the same time must not fight over a lease.
                return None;
            }
            if lease.left() >= limit.rate_micros(charge.amount) {
                return Some(true);
            }
        }
        (key.refill().is_some() || key.refused_until <= now).then_some(false)
    }

    fn grant(&mut self, id: CallId, charges: &[Charge], now: Instant) -> Step {
        if self.calls.len() >= MAX_CALLS {
            return Step::Through;
        }
        let (mut parts, mut standings) = (Vec::new(), Vec::new());
        for Charge { bucket, amount } in charges {
            let serving = self.keys.get(bucket.key()).and_then(|key| key.serving);
            let Some(lease_id) = serving else { continue };
            let Some(lease) = self.leases.get_mut(&lease_id) else { continue };
            let micros = bucket.limit.rate_micros(*amount);
            lease.used += micros;
            lease.held += micros;
            lease.calls += 1;
            standings.push(lease.standing(&bucket.limit, now));
            parts.push(Part { lease: lease_id, bucket: Arc::clone(bucket), amount: *amount });
        }
        let expires = now + RESERVATION_TTL;
        self.expiries.insert((expires, id));
        self.calls.insert(id, Call { expires, has_left: false, parts });
        Step::Granted(Grant { standings })
    }

    /// Joins the refill of a key, or begins it: only one is under way for each. What served until
    /// now ends before, so that there are never two.
    fn refill(
        &mut self,
        charge: &Charge,
        refills: &mut Vec<Refill>,
        waits: &mut Vec<watch::Receiver<()>>,
    ) {
        let Some(amount) = self.size(charge) else { return };
        let Some(key) = self.keys.get_mut(charge.bucket.key()) else { return };
        if let Some(refill) = key.refill() {
            waits.push(refill.clone());
            return;
        }
        let (done, wait) = watch::channel(());
        key.refill = Some(wait.clone());
        let old = key.serving.take().and_then(|id| self.end(id));
        let limit = charge.bucket.limit;
        let bucket = in_micros(&charge.bucket, limit.burst_micros());
        refills.push(Refill { charge: Charge { bucket, amount }, limit, old, done });
        waits.push(wait);
    }

    /// The store has granted a lease. `ahead`: how far its bucket is filled, in microseconds.
    pub(super) fn refilled(
        &mut self,
        refill: &Refill,
        id: CallId,
        ahead: u64,
        now: Instant,
        ends: Instant,
    ) {
        let Charge { bucket, amount } = &refill.charge;
        if let Some(key) = self.keys.get_mut(bucket.key()) {
            (key.serving, key.refill) = (Some(id), None);
            // A store so slow that a lease is over when it comes is not asked again at once.
            if ends <= now {
                key.refused_until = now + HOT_WINDOW;
            }
        }
        let lease = Lease {
            bucket: Arc::clone(bucket),
            limit: refill.limit,
            micros: *amount,
            used: 0,
            held: 0,
            calls: 0,
            serves: true,
            ahead,
            taken: now,
            ends,
        };
        self.leases.insert(id, lease);
    }

    pub(super) fn not_refilled(&mut self, refill: &Refill, until: Instant) {
        if let Some(key) = self.keys.get_mut(refill.charge.bucket.key()) {
            (key.refill, key.refused_until) = (None, until);
        }
    }

    /// A lease serves no longer.
    pub(super) fn end(&mut self, id: CallId) -> Option<Closed> {
        let lease = self.leases.get_mut(&id)?;
        lease.serves = false;
        if let Some(key) = self.keys.get_mut(lease.bucket.key())
            && key.serving == Some(id)
        {
            key.serving = None;
        }
        self.close(id)
    }

    fn close(&mut self, id: CallId) -> Option<Closed> {
        let used = self.leases.get(&id).filter(|lease| lease.is_over())?.used;
        self.leases.remove(&id);
        Some(Closed { id, used })
    }

    /// `None`: it is not one of these calls.
    pub(super) fn settle(&mut self, id: CallId, spent: Spent, now: Instant) -> Option<Owed> {
        let call = self.calls.remove(&id)?;
        self.expiries.remove(&(call.expires, id));
        let spent = match (call.expires <= now, call.has_left) {
            (false, _) => spent,
            (true, true) => Spent::Reserved,
            (true, false) => Spent::Nothing,
        };
        let mut owed = Owed::default();
        for part in call.parts {
            self.settle_part(&part, spent, &mut owed);
        }
        Some(owed)
    }

    fn settle_part(&mut self, part: &Part, spent: Spent, owed: &mut Owed) {
        let limit = &part.bucket.limit;
        let reserved = limit.rate_micros(part.amount);
        let actual = limit.measure().map_or(0, |measure| spent.of(measure, part.amount));
        let actual = limit.rate_micros(actual);
        let mut beyond = actual.saturating_sub(reserved);
        // Where the lease is settled already, what the call gives back comes too late.
        if let Some(lease) = self.leases.get_mut(&part.lease) {
            lease.calls = lease.calls.saturating_sub(1);
            lease.held = lease.held.saturating_sub(reserved);
            lease.used = lease.used.saturating_sub(reserved.saturating_sub(actual));
            let paid = beyond.min(lease.left());
            lease.used += paid;
            beyond -= paid;
            owed.closed.extend(self.close(part.lease));
        }
        if beyond > 0 {
            let bucket = in_micros(&part.bucket, DEBT_ROOM_MICROS);
            owed.debts.push(Charge { bucket, amount: beyond });
        }
    }

    /// Is it one of these calls, and in time?
    pub(super) fn depart(&mut self, id: CallId, now: Instant) -> bool {
        let call = self.calls.get_mut(&id).filter(|call| now < call.expires);
        call.map(|call| call.has_left = true).is_some()
    }

    /// The leases that must live on with it; `None`: it is not one of these calls.
    pub(super) fn renew(&mut self, id: CallId, now: Instant) -> Option<Vec<CallId>> {
        let call = self.calls.get_mut(&id)?;
        if now < call.expires {
            self.expiries.remove(&(call.expires, id));
            call.expires = now + RESERVATION_TTL;
            self.expiries.insert((call.expires, id));
        }
        let is_open = |id: &CallId| self.leases.contains_key(id);
        Some(call.parts.iter().map(|part| part.lease).filter(is_open).collect())
    }

    /// Ends calls that nobody renewed.
    pub(super) fn expire(&mut self, now: Instant) -> Owed {
        let mut owed = Owed::default();
        while let Some(&(expires, id)) = self.expiries.first()
            && expires <= now
        {
            // Whatever it says it has spent: it is past its time.
            let ended = self.settle(id, Spent::Reserved, now).unwrap_or_default();
            owed.closed.extend(ended.closed);
            owed.debts.extend(ended.debts);
            self.expiries.remove(&(expires, id));
        }
        owed
    }
}

/// Does a call meet a bucket more than once?
fn meets_twice(charges: &[Charge]) -> bool {
    let same = |(i, charge): (usize, &Charge)| {
        charges[..i].iter().any(|other| other.bucket.key() == charge.bucket.key())
    };
    charges.iter().enumerate().any(same)
}
