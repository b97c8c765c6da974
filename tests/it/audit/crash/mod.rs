//! The real gateway under load, killed again and again at named points, and what is left of it: each
//! call that its provider saw has one intent and one end, what was spent is what the ledger says, and
//! the chain holds.
//!
//! `make soak` runs the same with more kills (`TEST_CRASH_KILLS`); `TEST_CRASH_SEED` does once more
//! what a run did, as far as load can be the same.
#![expect(clippy::print_stdout, reason = "whoever waits for a soak sees how far it is")]

mod account;
mod gateway;
mod load;

use std::{collections::BTreeMap, time::Duration};

use nix::sys::signal::Signal;
use tollgate::fail_point::FailPoint;

use self::{
    account::Account,
    gateway::{Gateway, Kind},
    load::Load,
};
use crate::support::client::eventually;

/// What the gateway gets to live, once it is under load, where the point is not passed.
const LIFE: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(30);
/// A point may be passed only where there is something to do, such as a lost call's end.
const ATTEMPTS: usize = 4;

/// Numbers that are the same for the same seed (splitmix64).
pub struct Dice(u64);

impl Dice {
    /// From 1 to `most`.
    pub fn roll(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % most + 1
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// How many times the point is passed before the kill: some are passed often, some once in a life.
fn passes(point: FailPoint, dice: &mut Dice) -> u64 {
    match point {
        FailPoint::MidSweep | FailPoint::AfterSweep => 1,
        FailPoint::BeforeShip | FailPoint::MidShip | FailPoint::AfterAck => dice.roll(4),
        FailPoint::MidStream => dice.roll(60),
        _ => dice.roll(25),
    }
}

/// Kills a gateway at each of `points`, `rounds` times over, and as often at a moment that is none of
/// them; then looks at everything.
async fn crash(kind: Kind, points: &[FailPoint], rounds: usize) {
    // A soak asks each of the tests below for its part.
    let kills = number("TEST_CRASH_KILLS").and_then(|kills| usize::try_from(kills).ok());
    let rounds = kills.map_or(rounds, |kills| kills.div_ceil(points.len()));
    let seed = number("TEST_CRASH_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("seed {seed}: {} kills", rounds * points.len());
    let mut dice = Dice(seed);
    let mut gateway = Gateway::start(kind).await;
    let mut account = Account::default();
    let mut killed: BTreeMap<&str, usize> = BTreeMap::new();
    let load = Load::start(&gateway);
    eventually(PATIENCE, async || load.answers() >= 10).await;
    gateway.process.signal(Signal::SIGKILL);
    gateway.process.ended().await;
    account.note(&gateway, load.end().await);
    for round in 0..rounds {
        for &point in points {
            for _ in 0..ATTEMPTS {
                let has_hit = life(&mut gateway, &mut account, point, &mut dice).await;
                *killed.entry(if has_hit { point.as_str() } else { "elsewhere" }).or_default() += 1;
                if has_hit {
                    break;
                }
            }
        }
        let calls = account.calls();
        println!("round {} of {rounds}: {calls} calls, kills {killed:?}", round + 1);
    }
    for point in points {
        assert_eq!(killed.get(point.as_str()), Some(&rounds), "{point:?} of {killed:?}");
    }
    gateway.process.restart().await;
    account.expect_all_in_order(&mut gateway).await;
}

/// One life, from a start to a kill; was it at the point?
async fn life(
    gateway: &mut Gateway,
    account: &mut Account,
    point: FailPoint,
    dice: &mut Dice,
) -> bool {
    let armed = format!("{}:{}", point.as_str(), passes(point, dice));
    let mut sent = Vec::new();
    if gateway.process.restart_armed(&armed).await {
        let load = Load::start(gateway);
        let over = tokio::time::Instant::now() + LIFE;
        eventually(PATIENCE, async || {
            gateway.process.has_ended() || tokio::time::Instant::now() >= over
        })
        .await;
        if !gateway.process.has_ended() {
            gateway.process.signal(Signal::SIGKILL);
        }
        gateway.process.ended().await;
        sent = load.end().await;
    }
    let has_hit = gateway.process.log().contains(&format!("fail point {}\n", point.as_str()));
    account.note(gateway, sent);
    has_hit
}

/// On a call's way.
const CALL: [FailPoint; 10] = [
    FailPoint::BeforeIntent,
    FailPoint::AfterWrite,
    FailPoint::AfterIntent,
    FailPoint::AfterReserve,
    FailPoint::BeforeEgress,
    FailPoint::AfterEgress,
    FailPoint::MidStream,
    FailPoint::BeforeSettle,
    FailPoint::AfterSettle,
    FailPoint::AfterEnd,
];
/// On the way to the store.
const TRAIL: [FailPoint; 5] = [
    FailPoint::BeforeShip,
    FailPoint::MidShip,
    FailPoint::AfterAck,
    FailPoint::MidSweep,
    FailPoint::AfterSweep,
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_on_a_calls_way() {
    crash(Kind::Sqlite, &CALL, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_on_a_calls_way_with_postgres() {
    crash(Kind::Postgres, &CALL, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_on_the_way_to_the_store() {
    crash(Kind::Sqlite, &TRAIL, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_on_the_way_to_postgres() {
    crash(Kind::Postgres, &TRAIL, 1).await;
}

#[test]
fn every_point_is_passed() {
    let mut points: Vec<_> = CALL.into_iter().chain(TRAIL).collect();
    points.sort_unstable();
    assert_eq!(points, FailPoint::ALL);
}
