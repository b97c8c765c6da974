//! Leases over a store of memory: while keys are cold, nothing is different.

use std::sync::Arc;

use async_trait::async_trait;
use tollgate::budget::{LeasedLedger, Ledger, MAX_LEASE};

use super::{Memory, Store};

pub(super) struct Leased {
    ledger: Arc<LeasedLedger>,
    memory: Memory,
}

impl Leased {
    pub(super) fn new() -> Self {
        let memory = Memory::new();
        Self { ledger: Arc::new(LeasedLedger::new(memory.ledger(), MAX_LEASE)), memory }
    }
}

#[async_trait]
impl Store for Leased {
    fn ledger(&self) -> Arc<dyn Ledger> {
        Arc::clone(&self.ledger) as Arc<dyn Ledger>
    }

    async fn wait_micros(&self, micros: u64) {
        self.memory.wait_micros(micros).await;
    }
}
