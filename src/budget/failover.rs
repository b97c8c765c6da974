//! What happens while the shared store fails: nobody is let in, or each gateway lets in its share.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use tokio::{
    sync::mpsc::{self, error::TrySendError},
    time::{Instant, sleep},
};

use super::{
    Bucket, Charge, Failure, Grant, Ledger, LedgerError, LedgerHealth, Limit, Measure,
    MemoryLedger, RESERVATION_TTL, RedisLedger, Refusal, Spent, Standing, redis::Unreserved,
};
use crate::domain::CallId;

/// Settlements that wait for the store to come back. As many as calls can end in a short outage;
/// what finds no place expires by itself.
const MAX_LATE: usize = 8_192;
/// Between attempts at a late settlement; doubled each time, up to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// A shared store, and what to do without it. Settlements that it did not take are tried again for
/// as long as they can matter.
#[derive(Debug)]
pub struct FailoverLedger {
    store: Arc<RedisLedger>,
    share: Option<Share>,
    late: mpsc::Sender<Late>,
}

/// A part of each limit, kept in this process.
#[derive(Debug)]
struct Share {
    /// So many gateways have one each.
    replicas: u64,
    memory: MemoryLedger,
    /// What is reserved here, not in the store.
    ids: Mutex<HashSet<CallId>>,
}

#[derive(Debug)]
struct Late {
    id: CallId,
    spent: Spent,
    /// Then the store has settled it by itself.
    until: Instant,
}

impl FailoverLedger {
    /// While `store` fails, all calls are refused. To be called on a runtime.
    #[must_use]
    pub fn deny(store: Arc<RedisLedger>) -> Self {
        Self::new(store, None)
    }

    /// While `store` fails, calls that cost money are refused; others share each limit equally
    /// among so many gateways, rounded down, but at least 1. To be called on a runtime.
    #[must_use]
    pub fn share(store: Arc<RedisLedger>, replicas: u32) -> Self {
        let share = Share {
            replicas: u64::from(replicas.max(1)),
            memory: MemoryLedger::new(),
            ids: Mutex::default(),
        };
        Self::new(store, Some(share))
    }

    fn new(store: Arc<RedisLedger>, share: Option<Share>) -> Self {
        let (late, settlements) = mpsc::channel(MAX_LATE);
        tokio::spawn(settle_late(Arc::clone(&store), settlements));
        Self { store, share, late }
    }

    #[must_use]
    pub fn health(&self) -> &Arc<LedgerHealth> {
        self.store.health()
    }

    /// Fails where too many wait.
    fn settle_later(&self, id: CallId, spent: Spent) -> Result<(), TrySendError<Late>> {
        let until = Instant::now() + RESERVATION_TTL;
        self.late.try_send(Late { id, spent, until })
    }

    /// The share, if it holds this reservation.
    fn share_of(&self, id: CallId) -> Option<&Share> {
        self.share.as_ref().filter(|share| share.holds(id))
    }
}

#[async_trait]
impl Ledger for FailoverLedger {
    async fn reserve(&self, id: CallId, charges: &[Charge]) -> Result<Grant, Refusal> {
        let result = self.store.try_reserve(id, charges).await;
        let failure = match &result {
            Err(Unreserved::Failed(failure)) => Some(*failure),
            _ => None,
        };
        if failure.is_some_and(Failure::is_ambiguous) {
            // It may have been taken. Where there is no place, it expires and is given back then.
            let _ = self.settle_later(id, Spent::Nothing);
        }
        match (&self.share, failure) {
            (Some(share), Some(_)) if !is_money(charges.iter().map(|it| &*it.bucket)) => {
                let grant = share.reserve(id, charges).await?;
                self.health().note_shared();
                Ok(grant)
            }
            _ => result.map_err(|why| why.into_refusal(id)),
        }
    }

    async fn depart(&self, id: CallId) -> Result<(), LedgerError> {
        match self.share_of(id) {
            Some(share) => share.memory.depart(id).await,
            None => self.store.depart(id).await,
        }
    }

