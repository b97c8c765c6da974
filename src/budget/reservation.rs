//! A reservation: something taken that must be settled.

use std::{
    collections::HashSet,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{Ledger, LedgerError, Spent};
use crate::domain::CallId;

/// What a call holds of its budgets. Settle it: dropping one unsettled is a bug, which is
/// counted and logged, and mended where a runtime is there to mend it.
pub struct Reservation {
    id: CallId,
    ledger: Arc<dyn Ledger>,
    open: Arc<OpenReservations>,
    has_left: bool,
    settled: bool,
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The reservations of this process that are neither settled nor lost: they are renewed.
#[derive(Debug, Default)]
pub struct OpenReservations {
    ids: Mutex<HashSet<CallId>>,
    leaked: AtomicU64,
}

impl OpenReservations {
    /// 0 when nothing runs.
    #[must_use]
    pub fn count(&self) -> usize {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    #[must_use]
    pub fn ids(&self) -> Vec<CallId> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }

    /// Reservations that were dropped unsettled, ever: a bug where it isn't 0.
    #[must_use]
    pub fn leaked(&self) -> u64 {
        self.leaked.load(Ordering::Relaxed)
    }

    fn add(&self, id: CallId) {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
    }

    fn remove(&self, id: CallId) {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }
}

impl Reservation {
    pub(super) fn new(id: CallId, ledger: Arc<dyn Ledger>, open: Arc<OpenReservations>) -> Self {
        open.add(id);
        Self { id, ledger, open, has_left: false, settled: false }
    }

    #[must_use]
    pub const fn has_left(&self) -> bool {
        self.has_left
    }

    /// The call is about to leave: whatever becomes of this process, it is charged from now on.
    ///
    /// # Errors
    /// Where the store does not answer: then it must not leave.
    pub async fn depart(&mut self) -> Result<(), LedgerError> {
        self.ledger.depart(self.id).await?;
        self.has_left = true;
        Ok(())
    }

    /// Charges what was spent, and gives back the rest.
    pub async fn settle(mut self, spent: Spent) {
        self.settled = true;
        if let Err(error) = self.ledger.settle(self.id, spent).await {
            tracing::error!(call_id = %self.id, %error, "a reservation was not settled and will expire");
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.open.remove(self.id);
        if self.settled {
            return;
        }
        self.open.leaked.fetch_add(1, Ordering::Relaxed);
        tracing::error!(call_id = %self.id, "a reservation was dropped unsettled: a bug");
        let (ledger, id) = (Arc::clone(&self.ledger), self.id);
        let spent = if self.has_left { Spent::Reserved } else { Spent::Nothing };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { ledger.settle(id, spent).await });
        }
    }
}
