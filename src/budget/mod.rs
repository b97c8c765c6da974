//! Budgets: what a call may take, taken before it leaves and settled when it ends.
//!
//! [`LimitTable`] knows which buckets a call meets, [`Forecast`] how much it may take of each; a
//! [`Ledger`] keeps them, and takes from all or from none; a [`Reservation`] is what was taken.

mod bucket;
mod estimate;
mod failover;
mod forecast;
mod lease;
mod ledger;
mod limits;
mod memory;
mod meter;
mod notice;
mod queue;
mod redis;
mod report;
mod reservation;
mod state;
mod store;
mod tokenizer;
mod window;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt as _;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

pub use bucket::{Bucket, Charge, Limit, MAX_PER_MINUTE, Measure, Period, Scope, Standing};
pub use estimate::Estimator;
pub use failover::FailoverLedger;
pub use forecast::{Forecast, ModelBounds};
pub use lease::{LeasedLedger, MAX_LEASE, leased};
pub use ledger::{Exhausted, Grant, Ledger, LedgerError, Refusal, Spent};
pub use limits::LimitTable;
pub use memory::{MemoryLedger, RESERVATION_TTL};
pub use meter::{Metered, TokenMeter, Unmetered, Written};
pub use notice::{
    BudgetNotice, Busts, MAX_PENDING, NoNotifier, NoticeOwner, NoticeUnit, Notifier, NotifierError,
    TOLERANCE_S, Told, VerifyError, WEBHOOK_ID, WEBHOOK_SIGNATURE, WEBHOOK_TIMESTAMP, Webhook,
    check_notifier, start_notifier, verify,
};
pub use queue::{Claim, Entered, FairQueues, QUEUE_RETRY, QueueBounds, Refused, RefusedReason};
pub use redis::{COMMAND_TIMEOUT, Clock, Failure, LedgerHealth, RedisLedger};
pub use report::{Policy, Report};
pub use reservation::{OpenReservations, Reservation};
pub use store::{LedgerStore, check_ledger, open_ledger};
pub use tokenizer::{MAX_COUNTED_BYTES, TokenCounter};
pub use window::Window;

use crate::domain::{CallId, Kind};

/// Three in a [`RESERVATION_TTL`]: two may fail.
const RENEW_INTERVAL: Duration = Duration::from_secs(20);

/// Stands where a claim's name does, in the keys of told busts; no claim is called so.
const NOTICE: &str = "\0notice";

/// Agents whose buckets are remembered.
const MET_AGENTS: usize = 4_096;

/// Reserves from a ledger and keeps what is open alive.
#[derive(Clone)]
pub struct Budgets {
    ledger: Arc<dyn Ledger>,
    open: Arc<OpenReservations>,
    /// By agent, or subject: the buckets that its last call met. For operators who ask.
    met: Arc<quick_cache::sync::Cache<String, Arc<[Arc<Bucket>]>>>,
    refused: Arc<[AtomicU64; REFUSALS.len()]>,
    health: Option<Arc<LedgerHealth>>,
}

/// What calls are refused for here.
const REFUSALS: [Kind; 6] = [
    Kind::RateLimited,
    Kind::ConcurrencyLimited,
    Kind::BudgetExhausted,
    Kind::BudgetUnavailable,
    Kind::UnpricedModel,
    Kind::UnknownTier,
];

impl std::fmt::Debug for Budgets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Budgets").field("open", &self.open.count()).finish_non_exhaustive()
    }
}

impl Budgets {
    #[must_use]
    pub fn new(ledger: Arc<dyn Ledger>) -> Self {
        let met = Arc::new(quick_cache::sync::Cache::new(MET_AGENTS));
        Self { ledger, open: Arc::default(), met, refused: Arc::default(), health: None }
    }

    /// With the counters of the store that is behind the ledger.
    #[must_use]
    pub fn with_health(self, health: Option<Arc<LedgerHealth>>) -> Self {
        Self { health, ..self }
    }

    #[must_use]
    pub fn health(&self) -> Option<&LedgerHealth> {
        self.health.as_deref()
    }

