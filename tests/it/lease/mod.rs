//! Leases of hot keys: what they save, what they may let in beyond a rate, and that nothing is lost.
//!
//! Time is given: the store's clock and the process's are tokio's, which is paused; but not on a
//! real Redis.

mod bound;
mod on_redis;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use tokio::{
    task::{JoinSet, yield_now},
    time::{advance, sleep},
};
use tollgate::{
    budget::{
        Bucket, Charge, Exhausted, Grant, LeasedLedger, Ledger, LedgerError, Limit, MAX_LEASE,
        Measure, MemoryLedger, Refusal, Scope, Spent, Standing, leased,
    },
    domain::CallId,
};

const MINUTE: u64 = 60_000_000;
const LEASE_MICROS: u64 = 50_000;

/// A store with a way to it: each call is a round trip, and it can be cut off.
struct Remote {
    store: Arc<MemoryLedger>,
    trip: Duration,
    trips: AtomicU64,
    reserves: AtomicU64,
    is_cut: AtomicBool,
}

impl Remote {
    fn new(store: &Arc<MemoryLedger>, trip: Duration) -> Arc<Self> {
        let (trips, reserves, is_cut) = (AtomicU64::new(0), AtomicU64::new(0), false.into());
        Arc::new(Self { store: Arc::clone(store), trip, trips, reserves, is_cut })
    }

    async fn trip(&self) -> Result<(), LedgerError> {
        self.trips.fetch_add(1, Ordering::Relaxed);
        if !self.trip.is_zero() {
            sleep(self.trip).await;
        }
        let is_cut = self.is_cut.load(Ordering::Relaxed);
        if is_cut { Err(LedgerError("it is cut off".to_owned())) } else { Ok(()) }
    }

