//! Batches at random, sent by several gateways, some again: each real sink ends up with what a sink
//! in memory has.

use proptest::prelude::*;
use tollgate::audit::{Entry, EntryKind};

use super::{
    contract::{Fixture, Sqlite},
    faulty::{FaultySink, Mode},
    postgres::Postgres,
    support::{Batch, denial, intent, settle},
};

/// What is sent of one call, or of none.
#[derive(Debug, Clone, Copy)]
enum Sent {
    Intent(usize),
    Settle(usize),
    Canceled(usize),
    ToolCall(usize),
    Denial,
}

#[derive(Debug, Clone)]
enum Step {
    New(Vec<Sent>),
    /// A batch of before, once more.
    Again(prop::sample::Index),
}

const CALLS: usize = 5;

fn sent() -> impl Strategy<Value = Sent> {
    prop_oneof![
        (0..CALLS).prop_map(Sent::Intent),
        (0..CALLS).prop_map(Sent::Settle),
        (0..CALLS).prop_map(Sent::Canceled),
        (0..CALLS).prop_map(Sent::ToolCall),
        Just(Sent::Denial),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => prop::collection::vec(sent(), 1..8).prop_map(Step::New),
        1 => any::<prop::sample::Index>().prop_map(Step::Again),
    ]
}

fn entry(sent: Sent, calls: &[Entry]) -> Entry {
    match sent {
        Sent::Intent(call) => calls[call].follow_up(EntryKind::Intent),
        Sent::Settle(call) => settle(&calls[call]),
        Sent::Canceled(call) => calls[call].follow_up(EntryKind::Canceled),
        Sent::ToolCall(call) => calls[call].follow_up(EntryKind::ToolCall),
        Sent::Denial => denial(),
    }
}

async fn run<F: Fixture>(fixture: &F, steps: &[Step]) {
    let calls: Vec<_> = (0..CALLS).map(|_| intent()).collect();
    let model = FaultySink::new(Mode::Work);
    // The store goes on from case to case.
    let before = fixture.lines().await.len();
    let mut batches: Vec<Batch> = Vec::new();
    for step in steps {
        let at = match step {
            Step::New(sent) => {
                let entries: Vec<_> = sent.iter().map(|sent| entry(*sent, &calls)).collect();
                batches.push(Batch::of(&entries));
                batches.len() - 1
            }
            Step::Again(_) if batches.is_empty() => continue,
            Step::Again(at) => at.index(batches.len()),
        };
        for sink in [fixture.sink(), &model] {
            sink.append(&batches[at].linked()).await.unwrap();
        }
    }
    assert_eq!(fixture.lines().await[before..], model.lines());
}

fn check<F: Fixture>() {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
    let fixture = runtime.block_on(F::make());
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 40,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let checked = runner.run(&prop::collection::vec(step(), 1..12), |steps| {
        runtime.block_on(run(&fixture, &steps));
        Ok(())
    });
    checked.unwrap();
    // Postgres is a child of this runtime's.
    runtime.block_on(async { drop(fixture) });
}

#[test]
fn sqlite_agrees_with_the_model() {
    check::<Sqlite>();
}

#[test]
fn postgres_agrees_with_the_model() {
    check::<Postgres>();
}
