//! Calls that wait for a slot: their order, their bounds, and that none is forgotten.

mod fairness;
mod interleaving;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{task::JoinHandle, time::Instant};
use tollgate::budget::{
    Claim, Entered, FairQueues, QUEUE_RETRY, QueueBounds, Refused, RefusedReason,
};

const LONG: Duration = Duration::from_hours(1);

/// Why an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Failure {
    Full,
    Broken,
}

fn is_full(failure: &Failure) -> bool {
    *failure == Failure::Full
}

type Outcome = Result<Entered<()>, Refused<Failure>>;

/// A queue before a counter of slots.
struct Desk {
    queues: FairQueues,
    free: AtomicUsize,
    attempts: AtomicUsize,
    trying: AtomicUsize,
    most_trying: AtomicUsize,
    /// How long the store takes to answer.
    round_trip: Duration,
}

impl Desk {
    fn new(slots: usize, max_waiting: usize, max_wait: Duration) -> Self {
        Self {
            queues: FairQueues::new(QueueBounds { max_waiting, max_wait }),
            free: AtomicUsize::new(slots),
            attempts: AtomicUsize::default(),
            trying: AtomicUsize::default(),
            most_trying: AtomicUsize::default(),
            round_trip: Duration::ZERO,
        }
    }

    fn take(&self) -> Result<(), Failure> {
        let take = |free: usize| free.checked_sub(1);
        let taken = self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.map(drop).map_err(|_| Failure::Full)
    }

    async fn attempt(&self) -> Result<(), Failure> {
        self.attempts.fetch_add(1, Ordering::Relaxed);
        let trying = self.trying.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_trying.fetch_max(trying, Ordering::Relaxed);
        if !self.round_trip.is_zero() {
            tokio::time::sleep(self.round_trip).await;
        }
        self.trying.fetch_sub(1, Ordering::Relaxed);
        self.take()
    }

    async fn enter(&self, caller: &str, weight: u32) -> Outcome {
        let claim = Claim { key: "m", caller, weight };
        self.queues.enter(claim, || self.attempt(), is_full).await
    }

    /// Frees a slot where the queue doesn't see it.
    fn free_elsewhere(&self) {
        self.free.fetch_add(1, Ordering::Relaxed);
    }

    fn free(&self, caller: &str) {
        self.free_elsewhere();
        self.queues.freed("m", caller);
    }
}

/// Starts a call, and lets it go as far as it gets.
async fn start(desk: &Arc<Desk>, caller: &str, weight: u32) -> JoinHandle<Outcome> {
    let (desk, caller) = (Arc::clone(desk), caller.to_owned());
    let call = tokio::spawn(async move { desk.enter(&caller, weight).await });
    settle().await;
    call
}

/// Lets every task run until it waits for time.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

fn refused(outcome: Outcome) -> (RefusedReason, Option<Failure>) {
    let refused = outcome.expect_err("a refusal");
    (refused.reason, refused.error)
}

