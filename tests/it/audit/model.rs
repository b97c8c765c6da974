//! Calls at random over a sink that breaks at random: nothing lost, doubled or left open.

use std::{collections::HashSet, sync::Arc, time::Duration};

use proptest::prelude::*;
use tokio::time::{sleep, timeout};
use tokio_util::task::TaskTracker;
use tollgate::{
    audit::{Audit, Entry},
    redact::LiveRedactor,
};

use super::{
    faulty::{FaultySink, Mode},
    handle::LONG,
    support::{intent, kinds_of, settle},
};

#[derive(Debug, Clone)]
struct Step {
    mode: Mode,
    calls: usize,
    /// The callers of this step's calls wait so long for their intent, in milliseconds.
    patience_ms: u64,
    pause_ms: u64,
}

fn step() -> impl Strategy<Value = Step> {
    let mode = prop_oneof![
        3 => Just(Mode::Work),
        1 => Just(Mode::Fail),
        1 => Just(Mode::WriteAndFail),
        1 => Just(Mode::Hang),
    ];
    let patience_ms = prop_oneof![Just(0_u64), 0_u64..8_000, Just(60_000)];
    let pause_ms = prop_oneof![Just(0_u64), 0_u64..3_000];
    (mode, 0_usize..20, patience_ms, pause_ms).prop_map(|(mode, calls, patience_ms, pause_ms)| {
        Step { mode, calls, patience_ms, pause_ms }
    })
}

#[derive(Debug, PartialEq)]
enum Answer {
    Yes,
    No,
    GaveUp,
}

/// A call as the pipeline makes it: its intent, then, if it may leave, its end.
async fn call(audit: Audit, entry: Entry, patience: Duration) -> (Entry, Answer) {
    let answer = match timeout(patience, audit.intent(entry.clone())).await {
        Ok(Ok(())) => Answer::Yes,
        Ok(Err(_)) => Answer::No,
        Err(_) => Answer::GaveUp,
    };
    if answer == Answer::Yes {
        audit.record(settle(&entry)).await;
    }
    (entry, answer)
}

async fn run(steps: &[Step]) {
    let (sink, tasks) = (Arc::new(FaultySink::new(Mode::Work)), TaskTracker::new());
    let audit = Audit::start(sink.clone(), LiveRedactor::default(), &tasks);
    let mut calls = Vec::new();
    for step in steps {
        sink.set(step.mode);
        let patience = Duration::from_millis(step.patience_ms);
        calls
            .extend((0..step.calls).map(|_| tokio::spawn(call(audit.clone(), intent(), patience))));
        sleep(Duration::from_millis(step.pause_ms)).await;
    }
    sink.set(Mode::Work);
    let mut answers = Vec::new();
    for call in calls {
        answers.push(call.await.unwrap());
    }
    audit.shutdown(LONG).await.unwrap();

    let lines = sink.lines();
    let ids: HashSet<_> = lines.iter().map(|line| &line.id).collect();
    assert_eq!(ids.len(), lines.len(), "no id twice");
    for (entry, answer) in answers {
        let kinds = kinds_of(&entry, &lines);
        let kinds: Vec<_> = kinds.iter().map(String::as_str).collect();
        let is_sound = match answer {
            Answer::Yes => kinds == ["intent", "settle"],
            Answer::No => matches!(kinds[..], [] | ["denied"] | ["intent", "denied"]),
            Answer::GaveUp => {
                matches!(kinds[..], [] | ["denied"] | ["intent", "denied" | "canceled"])
            }
        };
        assert!(is_sound, "{answer:?} and the rows are {kinds:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn every_intent_that_is_there_has_one_end(steps in prop::collection::vec(step(), 1..12)) {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap()
            .block_on(run(&steps));
    }
}
