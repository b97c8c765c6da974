//! Budgets: what a call may take, taken before it leaves and settled when it ends.
//!
//! A [`Ledger`] keeps the buckets; [`Budgets`] knows which of them a call meets. Requests a
//! minute and concurrent calls for each tier and model are here; tokens and money will be
//! further buckets of the same reservation.

mod bucket;
mod estimate;
mod ledger;
mod memory;
mod meter;
mod reservation;
mod tokenizer;

use std::{collections::HashMap, sync::Arc};

pub use bucket::{Bucket, BucketKey, Limit, Standing};
pub use estimate::Estimator;
pub use ledger::{Grant, Ledger, LedgerError, Refusal};
pub use memory::MemoryLedger;
pub use meter::{Metered, TokenMeter, Unmetered, Written};
pub use reservation::{Reservation, ReservationMeter};
pub use tokenizer::{MAX_COUNTED_BYTES, TokenCounter};

use crate::{
    config::TierConfig,
    domain::{CallId, Caller, Denial, Kind},
};

/// The limits of one tier for one model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TierLimit {
    pub requests_per_minute: Option<u64>,
    pub concurrent: Option<u32>,
}

/// Every tier's limits: which buckets a call meets.
#[derive(Debug, Clone, Default)]
pub struct TierTable(HashMap<String, HashMap<String, TierLimit>>);

impl TierTable {
    #[must_use]
    pub fn new(tiers: &[TierConfig]) -> Self {
        let limits_of = |tier: &TierConfig| {
            let limit = |limit: &crate::config::LimitConfig| TierLimit {
                requests_per_minute: limit.requests_per_minute,
                concurrent: limit.concurrent,
            };
            tier.limits.iter().map(|entry| (entry.model.clone(), limit(entry))).collect()
        };
        Self(tiers.iter().map(|tier| (tier.name.clone(), limits_of(tier))).collect())
    }

    /// The buckets that a call of this tier to this model must all pass. The entry that names the
    /// model wins over `*`, whole: it is not merged with it.
    ///
    /// # Errors
    /// A tier that the configuration doesn't know is refused: deny by default.
    pub fn buckets(&self, caller: &Caller, model: &str) -> Result<Vec<Bucket>, Denial> {
        let limits = self.0.get(&caller.tier).ok_or_else(|| unknown_tier(&caller.tier))?;
        let limit = limits.get(model).or_else(|| limits.get("*")).copied().unwrap_or_default();
        let key = |limit| BucketKey { tier: caller.tier.clone(), model: model.to_owned(), limit };
        let requests = limit.requests_per_minute.map(Limit::RequestsPerMinute);
        let slots = limit.concurrent.map(Limit::Concurrent);
        Ok([requests, slots]
            .into_iter()
            .flatten()
            .map(|limit| Bucket::new(key(limit.kind()), limit))
            .collect())
    }
}

fn unknown_tier(tier: &str) -> Denial {
    let message = if tier.is_empty() {
        "The token names no tier; ask its issuer to map one.".to_owned()
    } else {
        let tier: String = tier.chars().filter(|c| !c.is_control()).take(64).collect();
        format!("The tier `{tier}` is not known here; ask an operator to add it to [[tiers]].")
    };
    Denial::new(Kind::UnknownTier, message)
}

/// Reserves from a ledger and counts what is still open.
#[derive(Clone)]
pub struct Budgets {
    ledger: Arc<dyn Ledger>,
    meter: Arc<ReservationMeter>,
}

impl std::fmt::Debug for Budgets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Budgets").field("open", &self.meter.open()).finish_non_exhaustive()
    }
}

impl Budgets {
    #[must_use]
    pub fn new(ledger: Arc<dyn Ledger>) -> Self {
        Self { ledger, meter: Arc::default() }
    }

    /// Takes from every bucket or from none.
    ///
    /// # Errors
    /// 429 with the time until it can pass, or 503 where the ledger does not answer.
    pub async fn reserve(&self, id: CallId, buckets: &[Bucket]) -> Result<Reservation, Refusal> {
        let grant = self.ledger.reserve(id, buckets).await?;
        Ok(Reservation::new(id, grant, Arc::clone(&self.ledger), Arc::clone(&self.meter)))
    }

    /// Reservations that are neither settled nor lost: 0 when nothing runs.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.meter.open()
    }

    /// Reservations that were dropped unsettled, ever: a bug where it isn't 0.
    #[must_use]
    pub fn leaked(&self) -> u64 {
        self.meter.leaked()
    }
}