#[tokio::test(start_paused = true)]
async fn a_call_that_finds_a_slot_does_not_wait_and_leaves_nothing_behind() {
    let desk = Desk::new(2, 10, LONG);
    for _ in 0..2 {
        let entered = desk.enter("a", 1).await.expect("a slot");
        assert_eq!(entered.waited, Duration::ZERO);
    }
    assert_eq!((desk.queues.waiting(), desk.queues.queues()), (0, 0));
    desk.free("a");
    desk.enter("b", 1).await.expect("a slot");
    assert_eq!(desk.queues.queues(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_freed_slot_goes_to_the_next_at_once_and_in_order() {
    let desk = Arc::new(Desk::new(0, 10, LONG));
    let mut calls = Vec::new();
    for caller in ["a", "b", "c"] {
        calls.push(start(&desk, caller, 1).await);
    }
    assert_eq!(desk.queues.waiting(), 3);
    for (call, left) in calls.into_iter().zip([2, 1, 0]) {
        tokio::time::advance(Duration::from_millis(10)).await;
        desk.free("x");
        settle().await;
        assert_eq!(desk.queues.waiting(), left);
        let entered = call.await.expect("a task").expect("a slot");
        assert_eq!(entered.waited, Duration::from_millis(10) * (3 - u32::try_from(left).unwrap()));
    }
    assert_eq!(desk.queues.queues(), 0);
}

#[tokio::test(start_paused = true)]
async fn nobody_overtakes_who_waits() {
    let desk = Arc::new(Desk::new(0, 10, LONG));
    let first = start(&desk, "a", 1).await;
    // A slot that the queue has not heard of: who comes now doesn't get it before the first.
    desk.free_elsewhere();
    let second = start(&desk, "b", 9).await;
    assert!(!first.is_finished() && !second.is_finished());
    assert_eq!(desk.attempts.load(Ordering::Relaxed), 1);
    tokio::time::sleep(QUEUE_RETRY).await;
    settle().await;
    assert!(first.is_finished() && !second.is_finished());
    second.abort();
}

#[tokio::test(start_paused = true)]
async fn a_callers_own_calls_stay_in_order_and_callers_take_turns() {
    let desk = Arc::new(Desk::new(0, 20, LONG));
    let mut calls = Vec::new();
    for caller in ["a", "a", "a", "b", "b", "c"] {
        calls.push(start(&desk, caller, 1).await);
    }
    let mut order = Vec::new();
    for _ in 0..6 {
        desk.free("x");
        settle().await;
        let entered = (0..6).filter(|at| calls[*at].is_finished() && !order.contains(at));
        order.extend(entered.collect::<Vec<_>>());
    }
    assert_eq!(order, [0, 3, 5, 1, 4, 2]);
}

#[tokio::test(start_paused = true)]
async fn slots_freed_elsewhere_are_found_and_only_one_call_looks_for_them() {
    let mut desk = Desk::new(0, 100, LONG);
    desk.round_trip = Duration::from_millis(2);
    let desk = Arc::new(desk);
    let mut calls = Vec::new();
    for caller in 0..50 {
        calls.push(start(&desk, &caller.to_string(), 1).await);
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    desk.most_trying.store(0, Ordering::Relaxed);
    let before = desk.attempts.load(Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let idle = desk.attempts.load(Ordering::Relaxed) - before;
    assert!((15..=20).contains(&idle), "{idle} attempts in a second in vain");
    // Ten at once, as when another instance's calls expire: found one after the other, at once.
    for _ in 0..10 {
        desk.free_elsewhere();
    }
    tokio::time::sleep(QUEUE_RETRY + 12 * desk.round_trip).await;
    assert_eq!(calls.iter().filter(|call| call.is_finished()).count(), 10);
    // Twenty of this process: one attempt each.
    let before = desk.attempts.load(Ordering::Relaxed);
    for _ in 0..20 {
        desk.free("x");
    }
    tokio::time::sleep(20 * desk.round_trip + Duration::from_millis(1)).await;
    assert_eq!(calls.iter().filter(|call| call.is_finished()).count(), 30);
    assert!(desk.attempts.load(Ordering::Relaxed) - before <= 21);
    assert_eq!(desk.most_trying.load(Ordering::Relaxed), 1);
    calls.iter().for_each(JoinHandle::abort);
    settle().await;
    assert_eq!(desk.queues.queues(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_is_freed_before_a_refused_call_can_queue_is_not_missed() {
    let desk = Desk::new(0, 10, LONG);
    let mut attempts = 0;
    let attempt = || {
        let outcome = desk.take();
        attempts += 1;
        if attempts == 1 {
            desk.free("x");
        }
        async move { outcome }
    };
    let claim = Claim { key: "m", caller: "a", weight: 1 };
    let entered = desk.queues.enter(claim, attempt, is_full).await.expect("a slot");
    assert_eq!((entered.waited, attempts), (Duration::ZERO, 2));
}

#[tokio::test(start_paused = true)]
async fn a_wait_is_bounded_in_time() {
    let desk = Arc::new(Desk::new(0, 10, Duration::from_millis(320)));
    let since = Instant::now();
    let first = start(&desk, "a", 1).await;
    let second = start(&desk, "b", 1).await;
    let first = first.await.expect("a task").expect_err("no slot");
    assert_eq!(since.elapsed(), Duration::from_millis(320));
    assert_eq!((first.reason, first.waited), (RefusedReason::TimedOut, since.elapsed()));
    assert_eq!(first.into_error(|| Failure::Broken), Failure::Full, "its own");
    let second = second.await.expect("a task").expect_err("no slot");
    assert_eq!((second.reason, &second.error), (RefusedReason::TimedOut, &None), "had no turn");
    assert_eq!(second.into_error(|| Failure::Full), Failure::Full);
    assert_eq!(desk.queues.queues(), 0);
    let endless = Arc::new(Desk::new(0, 10, Duration::MAX));
    let call = start(&endless, "a", 1).await;
    assert!(!call.is_finished(), "there is such a time");
    call.abort();
}

#[tokio::test(start_paused = true)]
async fn another_error_ends_a_wait_and_hands_the_slot_on() {
    let desk = Arc::new(Desk::new(0, 10, LONG));
    let queued = Arc::clone(&desk);
    let failing = tokio::spawn(async move {
        let mut tried = false;
        let claim = Claim { key: "m", caller: "a", weight: 1 };
        let attempt = || {
            let failure = if tried { Failure::Broken } else { Failure::Full };
            tried = true;
            async move { Err(failure) }
        };
        queued.queues.enter(claim, attempt, is_full).await
    });
    settle().await;
    let next = start(&desk, "b", 1).await;
    desk.free("x");
    settle().await;
    let outcome = failing.await.expect("a task");
    assert_eq!(refused(outcome), (RefusedReason::Attempt, Some(Failure::Broken)));
    assert!(next.is_finished(), "in the same moment");
    let broken = || async { Err::<(), _>(Failure::Broken) };
    let claim = Claim { key: "m", caller: "a", weight: 1 };
    let outcome = desk.queues.enter(claim, broken, is_full).await;
    assert_eq!(refused(outcome), (RefusedReason::Attempt, Some(Failure::Broken)));
}

#[tokio::test(start_paused = true)]
async fn a_full_room_is_shared_too() {
    let desk = Arc::new(Desk::new(0, 6, LONG));
    let mut hog = Vec::new();
    for _ in 0..6 {
        hog.push(start(&desk, "hog", 1).await);
    }
    let seventh = start(&desk, "hog", 1).await.await.expect("a task");
    assert_eq!(refused(seventh), (RefusedReason::Crowded, None));
    let mut others = Vec::new();
    for caller in ["a", "a", "a", "a", "b"] {
        others.push(start(&desk, caller, 1).await);
    }
    // Newest first; and a fourth of `a`'s would have taken more than the hog had left.
    let gone: Vec<bool> = hog.iter().map(JoinHandle::is_finished).collect();
    assert_eq!(gone, [false, false, true, true, true, true]);
    assert_eq!(refused(hog.pop().unwrap().await.expect("a task")).0, RefusedReason::Crowded);
    let gone: Vec<bool> = others.iter().map(JoinHandle::is_finished).collect();
    assert_eq!(gone, [false, false, false, true, false]);
    assert_eq!(desk.queues.waiting(), 6);
    // Weight counts: three places for a weight of 3 are as one.
    let mut heavy = Vec::new();
    for _ in 0..6 {
        heavy.push(start(&desk, "heavy", 3).await);
    }
    assert_eq!(heavy.iter().filter(|call| !call.is_finished()).count(), 3);
    assert!(!hog[0].is_finished() && !others[0].is_finished() && !others[4].is_finished());
    assert_eq!(desk.queues.waiting(), 6, "and nobody's only call has to go");
}

#[tokio::test(start_paused = true)]
async fn a_room_without_places_refuses_at_once() {
    let desk = Desk::new(1, 0, LONG);
    desk.enter("a", 1).await.expect("a slot");
    let outcome = desk.enter("a", 1).await;
    assert_eq!(refused(outcome), (RefusedReason::Crowded, Some(Failure::Full)));
    assert_eq!(desk.queues.queues(), 0);
}

#[tokio::test(start_paused = true)]
async fn keys_do_not_hold_each_other_up() {
    let desk = Arc::new(Desk::new(0, 10, LONG));
    let waiting = start(&desk, "a", 1).await;
    let claim = Claim { key: "another", caller: "a", weight: 1 };
    let entered = desk.queues.enter(claim, || async { Ok::<_, Failure>(7) }, is_full).await;
    assert_eq!(entered.expect("a slot").grant, 7);
    desk.queues.freed("another", "a");
    settle().await;
    assert!(!waiting.is_finished());
    waiting.abort();
}