    fn trips(&self) -> u64 {
        self.trips.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Ledger for Remote {
    async fn reserve(&self, id: CallId, charges: &[Charge]) -> Result<Grant, Refusal> {
        self.reserves.fetch_add(1, Ordering::Relaxed);
        self.trip().await?;
        self.store.reserve(id, charges).await
    }

    async fn depart(&self, id: CallId) -> Result<(), LedgerError> {
        self.trip().await?;
        self.store.depart(id).await
    }

    async fn settle(&self, id: CallId, spent: Spent) -> Result<(), LedgerError> {
        self.trip().await?;
        self.store.settle(id, spent).await
    }

    async fn abandon(&self, ids: &[CallId]) -> Result<(), LedgerError> {
        self.trip().await?;
        self.store.abandon(ids).await
    }

    async fn renew(&self, ids: &[CallId]) -> Result<(), LedgerError> {
        self.trip().await?;
        self.store.renew(ids).await
    }

    async fn standings(&self, buckets: &[&Bucket]) -> Result<Vec<Standing>, LedgerError> {
        self.store.standings(buckets).await
    }
}

/// One process on a store of its own, and a second store that the same calls are charged to
/// without leases.
struct Twins {
    store: Arc<MemoryLedger>,
    remote: Arc<Remote>,
    ledger: LeasedLedger,
    plain: MemoryLedger,
}

impl Twins {
    fn new() -> Self {
        let store = Arc::new(MemoryLedger::new());
        let remote = Remote::new(&store, Duration::ZERO);
        let ledger = LeasedLedger::new(Arc::clone(&remote) as _, MAX_LEASE);
        Self { store, remote, ledger, plain: MemoryLedger::new() }
    }

    async fn reserve(&self, charge: &Charge) -> CallId {
        let (id, charges) = (CallId::generate(), std::slice::from_ref(charge));
        self.plain.reserve(id, charges).await.expect("a grant");
        let grant = self.ledger.reserve(id, charges).await.expect("a grant");
        assert_eq!(grant.standings.len(), 1);
        id
    }

    async fn settle(&self, id: CallId, spent: Spent) {
        self.plain.settle(id, spent).await.expect("settled");
        self.ledger.settle(id, spent).await.expect("settled");
    }

    /// Fills the bucket so far ahead that nothing leaks in vain, and makes its key hot.
    async fn warm(&self, charge: &Charge, ahead: u64) {
        let much = [Charge { bucket: Arc::clone(&charge.bucket), amount: ahead }];
        for ledger in [&self.plain as &dyn Ledger, &self.ledger] {
            let id = CallId::generate();
            ledger.reserve(id, &much).await.expect("a grant");
            ledger.settle(id, Spent::Reserved).await.expect("settled");
        }
        for _ in 0..10 {
            let id = self.reserve(charge).await;
            self.settle(id, Spent::Reserved).await;
        }
    }

    /// Microseconds until the bucket is empty: by the leased store, and by the plain one.
    async fn ahead(&self, charge: &Charge) -> (u64, u64) {
        let (store, plain) = (&*self.store, &self.plain);
        (reset(store, charge).await, reset(plain, charge).await)
    }
}

async fn reset(ledger: &dyn Ledger, charge: &Charge) -> u64 {
    ledger.standings(&[&*charge.bucket]).await.expect("a standing")[0].reset_micros
}

fn rate(measure: Measure, per_minute: u64, burst: u64, amount: u64) -> Charge {
    let scope = Scope::Tier { tier: "t".to_owned() };
    let limit = Limit::Rate { measure, per_minute, burst };
    Charge { bucket: Arc::new(Bucket::new(scope, limit)), amount }
}

/// 1,000 a second.
fn requests() -> Charge {
    rate(Measure::Requests, 60_000, 60_000, 1)
}

/// One a microsecond.
fn tokens(amount: u64) -> Charge {
    rate(Measure::Tokens, MINUTE, MINUTE, amount)
}

const fn actual(tokens: u64) -> Spent {
    Spent::Actual { tokens, micro_usd: 0 }
}

/// Lets time pass, and the tasks do what is due.
async fn wait(micros: u64) {
    advance(Duration::from_micros(micros)).await;
    settle_tasks().await;
}

async fn settle_tasks() {
    for _ in 0..32 {
        yield_now().await;
    }
}

async fn refused(ledger: &dyn Ledger, charge: &Charge) -> Exhausted {
    match ledger.reserve(CallId::generate(), std::slice::from_ref(charge)).await {
        Err(Refusal::Exhausted(exhausted)) => *exhausted,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_requests_in_a_second_cost_less_than_a_hundred_round_trips() {
    let twins = Twins::new();
    let charge = rate(Measure::Requests, 720_000, 720_000, 1);
    for _ in 0..10_000 {
        let id = twins.reserve(&charge).await;
        twins.ledger.depart(id).await.expect("it may leave");
        twins.settle(id, Spent::Reserved).await;
        advance(Duration::from_micros(100)).await;
    }
    wait(60_000).await;
    let trips = twins.remote.trips();
    assert!(trips < 100, "{trips} round trips");
    assert_eq!(twins.ledger.open(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_cold_key_costs_what_it_costs_without_leases() {
    let twins = Twins::new();
    for _ in 0..200 {
        let id = twins.reserve(&requests()).await;
        twins.settle(id, Spent::Reserved).await;
        wait(5_000).await;
    }
    assert_eq!(twins.remote.trips(), 400);
}

#[tokio::test(start_paused = true)]
async fn what_takes_a_slot_or_money_or_much_at_once_is_not_leased() {
    let twins = Twins::new();
    let with = |limit| {
        let scope = Scope::Claim { name: "c".to_owned(), value: "v".to_owned() };
        vec![requests(), Charge { bucket: Arc::new(Bucket::new(scope, limit)), amount: 1 }]
    };
    let (measure, period) = (Measure::MicroUsd, tollgate::budget::Period::Day);
    let money = with(Limit::Window { measure, period, limit: 1_000 });
    let large = vec![rate(Measure::Tokens, MINUTE, MINUTE, 13_000)];
    for charges in [with(Limit::Slots(1_000)), money, large] {
        let before = twins.remote.trips();
        for _ in 0..100 {
            twins.ledger.reserve(CallId::generate(), &charges).await.expect("a grant");
        }
        assert_eq!(twins.remote.trips(), before + 100);
    }
    assert_eq!(twins.ledger.open(), 0);
    let inner: Arc<dyn Ledger> = Arc::new(MemoryLedger::new());
    assert!(Arc::ptr_eq(&leased(Arc::clone(&inner), 0), &inner), "0 is off");
}

/// Fifty calls at once, on a store so far away. Says how many of them it saw, and how many leases
/// served.
async fn fifty_at_once(trip: Duration) -> (u64, usize) {
    let remote = Remote::new(&Arc::new(MemoryLedger::new()), trip);
    let ledger = Arc::new(LeasedLedger::new(Arc::clone(&remote) as _, MAX_LEASE));
    let mut calls = JoinSet::new();
    for _ in 0..50 {
        let ledger = Arc::clone(&ledger);
        calls.spawn(async move { ledger.reserve(CallId::generate(), &[requests()]).await.is_ok() });
    }
    assert!(calls.join_all().await.into_iter().all(|is_in| is_in));
    (remote.reserves.load(Ordering::Relaxed), ledger.open())
}

#[tokio::test(start_paused = true)]
async fn one_refill_is_under_way_for_each_key() {
    // Ten while the key was cold, and a lease for forty.
    assert_eq!(fifty_at_once(Duration::from_millis(2)).await, (11, 40));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_slower_than_a_lease_lasts_is_asked_directly() {
    assert_eq!(fifty_at_once(2 * MAX_LEASE).await, (51, 0));
}

#[tokio::test(start_paused = true)]
async fn what_is_unused_comes_back() {
    let twins = Twins::new();
    let charge = requests();
    twins.warm(&charge, 1_000).await;
    for _ in 0..7 {
        let id = twins.reserve(&charge).await;
        twins.settle(id, Spent::Reserved).await;
    }
    let (ahead, plain) = twins.ahead(&charge).await;
    assert_eq!(ahead, plain + LEASE_MICROS - 7_000, "the lease is taken");
    wait(51_000).await;
    let (ahead, plain) = twins.ahead(&charge).await;
    assert_eq!(ahead, plain, "43 of 50 came back");
}

#[tokio::test(start_paused = true)]
async fn a_grant_says_how_the_bucket_stands_without_asking() {
    let twins = Twins::new();
    let charge = [requests()];
    twins.warm(&charge[0], 1_000).await;
    for left in (0..30).rev() {
        let id = CallId::generate();
        let told = twins.ledger.reserve(id, &charge).await.expect("a grant").standings;
        let plain = twins.plain.reserve(id, &charge).await.expect("a grant").standings;
        assert_eq!(told, plain, "with {left} to come");
        wait(1_000).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_tokens_gave_back_and_overspent_is_told_to_the_store() {
    let twins = Twins::new();
    let charge = tokens(8_000);
    twins.warm(&tokens(8_000), 20_000_000).await;
    let mut open = Vec::new();
    for _ in 0..5 {
        open.push(twins.reserve(&charge).await);
    }
    // While the lease serves, what one gives back serves the next.
    let before = twins.remote.reserves.load(Ordering::Relaxed);
    twins.settle(open.pop().expect("a call"), Spent::Nothing).await;
    open.push(twins.reserve(&charge).await);
    open.push(twins.reserve(&charge).await);
    assert_eq!(twins.remote.reserves.load(Ordering::Relaxed), before);
    // Its calls hold more than is left of it: it waits for them, and is kept alive for them.
    for _ in 0..3 {
        wait(5_000_000).await;
        twins.plain.renew(&open).await.expect("renewed");
        twins.ledger.renew(&open).await.expect("renewed");
    }
    for (i, id) in open.into_iter().enumerate() {
        twins.settle(id, actual(if i == 0 { 100_000 } else { 1_000 })).await;
        twins.settle(id, actual(9)).await;
    }
    let (ahead, plain) = twins.ahead(&charge).await;
    assert!(plain > 0);
    // 90 of the first are debt, for the lease had 2 left; all that the others gave back came back.
    assert_eq!(ahead, plain);
}

#[tokio::test(start_paused = true)]
async fn overspending_is_a_debt_even_where_the_lease_has_ended_and_the_bucket_is_exhausted() {
    let twins = Twins::new();
    let charge = requests();
    twins.warm(&charge, 100).await;
    let charge = tokens(100);
    twins.warm(&charge, 50_000_000).await;
    let id = twins.reserve(&charge).await;
    wait(60_000).await;
    let all = tokens(9_000_000);
    let other = twins.reserve(&all).await;
    twins.settle(other, Spent::Reserved).await;
    twins.settle(id, actual(2 * MINUTE)).await;
    let (ahead, plain) = twins.ahead(&charge).await;
    assert_eq!(ahead, plain);
    let short = refused(&twins.ledger, &charge).await;
    assert_eq!(short.retry_after_micros, Some(plain + 100 - MINUTE));
}

#[tokio::test(start_paused = true)]
async fn an_exhausted_key_is_refused_with_a_time_that_is_true() {
    let twins = Twins::new();
    let charge = requests();
    let mut admitted = 0;
    let one = std::slice::from_ref(&charge);
    while twins.ledger.reserve(CallId::generate(), one).await.is_ok() {
        admitted += 1;
    }
    assert_eq!(admitted, 60_000, "the burst, whole, and not one more");
    for _ in 0..20 {
        let micros = refused(&twins.ledger, &charge).await.retry_after_micros.expect("a time");
        wait(micros - 1).await;
        assert_eq!(refused(&twins.ledger, &charge).await.retry_after_micros, Some(1));
        wait(1).await;
        twins.ledger.reserve(CallId::generate(), one).await.expect("a grant");
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_is_lost_takes_no_more_than_its_lease_with_it() {
    let twins = Twins::new();
    let charge = requests();
    twins.warm(&charge, 10_000).await;
    for _ in 0..20 {
        let id = twins.reserve(&charge).await;
        twins.settle(id, Spent::Reserved).await;
    }
    twins.remote.is_cut.store(true, Ordering::Relaxed);
    wait(2_000_000).await;
    let (ahead, plain) = twins.ahead(&charge).await;
    assert_eq!(ahead - plain, LEASE_MICROS - 20_000, "what was left of it");
    // Nor does it let anyone in by itself.
    let alone = twins.ledger.reserve(CallId::generate(), std::slice::from_ref(&charge)).await;
    assert!(matches!(alone, Err(Refusal::Store(_))), "{alone:?}");
    wait(MINUTE).await;
    assert_eq!(twins.ahead(&charge).await, (0, 0), "and it heals");
}

#[tokio::test(start_paused = true)]
async fn a_leased_call_is_reserved_once_and_expires_where_nobody_renews_it() {
    let twins = Twins::new();
    let charge = requests();
    twins.warm(&charge, 1_000).await;
    let (gone, stays) = (twins.reserve(&charge).await, twins.reserve(&charge).await);
    let again = twins.ledger.reserve(gone, std::slice::from_ref(&charge)).await;
    assert!(matches!(again, Err(Refusal::Store(_))), "{again:?}");
    for _ in 0..4 {
        wait(20_000_000).await;
        twins.ledger.renew(&[stays]).await.expect("renewed");
    }
    assert_eq!(twins.ledger.open(), 1);
    assert!(twins.ledger.depart(gone).await.is_err(), "it must not leave now");
    twins.ledger.depart(stays).await.expect("it may leave");
    twins.ledger.settle(stays, Spent::Reserved).await.expect("settled");
    twins.ledger.settle(stays, Spent::Reserved).await.expect("settled once");
    assert_eq!(twins.ledger.open(), 0);
}
