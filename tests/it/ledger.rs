//! What every store of budgets must do, and what a reservation does with it.
//!
//! The suite knows a [`Ledger`] and a way to let time pass. A further store is one more line at
//! `contract!`.

use std::{collections::HashMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use proptest::prelude::*;
use tokio::task::JoinSet;
use tollgate::{
    budget::{
        Bucket, BucketKey, Budgets, Grant, Ledger, LedgerError, Limit, MemoryLedger, Refusal,
    },
    domain::{CallId, Kind},
};

/// A ledger to be tested, and its clock.
#[async_trait]
trait Store: Send + Sync {
    fn ledger(&self) -> Arc<dyn Ledger>;
    async fn wait_micros(&self, micros: u64);
}

/// Its clock is tokio's, which the tests pause.
struct Memory(Arc<MemoryLedger>);

impl Memory {
    fn new() -> Self {
        Self(Arc::new(MemoryLedger::new()))
    }
}

#[async_trait]
impl Store for Memory {
    fn ledger(&self) -> Arc<dyn Ledger> {
        Arc::clone(&self.0) as Arc<dyn Ledger>
    }

    async fn wait_micros(&self, micros: u64) {
        tokio::time::advance(Duration::from_micros(micros)).await;
    }
}

fn bucket(model: &str, limit: Limit) -> Bucket {
    let key = BucketKey { tier: "t".to_owned(), model: model.to_owned(), limit: limit.kind() };
    Bucket::new(key, limit)
}

fn requests(model: &str, per_minute: u64) -> Bucket {
    bucket(model, Limit::RequestsPerMinute(per_minute))
}

fn slots(model: &str, concurrent: u32) -> Bucket {
    bucket(model, Limit::Concurrent(concurrent))
}

async fn reserve(store: &impl Store, buckets: &[Bucket]) -> Result<(CallId, Grant), Refusal> {
    let id = CallId::generate();
    store.ledger().reserve(id, buckets).await.map(|grant| (id, grant))
}

/// How long it says to wait; panics if it lets the call in.
async fn refused_for(store: &impl Store, buckets: &[Bucket]) -> Option<u64> {
    match reserve(store, buckets).await {
        Err(Refusal::Exhausted { retry_after_micros, .. }) => retry_after_micros,
        other => panic!("{other:?}"),
    }
}

async fn remaining(store: &impl Store, buckets: &[Bucket]) -> u64 {
    let (id, grant) = reserve(store, buckets).await.expect("a grant");
    store.ledger().settle(id).await.expect("settled");
    grant.requests.expect("there is a requests bucket").remaining
}

async fn a_burst_is_let_in_and_not_one_more(store: impl Store) {
    let bucket = [requests("m", 5)];
    for left in (0..5).rev() {
        let (_, grant) = reserve(&store, &bucket).await.expect("a grant");
        let standing = grant.requests.expect("a standing");
        assert_eq!((standing.limit, standing.remaining), (5, left));
        assert_eq!(standing.reset_micros, (5 - left) * 12_000_000);
    }
    assert_eq!(refused_for(&store, &bucket).await, Some(12_000_000));
}

async fn a_refusal_says_truly_when_to_come_back(store: impl Store) {
    // Seven a minute is no whole number of microseconds.
    let bucket = [requests("m", 7)];
    for _ in 0..7 {
        reserve(&store, &bucket).await.expect("a grant");
    }
    store.wait_micros(1_234_567).await;
    for _ in 0..10 {
        let wait = refused_for(&store, &bucket).await.expect("a time");
        store.wait_micros(wait - 1).await;
        assert_eq!(refused_for(&store, &bucket).await, Some(1), "a microsecond early");
        store.wait_micros(1).await;
        reserve(&store, &bucket).await.expect("just in time");
    }
}

async fn a_full_minute_fills_a_bucket_again_and_not_more(store: impl Store) {
    let bucket = [requests("m", 3)];
    for _ in 0..3 {
        reserve(&store, &bucket).await.expect("a grant");
    }
    store.wait_micros(3_600_000_000).await;
    for _ in 0..3 {
        reserve(&store, &bucket).await.expect("a grant");
    }
    refused_for(&store, &bucket).await;
}

async fn it_takes_from_all_buckets_or_from_none(store: impl Store) {
    let (wide, narrow, slot) = (requests("wide", 10), requests("narrow", 1), slots("wide", 1));
    let all = [wide.clone(), narrow.clone(), slot.clone()];
    let (id, _) = reserve(&store, &all).await.expect("a grant");

    // Whichever is short, and wherever it stands.
    for order in [[0, 1, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        refused_for(&store, &order.map(|i| all[i].clone())).await;
    }
    store.ledger().settle(id).await.expect("settled");
    assert!(refused_for(&store, &all).await.is_some(), "narrow is used up still");
    let (_, grant) = reserve(&store, &[wide, slot.clone()]).await.expect("a grant");
    assert_eq!(grant.requests.expect("a standing").remaining, 8, "the refused took nothing");
    assert_eq!(refused_for(&store, &[slot]).await, None);
}

async fn a_refusal_names_the_bucket_and_how_requests_stand(store: impl Store) {
    let buckets = [requests("m", 10), slots("m", 1)];
    reserve(&store, &buckets).await.expect("a grant");
    let refusal = reserve(&store, &buckets).await.expect_err("a refusal");
    assert_eq!(refusal.standing().expect("a standing").remaining, 9);
    let denial = refusal.to_denial();
    assert_eq!(denial.kind, Kind::ConcurrencyLimited);
    assert_eq!(denial.param.as_deref(), Some("model"));

    let bucket = [requests("n", 1)];
    reserve(&store, &bucket).await.expect("a grant");
    let denial = reserve(&store, &bucket).await.expect_err("a refusal").to_denial();
    assert_eq!((denial.kind, denial.retry_after_ms), (Kind::RateLimited, Some(60_000)));
}

async fn a_settled_call_gives_its_slot_back_and_keeps_its_request(store: impl Store) {
    let buckets = [requests("m", 10), slots("m", 2)];
    let (first, _) = reserve(&store, &buckets).await.expect("a grant");
    let (second, _) = reserve(&store, &buckets).await.expect("a grant");
    assert_eq!(refused_for(&store, &buckets).await, None, "nobody knows when a call ends");
    store.ledger().settle(first).await.expect("settled");
    assert_eq!(remaining(&store, &buckets).await, 7);
    store.ledger().settle(second).await.expect("settled");
}

async fn settling_twice_frees_one_slot(store: impl Store) {
    let bucket = [slots("m", 2)];
    let (first, _) = reserve(&store, &bucket).await.expect("a grant");
    reserve(&store, &bucket).await.expect("a grant");
    for _ in 0..3 {
        store.ledger().settle(first).await.expect("settled");
    }
    store.ledger().settle(CallId::generate()).await.expect("an unknown id is settled already");
    reserve(&store, &bucket).await.expect("the first one's slot");
    assert_eq!(refused_for(&store, &bucket).await, None);
}

async fn one_id_is_reserved_once_whatever_its_buckets(store: impl Store) {
    for buckets in [vec![requests("m", 5)], vec![slots("m", 5)], vec![]] {
        let id = CallId::generate();
        store.ledger().reserve(id, &buckets).await.expect("a grant");
        let again = store.ledger().reserve(id, &buckets).await;
        assert!(matches!(again, Err(Refusal::Store(_))), "{buckets:?}: {again:?}");
        store.ledger().settle(id).await.expect("settled");
    }
    assert_eq!(remaining(&store, &[requests("m", 5)]).await, 3, "the second took nothing");
}

async fn buckets_are_apart_by_tier_model_and_limit(store: impl Store) {
    let mut other_tier = requests("m", 1);
    other_tier.key.tier = "other".to_owned();
    for bucket in [requests("m", 1), requests("n", 1), other_tier, slots("m", 1)] {
        reserve(&store, std::slice::from_ref(&bucket)).await.expect("a bucket of its own");
        refused_for(&store, &[bucket]).await;
    }
}

async fn no_race_overspends(store: impl Store) {
    let (ledger, mut calls) = (store.ledger(), JoinSet::new());
    for _ in 0..64 {
        let ledger = Arc::clone(&ledger);
        calls.spawn(async move {
            ledger.reserve(CallId::generate(), &[requests("m", 40), slots("m", 10)]).await.is_ok()
        });
    }
    let let_in = calls.join_all().await.into_iter().filter(|is_in| *is_in).count();
    assert_eq!(let_in, 10);
}

async fn a_limit_that_is_lowered_holds_at_once(store: impl Store) {
    for _ in 0..60 {
        reserve(&store, &[requests("m", 60)]).await.expect("a grant");
    }
    store.wait_micros(30_000_000).await;
    let wait = refused_for(&store, &[requests("m", 1)]).await.expect("a time");
    assert!((1..=60_000_000).contains(&wait), "{wait}");
    store.wait_micros(wait).await;
    reserve(&store, &[requests("m", 1)]).await.expect("a grant");
}

macro_rules! contract {
    ($module:ident, $store:expr, [$($test:ident)*]) => {
        mod $module {
            $(
                #[tokio::test(start_paused = true)]
                async fn $test() {
                    super::$test($store).await;
                }
            )*
        }
    };
}

contract!(memory, super::Memory::new(), [
    a_burst_is_let_in_and_not_one_more
    a_refusal_says_truly_when_to_come_back
    a_full_minute_fills_a_bucket_again_and_not_more
    it_takes_from_all_buckets_or_from_none
    a_refusal_names_the_bucket_and_how_requests_stand
    a_settled_call_gives_its_slot_back_and_keeps_its_request
    settling_twice_frees_one_slot
    one_id_is_reserved_once_whatever_its_buckets
    buckets_are_apart_by_tier_model_and_limit
    no_race_overspends
    a_limit_that_is_lowered_holds_at_once
]);

/// Over any interval: admitted ≤ burst + rate · t. Whoever is refused is let in just when it was
/// told, if nobody comes before.
async fn arrive(per_minute: u64, pauses_micros: &[u64]) {
    let store = Memory::new();
    let bucket = [requests("m", per_minute)];
    let (mut now, mut admitted) = (0_u64, Vec::new());
    for pause in pauses_micros {
        store.wait_micros(*pause).await;
        now += pause;
        match reserve(&store, &bucket).await {
            Ok(_) => admitted.push(now),
            Err(Refusal::Exhausted { retry_after_micros: Some(wait), .. }) => {
                assert!((1..=60_000_000_u64.div_ceil(per_minute)).contains(&wait), "{wait}");
            }
            Err(other) => panic!("{other}"),
        }
    }
    for (i, from) in admitted.iter().enumerate() {
        for (count, to) in (1_u64..).zip(&admitted[i..]) {
            // In units of a request times a minute, so that nothing is rounded.
            let most = per_minute * 60_000_000 + per_minute * (to - from);
            assert!(count * 60_000_000 <= most, "{count} within {} µs", to - from);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_interval_admits_more_than_the_burst_and_the_rate(
        per_minute in prop_oneof![1_u64..20, 20_u64..2_000, Just(60_000_000), Just(999_999_999)],
        pauses in prop::collection::vec(
            prop_oneof![Just(0_u64), 0_u64..1_000, 0_u64..5_000_000, 0_u64..100_000_000],
            1..150,
        ),
    ) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(arrive(per_minute, &pauses));
    }
}

#[tokio::test(start_paused = true)]
async fn settled_reservations_leave_nothing_open() {
    let budgets = Budgets::new(Arc::new(MemoryLedger::new()));
    let first = budgets.reserve(CallId::generate(), &[slots("m", 1)]).await.expect("a grant");
    assert_eq!(budgets.open(), 1);
    first.settle().await;
    assert_eq!((budgets.open(), budgets.leaked()), (0, 0));
    let second = budgets.reserve(CallId::generate(), &[slots("m", 1)]).await.expect("a grant");
    second.settle().await;
}

#[tokio::test(start_paused = true)]
async fn a_reservation_that_is_dropped_unsettled_is_counted_and_its_slot_comes_back() {
    let budgets = Budgets::new(Arc::new(MemoryLedger::new()));
    let slot = [slots("m", 1)];
    drop(budgets.reserve(CallId::generate(), &slot).await.expect("a grant"));
    assert_eq!((budgets.open(), budgets.leaked()), (0, 1));
    tokio::task::yield_now().await;
    budgets.reserve(CallId::generate(), &slot).await.expect("a grant").settle().await;
    assert_eq!((budgets.open(), budgets.leaked()), (0, 1));
}

/// A store that is away.
struct Away;

#[async_trait]
impl Ledger for Away {
    async fn reserve(&self, _: CallId, _: &[Bucket]) -> Result<Grant, Refusal> {
        Err(LedgerError("connection refused to 10.0.0.7".to_owned()).into())
    }

    async fn settle(&self, _: CallId) -> Result<(), LedgerError> {
        Err(LedgerError("connection refused to 10.0.0.7".to_owned()))
    }
}

#[tokio::test]
async fn a_store_that_is_away_lets_nobody_in_and_tells_nobody_where_it_is() {
    let refusal = Budgets::new(Arc::new(Away)).reserve(CallId::generate(), &[]).await;
    let denial = refusal.expect_err("a refusal").to_denial();
    assert_eq!(denial.kind, Kind::Overloaded);
    assert!(denial.retry_after_ms.is_some());
    assert!(!denial.message.contains("10.0.0.7"), "{}", denial.message);
}

#[tokio::test]
async fn the_most_specific_limit_wins_whole() {
    use tollgate::{budget::TierTable, domain::Caller};
    let tiers: HashMap<String, Vec<tollgate::config::TierConfig>> = toml::from_str(
        r#"
        [[tiers]]
        name = "pro"
        [[tiers.limits]]
        model = "*"
        requests_per_minute = 10
        concurrent = 2
        [[tiers.limits]]
        model = "m"
        requests_per_minute = 3
        [[tiers]]
        name = "free"
        "#,
    )
    .expect("tiers");
    let table = TierTable::new(&tiers["tiers"]);
    let caller = |tier: &str| Caller {
        subject: "alice".to_owned(),
        issuer: "i".to_owned(),
        tier: tier.to_owned(),
        capabilities: tollgate::domain::CapabilitySet::default(),
        agent: None,
        trust: tollgate::domain::TrustLevel::L0,
        extra: std::collections::BTreeMap::new(),
    };
    let limits = |tier: &str, model: &str| {
        let buckets = table.buckets(&caller(tier), model).expect("a known tier");
        buckets.into_iter().map(|bucket| bucket.limit).collect::<Vec<_>>()
    };
    assert_eq!(limits("pro", "m"), [Limit::RequestsPerMinute(3)]);
    assert_eq!(limits("pro", "other"), [Limit::RequestsPerMinute(10), Limit::Concurrent(2)]);
    assert_eq!(limits("free", "m"), [], "a tier without limits has none");
    for unknown in ["", "*", "PRO", "pro\n"] {
        let denial = table.buckets(&caller(unknown), "m").expect_err("a denial");
        assert_eq!(denial.kind, Kind::UnknownTier);
        assert!(!denial.message.contains('\n'));
    }
}
