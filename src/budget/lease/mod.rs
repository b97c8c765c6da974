//! Leases: a share of a hot key's rate, taken from the store once and served from this process.
//!
//! Each key has at most one lease in each process that calls are served from. A lease is paid for
//! in the store before it serves, and serves no longer than [`MAX_LEASE`] after it was asked for. So
//! what is admitted in an interval was paid for in it or in the lease's time before it, and over any
//! interval of `t`:
//!
//! > admitted ≤ burst + rate · t + Σ leases, where Σ leases ≤ rate · [`MAX_LEASE`]
//!
//! however many processes there are. A process that is lost takes its leases with it, as if it had
//! spent them. Only rates are leased: calls that take a slot or are charged to a window (so all that
//! cost money) go to the store as ever.

mod key;
mod table;

use std::{
    collections::HashSet,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use tokio::time::{Instant, sleep_until, timeout};

use self::table::{Owed, Refill, Step, Table};
use super::{Bucket, Charge, Grant, Ledger, LedgerError, Limit, Refusal, Spent, Standing};
use crate::domain::CallId;

/// The most of a rate that a lease may be worth, and the longest that it serves: what the bound
/// above is made of.
pub const MAX_LEASE: Duration = Duration::from_millis(50);
/// A call looks for a lease, waits for a refill, and looks again; then it asks the store itself.
const WAITS: usize = 1;

/// A ledger that serves hot keys from leases.
pub struct LeasedLedger {
    shared: Arc<Shared>,
}

struct Shared {
    inner: Arc<dyn Ledger>,
    lease: Duration,
    table: Mutex<Table>,
}

impl fmt::Debug for LeasedLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeasedLedger").field("lease", &self.shared.lease).finish_non_exhaustive()
    }
}

/// `inner` with leases of so many milliseconds; as it is for 0.
#[must_use]
pub fn leased(inner: Arc<dyn Ledger>, lease_ms: u64) -> Arc<dyn Ledger> {
    if lease_ms == 0 {
        return inner;
    }
    Arc::new(LeasedLedger::new(inner, Duration::from_millis(lease_ms)))
}

impl LeasedLedger {
    /// Leases are of `lease`, cut to [`MAX_LEASE`]. To be used on a runtime.
    #[must_use]
    pub fn new(inner: Arc<dyn Ledger>, lease: Duration) -> Self {
        let lease = lease.min(MAX_LEASE);
        let table = Mutex::new(Table::new(u64::try_from(lease.as_micros()).unwrap_or(0)));
        Self { shared: Arc::new(Shared { inner, lease, table }) }
    }

    /// Calls that were served from leases and have not settled: 0 when nothing runs.
    #[must_use]
    pub fn open(&self) -> usize {
        self.shared.table().open()
    }

    /// Serves the call from leases, where that can be.
    async fn serve(&self, id: CallId, charges: &[Charge]) -> Option<Result<Grant, Refusal>> {
        for look in 0..=WAITS {
            let step = self.shared.table().take(id, charges, Instant::now(), look == 0);
            match step {
                Step::Granted(grant) => return Some(Ok(grant)),
                Step::Through => return None,
                Step::Reserved => {
                    return Some(
                        Err(LedgerError(format!("{id} has a reservation already")).into()),
                    );
                }
                Step::Wait { refills, waits } => {
                    for refill in refills {
                        tokio::spawn(Arc::clone(&self.shared).refill(refill));
                    }
                    if look == WAITS {
                        return None;
                    }
                    for mut wait in waits {
                        // Its sender says nothing: it goes away when the refill is over. A store
                        // that takes longer than a lease serves is no worse when asked directly.
                        let _ = timeout(self.shared.lease, wait.changed()).await;
                    }
                }
            }
        }
        None
    }
}

#[async_trait]
impl Ledger for LeasedLedger {
    async fn reserve(&self, id: CallId, charges: &[Charge]) -> Result<Grant, Refusal> {
        let is_rate = |it: &Charge| matches!(it.bucket.limit, Limit::Rate { .. });
        if !charges.is_empty()
            && charges.iter().all(is_rate)
            && let Some(served) = self.serve(id, charges).await
        {
            return served;
        }
        // What a lease could not serve is refused by the store alone: only it knows for how long.
        self.shared.inner.reserve(id, charges).await
    }

