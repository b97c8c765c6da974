//! Who gets how much, in closed loop: each caller has a number of calls in flight or waiting, and
//! follows each that ends with the next.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::task::{JoinHandle, JoinSet};

use super::{Desk, LONG, settle, start};

/// A caller, and what it asks for.
#[derive(Clone, Copy)]
struct Demand {
    parallel: usize,
    weight: u32,
    /// Each call comes from a caller of its own.
    is_ever_new: bool,
}

/// How long calls take.
#[derive(Debug, Clone, Copy)]
enum Service {
    Constant,
    /// Exponential of the same mean: some end at once, some take five times as long.
    Exponential,
}

const MEAN_MS: f64 = 100.0;

/// A generator that is the same each time (splitmix64).
struct Dice(u64);

impl Dice {
    /// In (0, 1].
    fn roll(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        f64::from(u32::try_from((bits ^ (bits >> 31)) >> 32).unwrap() | 1) / f64::from(u32::MAX)
    }

    fn service(&mut self, service: Service) -> Duration {
        let ms = match service {
            Service::Constant => MEAN_MS,
            Service::Exponential => -self.roll().ln() * MEAN_MS,
        };
        Duration::from_secs_f64(ms / 1_000.0)
    }
}

/// The calls of each caller that were let in within `seconds`.
async fn throughput(
    slots: usize,
    demands: &[Demand],
    service: Service,
    pause: Duration,
    seconds: u64,
) -> Vec<f64> {
    let desk = Arc::new(Desk::new(slots, 1_000, LONG));
    let counts: Arc<Vec<AtomicUsize>> = Arc::new(demands.iter().map(|_| 0.into()).collect());
    let dice = Arc::new(Mutex::new(Dice(7)));
    let mut agents = JoinSet::new();
    for (at, demand) in demands.iter().copied().enumerate() {
        for _ in 0..demand.parallel {
            let (desk, counts, dice) = (Arc::clone(&desk), Arc::clone(&counts), Arc::clone(&dice));
            agents.spawn(async move {
                let mut caller = format!("agent-{at}");
                loop {
                    if demand.is_ever_new {
                        caller = format!("{at}-{}", dice.lock().unwrap().roll());
                    }
                    desk.enter(&caller, demand.weight).await.expect("a slot in the end");
                    counts[at].fetch_add(1, Ordering::Relaxed);
                    let taken = dice.lock().unwrap().service(service);
                    tokio::time::sleep(taken).await;
                    desk.free(&caller);
                    tokio::time::sleep(pause).await;
                }
            });
        }
    }
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let remembered = format!("{:?}", desk.queues).matches("Line {").count();
    assert!(remembered <= 100, "{remembered} callers are remembered");
    agents.shutdown().await;
    assert_eq!((desk.queues.waiting(), desk.queues.queues()), (0, 0), "nothing is left behind");
    counts
        .iter()
        .map(|count| f64::from(u32::try_from(count.load(Ordering::Relaxed)).unwrap()))
        .collect()
}

/// 1 where all get the same, 1/n where one gets all.
fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    sum * sum / (f64::from(u32::try_from(shares.len()).unwrap()) * squares)
}

fn runaway_and_ten(weight: u32) -> Vec<Demand> {
    let mut demands = vec![Demand { parallel: 1, weight, is_ever_new: false }; 10];
    demands.push(Demand { parallel: 100, weight, is_ever_new: false });
    demands
}

