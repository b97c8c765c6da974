//! What is Redis's own: its clock, its keys, and that it does just as the memory does.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use async_trait::async_trait;
use tollgate::budget::{Clock, Ledger, RedisLedger};

use super::{START_MICROS, Store};
use crate::support::redis::RedisServer;

/// A ledger on a server of its own, with a clock that the test moves.
pub(super) struct OnRedis {
    pub(super) ledger: Arc<RedisLedger>,
    pub(super) clock: Arc<AtomicU64>,
    pub(super) server: RedisServer,
}

impl OnRedis {
    pub(super) async fn new() -> Self {
        let server = RedisServer::start().await;
        let clock = Arc::new(AtomicU64::new(START_MICROS));
        let by = Clock::Given(Arc::clone(&clock));
        let ledger = RedisLedger::with(&server.url(), "{test}:", by).expect("a ledger");
        Self { ledger: Arc::new(ledger), clock, server }
    }
}

#[async_trait]
impl Store for OnRedis {
    fn ledger(&self) -> Arc<dyn Ledger> {
        Arc::clone(&self.ledger) as Arc<dyn Ledger>
    }

    async fn wait_micros(&self, micros: u64) {
        self.clock.fetch_add(micros, Ordering::Relaxed);
    }
}
