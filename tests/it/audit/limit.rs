//! The handle's bounds, with a sink that does not answer.

use std::time::Duration;

use futures_util::poll;
use tokio::time::{Instant, sleep};
use tollgate::audit::{Audit, DENIAL_LIMIT, Entry, INTENT_LIMIT, QUEUE_ENTRIES};

use super::{
    faulty::{FaultySink, Mode},
    handle::{LONG, start},
    support::{denial, intent, settle},
};

/// Puts `count` entries into the queue behind one that the writer has in hand.
async fn fill(audit: &Audit, count: usize) {
    audit.record(denial()).await;
    sleep(Duration::from_millis(1)).await;
    for _ in 0..count {
        audit.record(denial()).await;
    }
}

fn details(sink: &FaultySink) -> Vec<String> {
    sink.lines().into_iter().filter_map(|line| line.detail).collect()
}

#[tokio::test(start_paused = true)]
async fn past_the_limit_intents_are_refused_and_ends_still_taken() {
    let (audit, sink, _) = start(Mode::Hang);
    fill(&audit, INTENT_LIMIT - 1).await;
    assert!(audit.healthy());
    let mut last = Box::pin(audit.intent(intent()));
    assert!(poll!(&mut last).is_pending(), "the last one that there is room for");

    assert!(!audit.healthy());
    let before = Instant::now();
    audit.intent(intent()).await.unwrap_err();
    audit.record(settle(&intent())).await;
    assert_eq!(before.elapsed(), Duration::ZERO);

    sink.set(Mode::Work);
    last.await.unwrap();
    audit.flush(LONG).await.unwrap();
    assert!(audit.healthy());
    assert_eq!(sink.lines().len(), 1 + INTENT_LIMIT + 1);
}

#[tokio::test(start_paused = true)]
async fn past_the_last_limit_ends_wait_for_room_and_get_it() {
    let (audit, sink, _) = start(Mode::Hang);
    fill(&audit, QUEUE_ENTRIES).await;
    let mut waiting = Box::pin(audit.record(denial()));
    assert!(poll!(&mut waiting).is_pending());
    sink.set(Mode::Work);
    waiting.await;
    audit.flush(LONG).await.unwrap();
    assert_eq!(sink.lines().len(), 1 + QUEUE_ENTRIES + 1);
}

#[tokio::test(start_paused = true)]
async fn an_end_given_up_while_it_waits_for_room_is_not_counted_as_taken() {
    let (audit, sink, _) = start(Mode::Hang);
    fill(&audit, QUEUE_ENTRIES).await;
    let mut waiting = Box::pin(audit.record(denial()));
    assert!(poll!(&mut waiting).is_pending());
    drop(waiting);
    assert_eq!(audit.unwritten(), 1 + QUEUE_ENTRIES);
    sink.set(Mode::Work);
    audit.flush(LONG).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_denials_is_counted_and_leaves_room_for_calls() {
    let (audit, sink, _) = start(Mode::Hang);
    audit.denied(denial());
    sleep(Duration::from_millis(1)).await;
    for _ in 0..DENIAL_LIMIT + 1_234 {
        audit.denied(denial());
    }
    assert!(audit.healthy());
    let mut call = Box::pin(audit.intent(intent()));
    assert!(poll!(&mut call).is_pending());
    sink.set(Mode::Work);
    call.await.unwrap();
    audit.flush(LONG).await.unwrap();
    assert_eq!(details(&sink), ["1234 denials not recorded"]);
    assert_eq!(sink.lines().len(), 1 + DENIAL_LIMIT + 1 + 1);

    audit.denied(denial());
    audit.flush(LONG).await.unwrap();
    assert_eq!(details(&sink).len(), 1, "said once");
}

#[tokio::test(start_paused = true)]
async fn denials_missed_just_before_the_end_are_told_of_too() {
    let (audit, sink, _) = start(Mode::Hang);
    fill(&audit, DENIAL_LIMIT).await;
    audit.denied(Entry { detail: Some("too many".to_owned()), ..denial() });
    sink.set(Mode::Work);
    audit.shutdown(LONG).await.unwrap();
    assert_eq!(details(&sink), ["1 denials not recorded"]);
}
