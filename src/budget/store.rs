//! Which store a configuration asks for.

use std::{fmt, sync::Arc};

use super::{FailoverLedger, Ledger, LedgerError, LedgerHealth, MemoryLedger, RedisLedger};
use crate::config::{BudgetConfig, LedgerKind, OnStoreFailure};

/// A ledger, and how its store is doing, where it has one that can fail.
#[derive(Clone)]
pub struct LedgerStore {
    pub ledger: Arc<dyn Ledger>,
    pub health: Option<Arc<LedgerHealth>>,
}

impl fmt::Debug for LedgerStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LedgerStore").field("health", &self.health).finish_non_exhaustive()
    }
}

/// The ledger that `config` asks for. Waits for no store: one that is away is found by the calls.
/// To be called on a runtime.
///
/// # Errors
/// Where `budget.redis_url` is none, or missing.
pub fn open_ledger(config: &BudgetConfig) -> Result<LedgerStore, LedgerError> {
    let Some(store) = shared_store(config)? else {
        return Ok(LedgerStore { ledger: Arc::new(MemoryLedger::new()), health: None });
    };
    let store = Arc::new(store);
    store.warm();
    let health = Some(Arc::clone(store.health()));
    let ledger = match config.on_store_failure {
        OnStoreFailure::Deny => FailoverLedger::deny(store),
        OnStoreFailure::StaticShare => FailoverLedger::share(store, config.replicas),
    };
    Ok(LedgerStore { ledger: Arc::new(ledger), health })
}

/// Would [`open_ledger`] take this configuration?
///
/// # Errors
/// As [`open_ledger`] gives them.
pub fn check_ledger(config: &BudgetConfig) -> Result<(), LedgerError> {
    shared_store(config).map(drop)
}

fn shared_store(config: &BudgetConfig) -> Result<Option<RedisLedger>, LedgerError> {
    match (config.store, &config.redis_url) {
        (LedgerKind::Memory, _) => Ok(None),
        (LedgerKind::Redis, Some(url)) => RedisLedger::new(url).map(Some),
        (LedgerKind::Redis, None) => Err(LedgerError("there is no URL of it".to_owned())),
    }
}
