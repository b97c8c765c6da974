//! A store that is slow, gone, back again, empty, or can't be written.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tollgate::{
    budget::{
        COMMAND_TIMEOUT, Charge, FailoverLedger, Failure, Ledger, RedisLedger, Refusal, Spent,
    },
    domain::{CallId, Kind},
};

use super::{actual, requests, slots, tokens, usd_per_day};
use crate::support::{client::eventually, redis::RedisServer};

const PATIENCE: Duration = Duration::from_secs(15);

fn store(server: &RedisServer) -> Arc<RedisLedger> {
    Arc::new(RedisLedger::new(&server.url()).expect("a ledger"))
}

async fn reserve(ledger: &impl Ledger, charges: &[Charge]) -> Result<CallId, Refusal> {
    let id = CallId::generate();
    ledger.reserve(id, charges).await.map(|_| id)
}

/// The store failed, which is told as 503 `budget_unavailable`; how long that took.
async fn unavailable(ledger: &impl Ledger, charges: &[Charge]) -> Duration {
    let started = Instant::now();
    let refusal = reserve(ledger, charges).await.expect_err("a refusal");
    assert!(matches!(refusal, Refusal::Store(_)), "{refusal:?}");
    assert_eq!(refusal.to_denial().kind, Kind::BudgetUnavailable);
    started.elapsed()
}

async fn until_back(ledger: &impl Ledger, charges: &[Charge]) {
    eventually(PATIENCE, async || match reserve(ledger, charges).await {
        Ok(id) => ledger.settle(id, Spent::Nothing).await.is_ok(),
        Err(_) => false,
    })
    .await;
}

#[tokio::test]
async fn one_that_is_slow_holds_nobody_up_and_recovers() {
    let server = RedisServer::start().await;
    let (ledger, slot) = (store(&server), [slots("m", 3)]);
    let id = reserve(&*ledger, &slot).await.expect("a grant");
    assert!(ledger.health().is_up());

    server.pause();
    let mut longest = Duration::ZERO;
    for _ in 0..20 {
        longest = longest.max(unavailable(&*ledger, &slot).await);
    }
    assert!(longest < COMMAND_TIMEOUT * 3, "{longest:?}");
    let health = ledger.health();
    assert!(!health.is_up());
    assert!(health.failed(Failure::Timeout) >= 1);
    assert!(health.failed(Failure::Resting) >= 15, "it is left alone: {health:?}");

    server.resume();
    until_back(&*ledger, &slot).await;
    assert!(health.is_up());
    ledger.settle(id, Spent::Reserved).await.expect("settled");
}

#[tokio::test]
async fn one_that_is_gone_comes_back_empty_and_goes_on() {
    let mut server = RedisServer::start().await;
    let (ledger, charges) = (store(&server), [slots("m", 1), usd_per_day(100, 60)]);
    let id = reserve(&*ledger, &charges).await.expect("a grant");
    let loaded = ledger.health().reloaded();

    server.stop();
    let waited = unavailable(&*ledger, &charges).await;
    assert!(waited < COMMAND_TIMEOUT * 2, "{waited:?}");
    assert!(ledger.health().failed(Failure::Connection) >= 1, "{:?}", ledger.health());
    assert!(ledger.settle(id, actual(0, 60)).await.is_err());

    server.start_again().await;
    until_back(&*ledger, &charges).await;
    assert!(ledger.health().reloaded() > loaded, "the scripts were gone");
    let lost = ledger.health().lost();
    ledger.settle(id, actual(0, 60)).await.expect("there is nothing to settle");
    assert_eq!(ledger.health().lost(), lost + 1, "and that is counted");
}

/// The connection that it had is broken, and nobody notices.
#[tokio::test]
async fn a_restart_between_two_calls_costs_none() {
    let mut server = RedisServer::start().await;
    let (ledger, slot) = (store(&server), [slots("m", 9)]);
    for _ in 0..6 {
        reserve(&*ledger, &slot).await.expect("a grant");
    }
    server.start_again().await;
    for _ in 0..6 {
        reserve(&*ledger, &slot).await.expect("a grant");
    }
}