    async fn depart(&self, id: CallId) -> Result<(), LedgerError> {
        // Its lease has departed already.
        if self.shared.table().depart(id, Instant::now()) {
            return Ok(());
        }
        self.shared.inner.depart(id).await
    }

    async fn settle(&self, id: CallId, spent: Spent) -> Result<(), LedgerError> {
        let owed = self.shared.table().settle(id, spent, Instant::now());
        match owed {
            Some(owed) => self.shared.pay(owed).await,
            None => self.shared.inner.settle(id, spent).await,
        }
    }

    async fn abandon(&self, ids: &[CallId]) -> Result<(), LedgerError> {
        // What a lost process served from leases went with it; what this one does has an end here.
        self.shared.inner.abandon(ids).await
    }

    async fn renew(&self, ids: &[CallId]) -> Result<(), LedgerError> {
        let now = Instant::now();
        let (mut here, mut there) = (HashSet::new(), Vec::new());
        let owed = {
            let mut table = self.shared.table();
            for &id in ids {
                match table.renew(id, now) {
                    Some(leases) => here.extend(leases),
                    None => there.push(id),
                }
            }
            table.expire(now)
        };
        there.extend(here);
        let paid = self.shared.pay(owed).await;
        self.shared.inner.renew(&there).await.and(paid)
    }

    async fn standings(&self, buckets: &[&Bucket]) -> Result<Vec<Standing>, LedgerError> {
        self.shared.inner.standings(buckets).await
    }
}

impl Shared {
    /// Nothing panics under the lock, so poison is no harm.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a lease, and gives back what of it is left when it ends.
    async fn refill(self: Arc<Self>, refill: Refill) {
        // From before it was charged, whenever in between the store did so: the bound is made of it.
        let ends = Instant::now() + self.lease;
        let taken = self.take_lease(&refill).await;
        let now = Instant::now();
        let (lease, mut owed) = {
            let mut table = self.table();
            let lease = match taken {
                Ok((id, ahead)) => {
                    table.refilled(&refill, id, ahead, now, ends);
                    Some(id)
                }
                Err(wait) => {
                    table.not_refilled(&refill, now + wait.min(self.lease));
                    None
                }
            };
            (lease, table.expire(now))
        };
        let Refill { old, done, .. } = refill;
        drop(done);
        owed.closed.extend(old);
        self.pay_later(owed).await;
        if let Some(id) = lease {
            sleep_until(ends).await;
            let owed =
                Owed { closed: self.table().end(id).into_iter().collect(), ..Owed::default() };
            self.pay_later(owed).await;
        }
    }

    /// Its id, and how far ahead of now the bucket is filled with it, in microseconds; or when to
    /// try again.
    async fn take_lease(&self, refill: &Refill) -> Result<(CallId, u64), Duration> {
        let id = CallId::generate();
        let grant = self.inner.reserve(id, std::slice::from_ref(&refill.charge)).await;
        let grant = grant.map_err(|refusal| match refusal {
            Refusal::Exhausted(it) => {
                it.retry_after_micros.map_or(self.lease, Duration::from_micros)
            }
            Refusal::Store(_) => self.lease,
        })?;
        // Calls that it serves may leave at once: it stays charged if this process is lost.
        if self.inner.depart(id).await.is_err() {
            let _ = self.inner.settle(id, Spent::Nothing).await;
            return Err(self.lease);
        }
        Ok((id, grant.standings.first().map_or(0, |standing| standing.reset_micros)))
    }

    /// Settles what has ended. All of it is tried.
    async fn pay(&self, owed: Owed) -> Result<(), LedgerError> {
        let mut paid = Ok(());
        for closed in owed.closed {
            paid = self.inner.settle(closed.id, closed.spent()).await.and(paid);
        }
        for debt in owed.debts {
            let id = CallId::generate();
            let charged = match self.inner.reserve(id, &[debt]).await {
                Ok(_) => self.inner.settle(id, Spent::Reserved).await,
                Err(Refusal::Store(error)) => Err(error),
                Err(refusal) => Err(LedgerError(refusal.to_string())),
            };
            paid = charged.and(paid);
        }
        paid
    }

    async fn pay_later(&self, owed: Owed) {
        if let Err(error) = self.pay(owed).await {
            tracing::warn!(%error, "a lease was not settled: it stays charged until it expires");
        }
    }
}