    /// Counts a refusal.
    pub fn note_refusal(&self, kind: Kind) {
        if let Some(i) = REFUSALS.iter().position(|one| *one == kind) {
            self.refused[i].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many calls were refused for what.
    #[must_use]
    pub fn refused(&self) -> [(Kind, u64); REFUSALS.len()] {
        std::array::from_fn(|i| (REFUSALS[i], self.refused[i].load(Ordering::Relaxed)))
    }

    /// Takes every charge from its bucket, or nothing.
    ///
    /// # Errors
    /// 429 with the time until it can pass, or 503 where the ledger does not answer.
    pub async fn reserve(
        &self,
        id: CallId,
        charges: Arc<[Charge]>,
    ) -> Result<(Reservation, Grant), Refusal> {
        let (ledger, open) = (Arc::clone(&self.ledger), Arc::clone(&self.open));
        let mut reserving = Box::pin(async move {
            let grant = ledger.reserve(id, &charges).await?;
            Ok((Reservation::new(id, ledger, open), grant))
        });
        // A store in this process has answered by now.
        if let Some(reserved) = reserving.as_mut().now_or_never() {
            return reserved;
        }
        // A caller that hangs up now must not leave behind what is about to be granted.
        let (sender, receiver) = oneshot::channel();
        tokio::spawn(async move {
            if let Err(Ok((unwanted, _))) = sender.send(reserving.await) {
                unwanted.settle(Spent::Nothing).await;
            }
        });
        receiver.await.unwrap_or_else(|_| Err(LedgerError("it was given up".to_owned()).into()))
    }

    /// Remembers which buckets an agent's calls meet.
    pub fn note(&self, agent: &str, charges: &[Charge]) {
        let same = |known: &Arc<[Arc<Bucket>]>| {
            known.len() == charges.len()
                && known.iter().zip(charges).all(|(known, it)| known.key() == it.bucket.key())
        };
        if !self.met.get(agent).is_some_and(|known| same(&known)) {
            let buckets = charges.iter().map(|charge| Arc::clone(&charge.bucket)).collect();
            self.met.insert(agent.to_owned(), buckets);
        }
    }

    /// The buckets that the last call of an agent or subject met here.
    #[must_use]
    pub fn met_by(&self, agent: &str) -> Vec<Arc<Bucket>> {
        self.met.get(agent).map(|known| known.to_vec()).unwrap_or_default()
    }

    /// Is this the first bust of a bucket in its window, of all gateways that share the store? A
    /// store that does not answer says yes: to be told twice is better than never.
    pub async fn is_first_bust(&self, bucket: &Bucket, period: Period) -> bool {
        // A budget of one notice, spent by whoever comes first.
        let scope = Scope::Claim { name: NOTICE.to_owned(), value: bucket.key().to_owned() };
        let limit = Limit::Window { measure: Measure::Tokens, period, limit: 1 };
        let charge = Charge { bucket: Arc::new(Bucket::new(scope, limit)), amount: 1 };
        let id = CallId::generate();
        match self.ledger.reserve(id, &[charge]).await {
            Err(Refusal::Exhausted(_)) => false,
            Err(Refusal::Store(_)) => true,
            Ok(_) => {
                // Where it is not settled it expires, and the next bust is told of again.
                if let Err(error) = self.ledger.settle(id, Spent::Reserved).await {
                    tracing::debug!(%error, "a notice was not marked as told");
                }
                true
            }
        }
    }

    /// How buckets stand, in their order.
    ///
    /// # Errors
    /// Where the store does not answer.
    pub async fn standings(&self, buckets: &[&Bucket]) -> Result<Vec<Standing>, LedgerError> {
        self.ledger.standings(buckets).await
    }

    /// Ends the reservations of calls that are lost.
    ///
    /// # Errors
    /// Where the store does not answer; they expire by themselves then.
    pub async fn abandon(&self, ids: &[CallId]) -> Result<(), LedgerError> {
        self.ledger.abandon(ids).await
    }

    /// Renews what is open until `stop`.
    pub async fn keep_alive(self, stop: CancellationToken) {
        let mut beats = tokio::time::interval(RENEW_INTERVAL);
        while stop.run_until_cancelled(beats.tick()).await.is_some() {
            if let Err(error) = self.renew().await {
                tracing::warn!(%error, "reservations could not be renewed; trying again");
            }
        }
    }

    /// Keeps what is open from expiring, and ends what a lost process left behind. To be called
    /// well within [`RESERVATION_TTL`].
    ///
    /// # Errors
    /// Where the store does not answer; the next time may do.
    pub async fn renew(&self) -> Result<(), LedgerError> {
        self.ledger.renew(&self.open.ids()).await
    }

    /// Reservations that are neither settled nor lost: 0 when nothing runs.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.count()
    }

    /// Reservations that were dropped unsettled, ever: a bug where it isn't 0.
    #[must_use]
    pub fn leaked(&self) -> u64 {
        self.open.leaked()
    }
}