#[tokio::test]
async fn one_that_forgets_scripts_or_all_goes_on() {
    let server = RedisServer::start().await;
    let (ledger, slot) = (store(&server), [slots("m", 1)]);
    let id = reserve(&*ledger, &slot).await.expect("a grant");
    server.command(&["SCRIPT", "FLUSH"]);
    assert!(matches!(reserve(&*ledger, &slot).await, Err(Refusal::Exhausted(_))));
    assert_eq!(ledger.health().reloaded(), 2);
    server.command(&["FLUSHALL"]);
    reserve(&*ledger, &slot).await.expect("it knows of nobody");
    ledger.settle(id, Spent::Reserved).await.expect("the first is settled already");
    assert!(matches!(reserve(&*ledger, &slot).await, Err(Refusal::Exhausted(_))));
}

#[tokio::test]
async fn one_that_can_only_be_read_lets_nobody_in() {
    let server = RedisServer::start().await;
    let (ledger, slot) = (store(&server), [slots("m", 9)]);
    reserve(&*ledger, &slot).await.expect("a grant");
    // A replica of nobody.
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    unavailable(&*ledger, &slot).await;
    let health = ledger.health();
    assert_eq!(health.failed(Failure::ReadOnly), 1, "{health:?}");
    server.command(&["REPLICAOF", "NO", "ONE"]);
    until_back(&*ledger, &slot).await;

    server.command(&["CONFIG", "SET", "min-replicas-to-write", "3"]);
    unavailable(&*ledger, &slot).await;
    assert!(health.failed(Failure::ReadOnly) >= 2, "{health:?}");
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    until_back(&*ledger, &slot).await;

    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    unavailable(&*ledger, &slot).await;
    assert!(health.failed(Failure::Full) >= 1, "{health:?}");
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    until_back(&*ledger, &slot).await;
}

#[tokio::test]
async fn a_gateway_starts_before_its_store() {
    let mut server = RedisServer::start().await;
    server.stop();
    let (ledger, slot) = (store(&server), [slots("m", 9)]);
    ledger.warm();
    unavailable(&*ledger, &slot).await;
    server.start_again().await;
    until_back(&*ledger, &slot).await;
}

#[tokio::test]
async fn a_share_of_the_limits_goes_on_and_money_does_not() {
    let mut server = RedisServer::start().await;
    let ledger = FailoverLedger::share(store(&server), 4);
    let limits = [requests("m", 9), slots("m", 9), tokens(600, 600, 10)];
    let before = reserve(&ledger, &limits).await.expect("a grant");

    server.stop();
    let mut granted = Vec::new();
    for _ in 0..2 {
        granted.push(reserve(&ledger, &limits).await.expect("a quarter of nine is two"));
    }
    let refusal = reserve(&ledger, &limits).await.expect_err("a refusal");
    assert!(matches!(refusal, Refusal::Exhausted(_)), "{refusal:?}");
    unavailable(&ledger, &[requests("n", 9), usd_per_day(1_000, 1)]).await;
    let one = reserve(&ledger, &[slots("one", 1)]).await.expect("at least one");
    assert_eq!(ledger.health().shared(), 3);
    let standings = ledger.standings(&[&limits[1].bucket]).await.expect("standings");
    assert_eq!((standings[0].limit, standings[0].used), (2, 2));
    assert!(ledger.standings(&[&usd_per_day(1, 1).bucket]).await.is_err());
    ledger.depart(one).await.expect("departed, as far as it goes");
    assert!(ledger.depart(before).await.is_err(), "its own store is away");

    server.start_again().await;
    until_back(&ledger, &[usd_per_day(1_000, 1)]).await;
    // Each is settled where it was granted.
    for id in granted {
        ledger.settle(id, Spent::Nothing).await.expect("settled");
    }
    server.stop();
    for _ in 0..2 {
        reserve(&ledger, &limits).await.expect("the share is free again");
    }
}

#[tokio::test]
async fn what_could_not_be_settled_is_settled_later() {
    let server = RedisServer::start().await;
    let ledger = FailoverLedger::deny(store(&server));
    let charges = [slots("m", 1), usd_per_day(1_000, 500)];
    let id = reserve(&ledger, &charges).await.expect("a grant");
    ledger.depart(id).await.expect("departed");
    server.pause();
    ledger.settle(id, actual(0, 120)).await.expect("it is taken over");
    // Nobody hears of this one: it must not keep the slot for a minute.
    unavailable(&ledger, &charges).await;
    server.resume();
    eventually(PATIENCE, async || {
        let standings = ledger.standings(&[&charges[0].bucket, &charges[1].bucket]).await;
        standings.is_ok_and(|them| (them[0].used, them[1].used, them[1].reserved) == (0, 120, 0))
    })
    .await;
    assert_eq!(ledger.health().unsettled(), 0);
}
