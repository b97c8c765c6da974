//! Calls at random over a disk and a store that break at random: nothing lost, doubled or left open.

use std::{collections::HashSet, sync::Arc, time::Duration};

use proptest::prelude::*;
use tokio::time::{sleep, timeout};
use tollgate::audit::{Audit, Entry};

use super::{
    fake_disk::Fault,
    faulty::Mode,
    handle::{LONG, SETTINGS, Stage},
    support::{intent, kinds_of, settle},
};

#[derive(Debug, Clone)]
struct Step {
    store: Mode,
    is_disk_broken: bool,
    faults: Vec<Option<Fault>>,
    calls: usize,
    /// The callers of this step's calls wait so long for their intent, in milliseconds.
    patience_ms: u64,
    pause_ms: u64,
}

fn fault() -> impl Strategy<Value = Option<Fault>> {
    prop_oneof![
        4 => Just(None),
        1 => Just(Some(Fault::Before)),
        1 => any::<u8>().prop_map(|share| Some(Fault::Midway(share))),
        1 => Just(Some(Fault::After)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let store = prop_oneof![
        3 => Just(Mode::Work),
        1 => Just(Mode::Fail),
        1 => Just(Mode::WriteAndFail),
        1 => Just(Mode::Hang),
    ];
    let faults = prop::collection::vec(fault(), 0..6);
    let patience_ms = prop_oneof![Just(0_u64), 0_u64..5, Just(60_000)];
    let disk = prop::bool::weighted(0.2);
    (store, disk, faults, 0_usize..20, patience_ms, 0_u64..10).prop_map(
        |(store, is_disk_broken, faults, calls, patience_ms, pause_ms)| Step {
            store,
            is_disk_broken,
            faults,
            calls,
            patience_ms,
            pause_ms,
        },
    )
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

async fn run(steps: Vec<Step>) {
    let settings = tollgate::audit::spool::SpoolSettings { segment_bytes: 4_000, ..SETTINGS };
    let stage = Stage::over(Arc::default(), Mode::Work, settings);
    let mut calls = Vec::new();
    for step in steps {
        stage.sink.set(step.store);
        stage.disk.set_broken(step.is_disk_broken);
        stage.disk.plan(step.faults);
        let patience = Duration::from_millis(step.patience_ms);
        let spawn = |_| tokio::spawn(call(stage.audit.clone(), intent(), patience));
        calls.extend((0..step.calls).map(spawn));
        sleep(Duration::from_millis(step.pause_ms)).await;
    }
    stage.sink.set(Mode::Work);
    stage.disk.set_broken(false);
    stage.disk.plan(Vec::new());
    let mut answers = Vec::new();
    for call in calls {
        answers.push(call.await.unwrap());
    }
    stage.audit.shutdown(LONG).await.unwrap();
    assert!(stage.disk.names().iter().all(|name| name == "head"));

    let lines = stage.sink.lines();
    let ids: HashSet<_> = lines.iter().map(|line| &line.id).collect();
    assert_eq!(ids.len(), lines.len(), "no id twice");
    assert!(stage.sink.seqs().is_sorted(), "in order");
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
    // In real time, as the writer is a thread.
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn every_intent_that_is_there_has_one_end(steps in prop::collection::vec(step(), 1..12)) {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        runtime.worker_threads(2).enable_time().build().unwrap().block_on(run(steps));
    }
}
