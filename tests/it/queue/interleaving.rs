//! Whatever calls come, go and hang up, in whatever order: no wake-up is lost.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use proptest::prelude::*;
use tokio::{runtime::Builder, task::JoinHandle};
use tollgate::budget::{QUEUE_RETRY, RefusedReason};

use super::{Desk, LONG, Outcome, settle, start};

#[derive(Debug, Clone)]
enum Step {
    Enter {
        caller: usize,
        weight: u32,
    },
    /// The client of one of the calls, waiting or trying, hangs up.
    Cancel(prop::sample::Index),
    /// Several at once, whose tasks are then dropped before one of them has run.
    CancelAllOf(usize),
    Free {
        caller: usize,
    },
    FreeElsewhere,
    Pass(u64),
    Settle,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..4_usize, 1..4_u32).prop_map(|(caller, weight)| Step::Enter { caller, weight }),
        3 => any::<prop::sample::Index>().prop_map(Step::Cancel),
        1 => (0..4_usize).prop_map(Step::CancelAllOf),
        4 => (0..4_usize).prop_map(|caller| Step::Free { caller }),
        1 => Just(Step::FreeElsewhere),
        2 => (1..60_u64).prop_map(Step::Pass),
        2 => Just(Step::Settle),
    ]
}

struct Scene {
    desk: Arc<Desk>,
    calls: Vec<(usize, JoinHandle<Outcome>)>,
    /// Whether tasks run between the steps only where a step says so.
    is_abrupt: bool,
}

impl Scene {
    async fn play(&mut self, step: Step) {
        match step {
            Step::Enter { caller, weight } if self.is_abrupt => {
                let desk = Arc::clone(&self.desk);
                let enter = async move { desk.enter(&caller.to_string(), weight).await };
                self.calls.push((caller, tokio::spawn(enter)));
            }
            Step::Enter { caller, weight } => {
                let call = start(&self.desk, &caller.to_string(), weight).await;
                self.calls.push((caller, call));
            }
            Step::Cancel(index) => {
                if !self.calls.is_empty() {
                    self.calls[index.index(self.calls.len())].1.abort();
                }
            }
            Step::CancelAllOf(caller) => {
                let own = self.calls.iter().filter(|(of, _)| *of == caller);
                own.for_each(|(_, call)| call.abort());
            }
            Step::Free { caller } => self.desk.free(&caller.to_string()),
            Step::FreeElsewhere => self.desk.free_elsewhere(),
            Step::Pass(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
            Step::Settle => settle().await,
        }
        if !self.is_abrupt {
            settle().await;
        }
    }

    fn free(&self) -> usize {
        self.desk.free.load(Ordering::Relaxed)
    }

    /// A slot that is free is somebody's soon, if somebody waits.
    async fn assert_nothing_is_stuck(&self, soon: Duration) {
        settle().await;
        while self.free() > 0 && self.desk.queues.waiting() > 0 {
            let before = self.free();
            tokio::time::sleep(soon).await;
            settle().await;
            assert!(self.free() < before, "nobody got in within {soon:?}");
        }
    }
}

async fn play(steps: Vec<Step>, slots: usize, round_trip: Duration, is_abrupt: bool) {
    let mut desk = Desk::new(slots, 8, LONG);
    desk.round_trip = round_trip;
    let mut scene = Scene { desk: Arc::new(desk), calls: Vec::new(), is_abrupt };
    let mut freed = 0;
    for (at, step) in steps.into_iter().enumerate() {
        freed += usize::from(matches!(step, Step::Free { .. } | Step::FreeElsewhere));
        scene.play(step).await;
        assert!(scene.desk.queues.waiting() <= 8);
        if at % 8 == 7 {
            scene.assert_nothing_is_stuck(QUEUE_RETRY + round_trip).await;
        }
    }
    scene.assert_nothing_is_stuck(QUEUE_RETRY + round_trip).await;
    // Who is at its first attempt queues after it.
    tokio::time::sleep(round_trip).await;
    settle().await;
    // Who is left gets in once there are slots, at once, with nobody left behind.
    while scene.desk.queues.waiting() > 0 {
        scene.desk.free("x");
        freed += 1;
        let before = scene.desk.queues.waiting();
        tokio::time::sleep(round_trip + Duration::from_millis(1)).await;
        settle().await;
        assert!(scene.desk.queues.waiting() < before, "a freed slot is tried at once");
    }
    assert_eq!(scene.desk.queues.queues(), 0, "nothing is left behind");
    let mut entered = 0;
    for (_, call) in scene.calls {
        match call.await {
            Ok(Ok(_)) => entered += 1,
            Ok(Err(refused)) => assert_eq!(refused.reason, RefusedReason::Crowded),
            Err(ended) => assert!(ended.is_cancelled(), "{ended}"),
        }
    }
    // One that was cancelled may have got in first: its slot is gone then, as its result is.
    let taken = slots + freed - scene.desk.free.load(Ordering::Relaxed);
    assert!(entered <= taken, "{entered} entered with {taken} slots");
}

proptest! {
    #[test]
    fn no_wake_up_is_lost(
        steps in prop::collection::vec(step(), 1..80),
        slots in 0..3_usize,
        round_trip_ms in prop::sample::select(vec![0, 0, 1, 3, 70]),
        is_abrupt in any::<bool>(),
    ) {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        let round_trip = Duration::from_millis(round_trip_ms);
        runtime.expect("a runtime").block_on(play(steps, slots, round_trip, is_abrupt));
    }
}

/// The same where calls truly run at once: every call gets in, and no more than there are slots.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_threads_lose_nothing() {
    let desk = Arc::new(Desk::new(3, 1_000, Duration::from_secs(30)));
    let mut calls = tokio::task::JoinSet::new();
    for call in 0..600_usize {
        let desk = Arc::clone(&desk);
        calls.spawn(async move {
            let caller = (call % 7).to_string();
            if call % 5 == 0 {
                // Hangs up after a while, wherever it is then.
                let patience = Duration::from_micros(call as u64 * 5);
                let Ok(outcome) = tokio::time::timeout(patience, desk.enter(&caller, 1)).await
                else {
                    return;
                };
                outcome.expect("a slot");
            } else {
                desk.enter(&caller, 1).await.expect("a slot");
            }
            tokio::task::yield_now().await;
            desk.free(&caller);
        });
    }
    while let Some(call) = calls.join_next().await {
        call.expect("a task");
    }
    assert_eq!(desk.free.load(Ordering::Relaxed), 3);
    assert_eq!((desk.queues.waiting(), desk.queues.queues()), (0, 0));
}
