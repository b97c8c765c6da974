//! What is Redis's own: its clock, its keys, and that it does just as the memory does.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use async_trait::async_trait;
use proptest::{
    prelude::*,
    strategy::ValueTree as _,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use tollgate::{
    budget::{
        Bucket, Charge, Clock, Ledger, Limit, Measure, MemoryLedger, Period, RedisLedger, Refusal,
        Spent,
    },
    domain::CallId,
};

use super::{
    HOUR, MINUTE, START_MICROS, Store, actual, charge, requests, settle, slots, standing, take,
    tokens, usd_per_day, window,
};
use crate::support::redis::{PASSWORD, RedisServer};

/// A ledger on a server of its own, with a clock that the test moves.
pub(super) struct OnRedis {
    pub(super) ledger: Arc<RedisLedger>,
    pub(super) clock: Arc<AtomicU64>,
    pub(super) server: RedisServer,
}

impl OnRedis {
    pub(super) async fn new() -> Self {
        Self::on(RedisServer::start().await)
    }

    fn on(server: RedisServer) -> Self {
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

/// What is done to both ledgers.
#[derive(Debug, Clone)]
enum Act {
    Reserve(Vec<(usize, u64)>),
    Depart(usize),
    Settle(usize, Spent),
    Renew(Vec<usize>),
    /// A clock may step back.
    Step(i64),
}

const LIMITS: [Limit; 9] = [
    Limit::Rate { measure: Measure::Requests, per_minute: 7, burst: 7 },
    Limit::Rate { measure: Measure::Tokens, per_minute: 700, burst: 300 },
    Limit::Rate { measure: Measure::Tokens, per_minute: 59_999_999, burst: 1_000_000_000_000 },
    Limit::Rate { measure: Measure::Tokens, per_minute: 1, burst: 1_000 },
    Limit::Slots(2),
    Limit::Window { measure: Measure::Tokens, period: Period::Hour, limit: 500 },
    Limit::Window { measure: Measure::Tokens, period: Period::Day, limit: 2_000 },
    Limit::Window { measure: Measure::MicroUsd, period: Period::Day, limit: 900 },
    Limit::Window { measure: Measure::MicroUsd, period: Period::Month, limit: 5_000 },
];

fn spent() -> impl Strategy<Value = Spent> {
    prop_oneof![
        Just(Spent::Nothing),
        Just(Spent::Reserved),
        (0..400_u64, 0..900_u64).prop_map(|(tokens, usd)| actual(tokens, usd)),
        (0..5_000_u64, 0..9_000_u64).prop_map(|(tokens, usd)| actual(tokens, usd)),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    let charge = (0..LIMITS.len(), prop_oneof![Just(1_u64), 1..400_u64, 300..1_200_u64]);
    let micros = prop_oneof![
        Just(1_i64),
        1..5_000_000_i64,
        1..(2 * MINUTE).cast_signed(),
        1..(30 * HOUR).cast_signed(),
        Just((800 * HOUR).cast_signed()),
        (-2 * HOUR.cast_signed())..0,
    ];
    prop_oneof![
        5 => prop::collection::vec(charge, 0..5).prop_map(Act::Reserve),
        1 => any::<usize>().prop_map(Act::Depart),
        3 => (any::<usize>(), spent()).prop_map(|(nth, spent)| Act::Settle(nth, spent)),
        1 => prop::collection::vec(any::<usize>(), 0..4).prop_map(Act::Renew),
        3 => micros.prop_map(Act::Step),
    ]
}

fn bucket(nth: usize) -> Arc<Bucket> {
    charge(&format!("m{nth}"), LIMITS[nth], 1).bucket
}

/// What a ledger says to an act, in full.
async fn say(ledger: &dyn Ledger, ids: &[CallId], new: CallId, act: &Act) -> String {
    let nth = |n: usize| ids.get(n % ids.len().max(1)).copied().unwrap_or(new);
    let said = match act {
        Act::Reserve(charges) => {
            let of = |(n, amount): &(usize, u64)| {
                let bucket = bucket(*n);
                let amount = if bucket.limit.is_slots() { 1 } else { *amount };
                Charge { bucket, amount }
            };
            let charges: Vec<Charge> = charges.iter().map(of).collect();
            match ledger.reserve(new, &charges).await {
                Err(Refusal::Store(error)) => panic!("{error}"),
                result => format!("{result:?}"),
            }
        }
        Act::Depart(n) => format!("{:?}", ledger.depart(nth(*n)).await),
        Act::Settle(n, spent) => format!("{:?}", ledger.settle(nth(*n), *spent).await),
        Act::Renew(which) => {
            let ids: Vec<CallId> = which.iter().map(|n| nth(*n)).collect();
            format!("{:?}", ledger.renew(&ids).await)
        }
        Act::Step(_) => String::new(),
    };
    let buckets: Vec<Arc<Bucket>> = (0..LIMITS.len()).map(bucket).collect();
    let buckets: Vec<&Bucket> = buckets.iter().map(|bucket| &**bucket).collect();
    format!("{said} {:?}", ledger.standings(&buckets).await)
}

/// Whatever is done, to the last microsecond, on a clock that may step back too.
#[tokio::test]
async fn it_says_just_what_the_memory_says() {
    let redis = OnRedis::new().await;
    let seed = RngAlgorithm::ChaCha;
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::deterministic_rng(seed));
    let acts = prop::collection::vec(act(), 1..120);
    for life in 0..40 {
        redis.server.command(&["FLUSHALL"]);
        redis.clock.store(START_MICROS, Ordering::Relaxed);
        let memory = MemoryLedger::by(Arc::clone(&redis.clock));
        let mut ids = Vec::new();
        for (i, act) in acts.new_tree(&mut runner).expect("acts").current().iter().enumerate() {
            if let Act::Step(micros) = act {
                redis.clock.fetch_add(micros.cast_unsigned(), Ordering::Relaxed);
            }
            let new = CallId::generate();
            let ours = say(&*redis.ledger, &ids, new, act).await;
            assert_eq!(ours, say(&memory, &ids, new, act).await, "{life}/{i}: {act:?}");
            ids.push(new);
        }
    }
}

fn all() -> [Charge; 6] {
    [
        requests("m", 5),
        tokens(60, 60, 30),
        slots("m", 5),
        window(Measure::Tokens, Period::Hour, 100, 10),
        usd_per_day(100, 10),
        window(Measure::MicroUsd, Period::Month, 100, 10),
    ]
}

#[tokio::test]
async fn keys_share_a_slot_and_expire() {
    let redis = OnRedis::new().await;
    let id = take(&redis, &all()).await;
    let keys = redis.server.keys();
    assert_eq!(keys.len(), 8, "{keys:?}");
    for key in &keys {
        assert!(key.starts_with("{test}:"), "{key}");
        let ttl = redis.server.number(&["PTTL", key]);
        let most = if key.ends_with("usd-per-month") { 32 } else { 8 } * 86_400_000;
        assert!((1..most).contains(&ttl), "{key} lives for {ttl} ms");
    }
    settle(&redis, id, actual(10, 5)).await;
    let keys = redis.server.keys();
    assert_eq!(keys.len(), 5, "neither slots nor reservations are left: {keys:?}");
}

#[tokio::test]
async fn a_window_in_debt_is_kept_until_it_is_paid() {
    let redis = OnRedis::new().await;
    let charge = [usd_per_day(100, 10)];
    let id = take(&redis, &charge).await;
    settle(&redis, id, actual(0, 350)).await;
    let key = redis.server.keys().into_iter().find(|key| key.ends_with("usd-per-day"));
    let ttl = redis.server.number(&["PTTL", &key.expect("its key")]);
    assert!(ttl > 3 * 86_400_000, "{ttl}");
}

/// Settling and sweeping name keys that only the reservation knows of.
#[tokio::test]
async fn it_runs_on_a_cluster() {
    let redis = OnRedis::on(RedisServer::start_cluster().await);
    let id = take(&redis, &all()).await;
    redis.ledger().depart(id).await.expect("departed");
    settle(&redis, id, actual(10, 5)).await;
    take(&redis, &all()).await;
    redis.wait_micros(MINUTE).await;
    redis.ledger().renew(&[]).await.expect("swept");
    assert_eq!(standing(&redis, &slots("m", 5)).await.used, 0);
    assert_eq!(standing(&redis, &usd_per_day(100, 10)).await.used, 5);
}

/// One command of ours for each thing done, however many buckets.
#[tokio::test]
async fn each_step_is_one_call() {
    let redis = OnRedis::new().await;
    let buckets = all();
    // Connects, and loads the scripts.
    for _ in 0..6 {
        let id = take(&redis, &buckets[2..3]).await;
        redis.ledger().depart(id).await.expect("departed");
        redis.ledger().renew(&[id]).await.expect("renewed");
        settle(&redis, id, Spent::Nothing).await;
        standing(&redis, &buckets[0]).await;
    }
    redis.server.command(&["CONFIG", "RESETSTAT"]);
    let id = take(&redis, &buckets).await;
    redis.ledger().depart(id).await.expect("departed");
    redis.ledger().renew(&[id]).await.expect("renewed");
    settle(&redis, id, actual(5, 5)).await;
    standing(&redis, &buckets[0]).await;
    let stats = redis.server.command(&["INFO", "commandstats"]);
    assert!(stats.contains("cmdstat_evalsha:calls=5,"), "{stats}");
    assert!(!stats.contains("cmdstat_eval:"), "{stats}");
}

#[tokio::test]
async fn the_servers_own_clock_is_the_clock() {
    let server = RedisServer::start().await;
    let ledger = RedisLedger::new(&server.url()).expect("a ledger");
    let charge = [requests("m", 60_000)];
    let (first, second) = (CallId::generate(), CallId::generate());
    let grant = ledger.reserve(first, &charge).await.expect("a grant");
    assert_eq!(grant.standings[0].remaining, 59_999);
    ledger.reserve(second, &charge).await.expect("a grant");
    let daily = [usd_per_day(100, 10)];
    let grant = ledger.reserve(CallId::generate(), &daily).await.expect("a grant");
    let now = i64::try_from(grant.standings[0].reset_micros).expect("a time") / 1_000_000;
    let seconds = jiff::Timestamp::now().as_second();
    let until_midnight = 86_400 - seconds.rem_euclid(86_400);
    assert!((now - until_midnight).abs() <= 2 || now > 86_390, "{now} and {until_midnight}");
    // A millisecond each: they leak away by themselves.
    crate::support::client::eventually(std::time::Duration::from_secs(5), async || {
        let standings = ledger.standings(&[&charge[0].bucket]).await.expect("standings");
        standings[0].remaining == 60_000
    })
    .await;
}

/// More than a call sweeps are gone after a few.
#[tokio::test]
async fn what_a_lost_process_left_is_swept_a_few_at_a_time() {
    let redis = OnRedis::new().await;
    let charge = [slots("m", 100), usd_per_day(10_000, 10)];
    for i in 0..100 {
        let id = take(&redis, &charge).await;
        if i % 2 == 0 {
            redis.ledger().depart(id).await.expect("departed");
        }
    }
    redis.wait_micros(MINUTE).await;
    assert_eq!(standing(&redis, &charge[0]).await.used, 84);
    redis.ledger().renew(&[]).await.expect("renewed");
    assert_eq!(standing(&redis, &charge[0]).await.used, 0);
    let money = standing(&redis, &charge[1]).await;
    assert_eq!((money.used, money.reserved), (500, 0), "those that had left are charged");
}

#[tokio::test]
async fn the_password_shows_nowhere() {
    let redis = OnRedis::new().await;
    take(&redis, &all()).await;
    assert!(!format!("{:?}", redis.ledger).contains(PASSWORD));
    let wrong = format!("redis://:wrong-{PASSWORD}@127.0.0.1:{}/0", redis.server.port());
    let ledger = RedisLedger::new(&wrong.into()).expect("a ledger");
    let error = ledger.renew(&[]).await.expect_err("it is not let in");
    assert_eq!(error.0, "it does not let this user in, or not do this");
    for wrong in [format!("redis://{PASSWORD}:x y@"), format!("redis://h:{PASSWORD}/0")] {
        let error = RedisLedger::new(&wrong.into()).expect_err("no URL");
        assert!(!format!("{error} {error:?}").contains(PASSWORD));
    }
}