#[tokio::test(start_paused = true)]
async fn a_runaway_gets_its_share_and_not_more() {
    // Below eleven slots, all eleven callers always want more than there is. The weight is the
    // same for all, so it must not matter.
    for slots in 1..=10 {
        for weight in [1, 3] {
            let demands = runaway_and_ten(weight);
            let shares = throughput(slots, &demands, Service::Constant, Duration::ZERO, 60).await;
            let index = jain(&shares);
            assert!(index >= 0.999, "{slots} slots, weight {weight}: {index:.3} of {shares:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_runaway_gets_its_share_where_calls_differ_and_clients_pause() {
    // With more slots than eight, one is idle now and then for want of another's call, and it is
    // right that the runaway has it.
    for slots in [1, 2, 4, 8] {
        let demands = runaway_and_ten(2);
        let pause = Duration::from_millis(5);
        let shares = throughput(slots, &demands, Service::Exponential, pause, 120).await;
        let index = jain(&shares);
        assert!(index >= 0.95, "{slots} slots: {index:.3} of {shares:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_others_leave_the_runaway_may_have() {
    let shares = throughput(20, &runaway_and_ten(1), Service::Constant, Duration::ZERO, 60).await;
    let all: f64 = shares.iter().sum();
    assert!(all >= 20.0 * 10.0 * 60.0 * 0.99, "no slot is idle: {shares:?}");
    assert!(shares[..10].iter().all(|share| *share >= 595.0), "nor do they wait: {shares:?}");
}

#[tokio::test(start_paused = true)]
async fn weights_are_shares() {
    for slots in [1, 3, 8] {
        for service in [Service::Constant, Service::Exponential] {
            let demand = |weight| Demand { parallel: 60, weight, is_ever_new: false };
            let demands = [demand(3), demand(1), demand(3), demand(1), demand(5)];
            let shares = throughput(slots, &demands, service, Duration::ZERO, 120).await;
            let unit = shares.iter().sum::<f64>() / 13.0;
            for (share, weight) in shares.iter().zip([3.0, 1.0, 3.0, 1.0, 5.0]) {
                let off = (share / unit / weight - 1.0).abs();
                assert!(off < 0.05, "{slots} slots, {service:?}: {off:.3} off in {shares:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_single_call_waits_no_longer_than_a_round() {
    let desk = Arc::new(Desk::new(0, 1_000, LONG));
    let mut runaways = Vec::new();
    for at in 0..300 {
        runaways.push(start(&desk, &format!("runaway-{}", at % 3), 1).await);
    }
    // The runaways have had some, so that they owe nobody anything.
    for _ in 0..30 {
        desk.free("x");
        settle().await;
    }
    let single = start(&desk, "single", 1).await;
    for _ in 0..4 {
        desk.free("x");
        settle().await;
    }
    assert!(single.is_finished(), "three runaways and itself");
    runaways.iter().for_each(JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn callers_that_come_once_do_not_keep_out_who_comes_again() {
    let once = Demand { parallel: 20, weight: 1, is_ever_new: true };
    let again = Demand { parallel: 1, weight: 1, is_ever_new: false };
    for service in [Service::Constant, Service::Exponential] {
        let pause = Duration::from_millis(5);
        let shares = throughput(2, &[once, again], service, pause, 60).await;
        // A round is no more than the twenty that wait, and the two that run.
        assert!(shares[1] >= shares[0] / 24.0, "{service:?}: {shares:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn turns_that_a_caller_did_not_want_are_not_saved_up() {
    let desk = Arc::new(Desk::new(0, 1_000, LONG));
    let mut busy = Vec::new();
    let long = start(&desk, "seldom", 1).await;
    for _ in 0..200 {
        busy.push(start(&desk, "busy", 1).await);
    }
    // The one's call runs for long, while the other has a hundred.
    for _ in 0..100 {
        desk.free("busy");
        settle().await;
    }
    assert!(long.is_finished());
    let mut seldom = Vec::new();
    for _ in 0..50 {
        seldom.push(start(&desk, "seldom", 1).await);
    }
    for _ in 0..20 {
        desk.free("busy");
        settle().await;
    }
    let entered = seldom.iter().filter(|call| call.is_finished()).count();
    assert!((9..=11).contains(&entered), "{entered} of 20");
    seldom.iter().chain(&busy).for_each(JoinHandle::abort);
}
