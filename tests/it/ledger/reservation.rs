//! What a reservation does with a ledger.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use async_trait::async_trait;
use tollgate::{
    budget::{
        Bucket, Budgets, Charge, Grant, Ledger, LedgerError, MemoryLedger, Period, Refusal, Spent,
        Standing,
    },
    domain::{CallId, Kind},
};

use super::{slots, usd_per_day};

#[tokio::test(start_paused = true)]
async fn settled_reservations_leave_nothing_open() {
    let budgets = Budgets::new(Arc::new(MemoryLedger::new()));
    let slot = || Arc::from([slots("m", 1)]);
    let (first, _) = budgets.reserve(CallId::generate(), slot()).await.expect("a grant");
    assert_eq!(budgets.open(), 1);
    first.settle(Spent::Reserved).await;
    assert_eq!((budgets.open(), budgets.leaked()), (0, 0));
    let (second, _) = budgets.reserve(CallId::generate(), slot()).await.expect("a grant");
    second.settle(Spent::Reserved).await;
}

#[tokio::test(start_paused = true)]
async fn a_reservation_that_is_dropped_unsettled_is_counted_and_charged_if_it_had_left() {
    for (leaves, used) in [(false, 0), (true, 10)] {
        let budgets = Budgets::new(Arc::new(MemoryLedger::new()));
        let charges: Arc<[Charge]> = Arc::from([slots("m", 1), usd_per_day(100, 10)]);
        let (mut dropped, _) =
            budgets.reserve(CallId::generate(), charges.clone()).await.expect("a grant");
        if leaves {
            dropped.depart().await.expect("departed");
        }
        drop(dropped);
        assert_eq!((budgets.open(), budgets.leaked()), (0, 1));
        tokio::task::yield_now().await;
        let buckets = [&*charges[0].bucket, &*charges[1].bucket];
        let standings = budgets.standings(&buckets).await.expect("standings");
        assert_eq!((standings[0].used, standings[1].used), (0, used));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_open_is_kept_alive() {
    let budgets = Budgets::new(Arc::new(MemoryLedger::new()));
    let charges: Arc<[Charge]> = Arc::from([slots("m", 1)]);
    let (open, _) = budgets.reserve(CallId::generate(), charges.clone()).await.expect("a grant");
    for _ in 0..10 {
        tokio::time::advance(tollgate::budget::RESERVATION_TTL / 2).await;
        budgets.renew().await.expect("renewed");
        assert!(budgets.reserve(CallId::generate(), charges.clone()).await.is_err());
    }
    open.settle(Spent::Reserved).await;
}

#[tokio::test]
async fn of_all_gateways_on_a_store_one_tells_of_a_bust_once_in_its_window() {
    let clock = Arc::new(AtomicU64::new(super::START_MICROS));
    let ledger: Arc<dyn Ledger> = Arc::new(MemoryLedger::by(Arc::clone(&clock)));
    let gateways = [Budgets::new(Arc::clone(&ledger)), Budgets::new(ledger)];
    let (mine, other) = (usd_per_day(5, 1).bucket, slots("m", 1).bucket);
    for _ in 0..2 {
        assert!(gateways[0].is_first_bust(&mine, Period::Day).await);
        for gateway in &gateways {
            assert!(!gateway.is_first_bust(&mine, Period::Day).await);
        }
        assert!(gateways[1].is_first_bust(&other, Period::Day).await, "another bucket's");
        clock.fetch_add(24 * super::HOUR, Ordering::Relaxed);
    }
    assert!(Budgets::new(Arc::new(Away)).is_first_bust(&mine, Period::Day).await);
}

/// A store that is away.
struct Away;

fn away() -> LedgerError {
    LedgerError("connection refused to 10.0.0.7".to_owned())
}

#[async_trait]
impl Ledger for Away {
    async fn reserve(&self, _: CallId, _: &[Charge]) -> Result<Grant, Refusal> {
        Err(away().into())
    }

    async fn depart(&self, _: CallId) -> Result<(), LedgerError> {
        Err(away())
    }

    async fn settle(&self, _: CallId, _: Spent) -> Result<(), LedgerError> {
        Err(away())
    }

    async fn abandon(&self, _: &[CallId]) -> Result<(), LedgerError> {
        Err(away())
    }

    async fn renew(&self, _: &[CallId]) -> Result<(), LedgerError> {
        Err(away())
    }

    async fn standings(&self, _: &[&Bucket]) -> Result<Vec<Standing>, LedgerError> {
        Err(away())
    }
}

#[tokio::test]
async fn a_store_that_is_away_lets_nobody_in_and_tells_nobody_where_it_is() {
    let refusal = Budgets::new(Arc::new(Away)).reserve(CallId::generate(), Arc::from([])).await;
    let denial = refusal.expect_err("a refusal").to_denial();
    assert_eq!(denial.kind, Kind::BudgetUnavailable);
    assert!(denial.retry_after_ms.is_some());
    assert!(!denial.message.contains("10.0.0.7"), "{}", denial.message);
}
