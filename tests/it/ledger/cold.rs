//! Leases over another store: while keys are cold, nothing is different.

use std::sync::Arc;

use async_trait::async_trait;
use tollgate::budget::{LeasedLedger, Ledger, MAX_LEASE};

use super::Store;

pub(super) struct Leased<S> {
    ledger: Arc<LeasedLedger>,
    store: S,
}

impl<S: Store> Leased<S> {
    pub(super) fn of(store: S) -> Self {
        Self { ledger: Arc::new(LeasedLedger::new(store.ledger(), MAX_LEASE)), store }
    }
}

#[async_trait]
impl<S: Store> Store for Leased<S> {
    fn ledger(&self) -> Arc<dyn Ledger> {
        Arc::clone(&self.ledger) as Arc<dyn Ledger>
    }

    async fn wait_micros(&self, micros: u64) {
        self.store.wait_micros(micros).await;
    }
}
