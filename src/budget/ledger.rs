//! The seam between reservations and where their buckets are kept.

use async_trait::async_trait;

use super::{Bucket, Charge, Limit, Measure, Scope, Standing, bucket::amount_text};
use crate::domain::{CallId, Denial, Kind};

/// Keeps buckets. Every store passes one contract suite (`tests/it/ledger`).
///
/// A reservation lives until it is settled or released, or until nobody renews it: then it is
/// charged as it was reserved if its call had left, and given back if not.
#[async_trait]
pub trait Ledger: Send + Sync {
    /// Takes every charge from its bucket, or nothing at all, in one atomic step.
    ///
    /// # Errors
    /// [`Refusal::Exhausted`] names the bucket that was short, [`Refusal::Store`] a store that
    /// failed: nothing was taken then.
    async fn reserve(&self, id: CallId, charges: &[Charge]) -> Result<Grant, Refusal>;

    /// The call is about to leave: from now on it is charged if nobody settles it.
    ///
    /// # Errors
    /// Where the store does not answer, or has no such reservation (any more).
    async fn depart(&self, id: CallId) -> Result<(), LedgerError>;

    /// Charges what was spent in place of what was reserved, and frees the slots. Idempotent by
    /// `id`: a second time, or for a reservation that has expired, nothing happens.
    ///
    /// # Errors
    /// Where the store does not answer; the reservation expires by itself then.
    async fn settle(&self, id: CallId, spent: Spent) -> Result<(), LedgerError>;

    /// Ends reservations whose calls are lost, as their time's end would: charged as they were reserved
    /// if their call had left, and given back if not. Idempotent, as [`Ledger::settle`] is.
    ///
    /// # Errors
    /// Where the store does not answer; they expire by themselves then.
    async fn abandon(&self, ids: &[CallId]) -> Result<(), LedgerError>;

    /// Keeps reservations alive whose calls still run.
    ///
    /// # Errors
    /// Where the store does not answer.
    async fn renew(&self, ids: &[CallId]) -> Result<(), LedgerError>;

    /// How buckets stand, in their order.
    ///
    /// # Errors
    /// Where the store does not answer.
    async fn standings(&self, buckets: &[&Bucket]) -> Result<Vec<Standing>, LedgerError>;
}

/// What a call has spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spent {
    /// It never left, or was refused unpaid: all of it goes back, its request too.
    Nothing,
    /// What was reserved, for want of anything better.
    Reserved,
    Actual {
        tokens: u64,
        micro_usd: u64,
    },
}

impl Spent {
    /// What of a reservation of `reserved` in this measure is charged.
    #[must_use]
    pub const fn of(self, measure: Measure, reserved: u64) -> u64 {
        match (self, measure) {
            (Self::Nothing, _) => 0,
            (Self::Reserved, _) | (Self::Actual { .. }, Measure::Requests) => reserved,
            (Self::Actual { tokens, .. }, Measure::Tokens) => tokens,
            (Self::Actual { micro_usd, .. }, Measure::MicroUsd) => micro_usd,
        }
    }
}

/// How each bucket stands after a reservation, in the order of its charges.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grant {
    pub standings: Vec<Standing>,
}

/// Why nothing was granted.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error("{} of {} are used up", .0.charge.bucket.name(), .0.charge.bucket.scope)]
    Exhausted(Box<Exhausted>),
    #[error(transparent)]
    Store(#[from] LedgerError),
}

/// A bucket that was short. Where several are, the one that takes longest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exhausted {
    pub charge: Charge,
    /// A call that comes after this long passes, if no other comes first. `None`: it depends on
    /// when a running call ends, or no wait is long enough.
    pub retry_after_micros: Option<u64>,
    /// Its place among the charges.
    pub position: usize,
    /// How the buckets stand, in the order of the charges.
    pub standings: Vec<Standing>,
}

/// The store of the budgets failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the budget store failed: {0}")]
pub struct LedgerError(pub String);

impl Refusal {
    /// How the buckets stand, in the order of the charges.
    #[must_use]
    pub fn standings(&self) -> &[Standing] {
        match self {
            Self::Exhausted(exhausted) => &exhausted.standings,
            Self::Store(_) => &[],
        }
    }

    /// Does it take a running call to end?
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Exhausted(it) if it.charge.bucket.limit.is_slots())
    }

    /// Are the slots of this bucket what is lacking?
    #[must_use]
    pub fn is_full_of(&self, key: &str) -> bool {
        self.is_full() && matches!(self, Self::Exhausted(it) if it.charge.bucket.key() == key)
    }

    /// As the public sees it.
    #[must_use]
    pub fn to_denial(&self) -> Denial {
        match self {
            Self::Exhausted(exhausted) => exhausted.to_denial(&self.to_string()),
            Self::Store(_) => {
                let message = "The budget store does not answer; try again.";
                Denial::new(Kind::BudgetUnavailable, message).with_retry_after_ms(1_000)
            }
        }
    }
}

/// A wait as a person reads it, rounded up.
fn wait_text(ms: u64) -> String {
    match ms {
        0..10_000 => format!("{ms} ms"),
        10_000..600_000 => format!("{} s", ms.div_ceil(1_000)),
        600_000..36_000_000 => format!("{} min", ms.div_ceil(60_000)),
        _ => format!("{} h", ms.div_ceil(3_600_000)),
    }
}

impl Exhausted {
    /// A limit on how fast and how many at once, or a budget?
    #[must_use]
    pub fn kind(&self) -> Kind {
        match (&self.charge.bucket.limit, &self.charge.bucket.scope) {
            (Limit::Slots(_), _) => Kind::ConcurrencyLimited,
            (Limit::Rate { .. }, Scope::TierModel { .. }) => Kind::RateLimited,
            _ => Kind::BudgetExhausted,
        }
    }

    /// How the bucket that was short stands.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.standings.get(self.position).copied().unwrap_or_default()
    }

    fn to_denial(&self, what: &str) -> Denial {
        let Charge { bucket, amount } = &self.charge;
        let kind = self.kind();
        if *amount > bucket.limit.most() {
            let measure = bucket.limit.measure();
            let (need, most) =
                (amount_text(measure, *amount), amount_text(measure, bucket.limit.most()));
            let (name, scope) = (bucket.name(), &bucket.scope);
            let message = format!(
                "This call may spend {need}, and {name} of {scope} never has more than {most}: send a \
                 smaller max_tokens, or less."
            );
            return Denial::new(kind, message).with_param("max_tokens");
        }
        let Some(micros) = self.retry_after_micros else {
            let message = format!("{what}; wait for a call to end, then try again.");
            return Denial::new(kind, message).with_retry_after_ms(1_000).with_param("model");
        };
        let retry_after_ms = micros.div_ceil(1_000).max(1);
        Denial::new(kind, format!("{what}; try again in {}.", wait_text(retry_after_ms)))
            .with_retry_after_ms(retry_after_ms)
            .with_param("model")
    }
}
