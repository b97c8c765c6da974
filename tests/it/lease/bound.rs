//! Random lives of several processes on one store, held against the bound that is documented.

use std::{sync::Arc, time::Duration};

use proptest::{
    prelude::*,
    strategy::ValueTree as _,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use tokio::time::Instant;
use tollgate::{
    budget::{LeasedLedger, Ledger as _, MAX_LEASE, Measure, MemoryLedger, Spent},
    domain::CallId,
};

use super::{LEASE_MICROS, MINUTE, Remote, actual, rate, reset, wait};

const PROCESSES: usize = 3;
/// 100,000 a second: a lease is of 5,000.
const PER_MINUTE: u64 = 6_000_000;
const BURST: u64 = 20_000;
const LIVES: usize = 24;

#[derive(Debug, Clone)]
enum Act {
    /// So many calls of one process, each of so many tokens.
    Calls(usize, usize, u64),
    /// The nth open call ends, having spent so many hundredths of what it reserved.
    Settle(usize, u64),
    Wait(u64),
}

/// A lease from a full bucket that is all used when the bucket is full again, together with it.
const WORST: [Act; 6] = [
    Act::Wait(300_000),
    Act::Calls(0, 12, 10),
    Act::Wait(45_000),
    Act::Calls(0, 39, 1_200),
    Act::Calls(1, 39, 1_200),
    Act::Calls(2, 39, 10),
];

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0..PROCESSES, 1..40_usize, 1..=1_300_u64).prop_map(|(p, n, a)| Act::Calls(p, n, a)),
        3 => (any::<usize>(), 0..=100_u64).prop_map(|(nth, part)| Act::Settle(nth, part)),
        4 => prop_oneof![1..2_000_u64, 1..60_000_u64, 1..400_000_u64].prop_map(Act::Wait),
    ]
}

struct Admitted {
    process: usize,
    id: CallId,
    at: u64,
    reserved: u64,
    charged: u64,
    is_open: bool,
}

/// No interval has more than burst, rate and one lease, however many processes there are. In units
/// of a token times a minute, so that nothing is rounded.
fn check_bound(calls: &[Admitted]) -> u64 {
    let leases = PER_MINUTE * LEASE_MICROS;
    let mut beyond = 0;
    for (i, first) in calls.iter().enumerate() {
        let mut sum = 0;
        for last in &calls[i..] {
            sum += last.charged * MINUTE;
            let allowed = BURST * MINUTE + PER_MINUTE * (last.at - first.at);
            assert!(sum <= allowed + leases, "{sum} within {} µs", last.at - first.at);
            beyond = beyond.max(sum.saturating_sub(allowed));
        }
    }
    beyond
}

#[tokio::test(start_paused = true)]
async fn no_interval_admits_more_than_burst_rate_and_a_lease() {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let (mut beyond, mut trips, mut admitted) = (0, 0, 0);
    for _ in 0..LIVES {
        let store = Arc::new(MemoryLedger::new());
        let remote = Remote::new(&store, Duration::ZERO);
        let processes: Vec<LeasedLedger> = (0..PROCESSES)
            .map(|_| LeasedLedger::new(Arc::clone(&remote) as _, MAX_LEASE))
            .collect();
        let (start, mut calls) = (Instant::now(), Vec::<Admitted>::new());
        let acts = prop::collection::vec(act(), 1..80).new_tree(&mut runner).expect("acts");
        for act in acts.current().into_iter().chain(WORST) {
            match act {
                Act::Calls(process, count, amount) => {
                    for _ in 0..count {
                        let at = u64::try_from(start.elapsed().as_micros()).expect("a time");
                        let (id, charge) = (
                            CallId::generate(),
                            [rate(Measure::Tokens, PER_MINUTE, BURST, amount)],
                        );
                        if processes[process].reserve(id, &charge).await.is_ok() {
                            let (reserved, charged, is_open) = (amount, amount, true);
                            calls.push(Admitted { process, id, at, reserved, charged, is_open });
                        }
                    }
                }
                Act::Settle(nth, part) => {
                    let mut open: Vec<_> = calls.iter_mut().filter(|it| it.is_open).collect();
                    if open.is_empty() {
                        continue;
                    }
                    let nth = nth % open.len();
                    let call = &mut *open[nth];
                    (call.charged, call.is_open) = (call.reserved * part / 100, false);
                    let ledger = &processes[call.process];
                    ledger.settle(call.id, actual(call.charged)).await.expect("settled");
                }
                Act::Wait(micros) => wait(micros).await,
            }
            beyond = beyond.max(check_bound(&calls));
        }
        for call in calls.iter().filter(|it| it.is_open) {
            let settled = processes[call.process].settle(call.id, Spent::Reserved).await;
            settled.expect("settled");
        }
        wait(100_000).await;
        assert!(processes.iter().all(|process| process.open() == 0));
        wait(10_000_000).await;
        let charge = rate(Measure::Tokens, PER_MINUTE, BURST, 1);
        assert_eq!(reset(&*store, &charge).await, 0, "nothing is lost");
        trips += remote.trips();
        admitted += calls.len();
    }
    // Else it says nothing of leases.
    assert!(beyond > 0, "the bound without leases was never passed");
    assert!(admitted > 1_000, "{admitted} calls in {trips} trips");
}
