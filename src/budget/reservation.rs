//! A reservation: something taken that must be settled.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{Grant, Ledger};
use crate::domain::CallId;

/// What a call holds of its budgets. Settle it: dropping one unsettled is a bug, which is
/// counted and logged, and mended where a runtime is there to mend it.
pub struct Reservation {
    id: CallId,
    grant: Grant,
    ledger: Arc<dyn Ledger>,
    meter: Arc<ReservationMeter>,
    settled: bool,
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Counts reservations.
#[derive(Debug, Default)]
pub struct ReservationMeter {
    open: AtomicU64,
    leaked: AtomicU64,
}

impl ReservationMeter {
    #[must_use]
    pub fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    #[must_use]
    pub fn leaked(&self) -> u64 {
        self.leaked.load(Ordering::Relaxed)
    }
}

impl Reservation {
    pub(super) fn new(
        id: CallId,
        grant: Grant,
        ledger: Arc<dyn Ledger>,
        meter: Arc<ReservationMeter>,
    ) -> Self {
        meter.open.fetch_add(1, Ordering::Relaxed);
        Self { id, grant, ledger, meter, settled: false }
    }

    #[must_use]
    pub const fn grant(&self) -> &Grant {
        &self.grant
    }

    /// Gives back what the call no longer holds.
    pub async fn settle(mut self) {
        self.settled = true;
        if let Err(error) = self.ledger.settle(self.id).await {
            tracing::error!(call_id = %self.id, %error, "a reservation was not settled and will expire");
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.meter.open.fetch_sub(1, Ordering::Relaxed);
        if self.settled {
            return;
        }
        self.meter.leaked.fetch_add(1, Ordering::Relaxed);
        tracing::error!(call_id = %self.id, "a reservation was dropped unsettled: a bug");
        let (ledger, id) = (Arc::clone(&self.ledger), self.id);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { ledger.settle(id).await });
        }
    }
}