    async fn settle(&self, id: CallId, spent: Spent) -> Result<(), LedgerError> {
        if let Some(share) = self.share_of(id) {
            return share.settle(id, spent).await;
        }
        match self.store.try_settle(id, spent).await {
            Ok(was_open) => {
                if !was_open {
                    self.health().note_lost();
                }
                Ok(())
            }
            Err(failure) => self.settle_later(id, spent).map_err(|_| failure.into()),
        }
    }

    async fn abandon(&self, ids: &[CallId]) -> Result<(), LedgerError> {
        if let Some(share) = &self.share {
            share.abandon(ids).await?;
        }
        self.store.abandon(ids).await
    }

    async fn renew(&self, ids: &[CallId]) -> Result<(), LedgerError> {
        let (here, there): (Vec<CallId>, Vec<CallId>) =
            ids.iter().partition(|id| self.share_of(**id).is_some());
        if let Some(share) = &self.share {
            share.memory.renew(&here).await?;
        }
        self.store.renew(&there).await
    }

    async fn standings(&self, buckets: &[&Bucket]) -> Result<Vec<Standing>, LedgerError> {
        match (self.store.try_standings(buckets).await, &self.share) {
            (Ok(standings), _) => Ok(standings),
            (Err(_), Some(share)) if !is_money(buckets.iter().copied()) => {
                share.standings(buckets).await
            }
            (Err(failure), _) => Err(failure.into()),
        }
    }
}

fn is_money<'a>(mut buckets: impl Iterator<Item = &'a Bucket>) -> bool {
    buckets.any(|bucket| bucket.limit.measure() == Some(Measure::MicroUsd))
}

impl Share {
    fn holds(&self, id: CallId) -> bool {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).contains(&id)
    }

    fn part(&self, bucket: &Bucket) -> Bucket {
        let part = |size: u64| (size / self.replicas).max(1);
        let limit = match bucket.limit {
            Limit::Rate { measure, per_minute, burst } => {
                Limit::Rate { measure, per_minute: part(per_minute), burst: part(burst) }
            }
            // A part of a `u32` is one.
            Limit::Slots(slots) => Limit::Slots(u32::try_from(part(slots.into())).unwrap_or(slots)),
            Limit::Window { measure, period, limit } => {
                Limit::Window { measure, period, limit: part(limit) }
            }
        };
        bucket.with_limit(limit)
    }

    async fn reserve(&self, id: CallId, charges: &[Charge]) -> Result<Grant, Refusal> {
        let part =
            |it: &Charge| Charge { bucket: Arc::new(self.part(&it.bucket)), amount: it.amount };
        let charges: Vec<Charge> = charges.iter().map(part).collect();
        let grant = self.memory.reserve(id, &charges).await?;
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
        Ok(grant)
    }

    async fn settle(&self, id: CallId, spent: Spent) -> Result<(), LedgerError> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        self.memory.settle(id, spent).await
    }

    async fn abandon(&self, ids: &[CallId]) -> Result<(), LedgerError> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).retain(|id| !ids.contains(id));
        self.memory.abandon(ids).await
    }

    async fn standings(&self, buckets: &[&Bucket]) -> Result<Vec<Standing>, LedgerError> {
        let parts: Vec<Bucket> = buckets.iter().map(|bucket| self.part(bucket)).collect();
        self.memory.standings(&parts.iter().collect::<Vec<_>>()).await
    }
}

/// Settles what the store did not take the first time, in turn, until the ledger is dropped.
async fn settle_late(store: Arc<RedisLedger>, mut settlements: mpsc::Receiver<Late>) {
    let mut gives_up = false;
    while let Some(Late { id, spent, until }) = settlements.recv().await {
        let mut wait = FIRST_WAIT;
        while Instant::now() < until {
            if store.try_settle(id, spent).await.is_ok() {
                gives_up = false;
                break;
            }
            sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
        if Instant::now() >= until {
            store.health().note_unsettled();
            if !gives_up {
                tracing::error!(call_id = %id, "settlements come too late: reservations expire");
            }
            gives_up = true;
        }
    }
}
