//! The handle's bounds, with a disk that does not answer and a spool that is full.

use std::{sync::Arc, task::Poll, time::Duration};

use futures_util::poll;
use tollgate::audit::{
    Audit, DENIAL_LIMIT, Entry, INTENT_LIMIT, QUEUE_ENTRIES, spool::SpoolSettings,
};

use super::{
    faulty::Mode,
    handle::{LONG, SETTINGS, Stage, eventually},
    support::{denial, intent, settle},
};

/// Puts `count` entries into the queue behind one that the writer has in hand.
async fn fill(audit: &Audit, count: usize) {
    for _ in 0..count {
        audit.record(denial()).await;
    }
}

async fn details(stage: &Stage) -> Vec<String> {
    stage.lines().await.into_iter().filter_map(|line| line.detail).collect()
}

#[tokio::test]
async fn past_the_limit_intents_are_refused_and_ends_still_taken() {
    let (stage, first) = Stage::with_a_hanging_disk().await;
    fill(&stage.audit, INTENT_LIMIT - 1).await;
    assert!(stage.audit.healthy());
    let mut last = Box::pin(stage.audit.intent(intent()));
    assert!(poll!(&mut last).is_pending(), "the last one that there is room for");

    assert!(!stage.audit.healthy());
    let mut refused = Box::pin(stage.audit.intent(intent()));
    assert!(matches!(poll!(&mut refused), Poll::Ready(Err(_))));
    stage.audit.record(settle(&intent())).await;

    stage.disk.set_hanging(false);
    last.await.unwrap();
    assert!(first.await.unwrap());
    assert_eq!(stage.lines().await.len(), 1 + INTENT_LIMIT + 1);
    assert!(stage.audit.healthy());
}

#[tokio::test]
async fn past_the_last_limit_ends_wait_for_room_and_get_it() {
    let (stage, _first) = Stage::with_a_hanging_disk().await;
    fill(&stage.audit, QUEUE_ENTRIES).await;
    let mut waiting = Box::pin(stage.audit.record(denial()));
    assert!(poll!(&mut waiting).is_pending());
    stage.disk.set_hanging(false);
    waiting.await;
    assert_eq!(stage.lines().await.len(), 1 + QUEUE_ENTRIES + 1);
}

#[tokio::test]
async fn an_end_given_up_while_it_waits_for_room_is_not_counted_as_taken() {
    let (stage, _first) = Stage::with_a_hanging_disk().await;
    fill(&stage.audit, QUEUE_ENTRIES).await;
    let mut waiting = Box::pin(stage.audit.record(denial()));
    assert!(poll!(&mut waiting).is_pending());
    drop(waiting);
    assert_eq!(stage.audit.unwritten(), 1 + QUEUE_ENTRIES);
    stage.disk.set_hanging(false);
    stage.audit.flush(LONG).await.unwrap();
}

#[tokio::test]
async fn a_flood_of_denials_is_counted_and_leaves_room_for_calls() {
    let (stage, _first) = Stage::with_a_hanging_disk().await;
    for _ in 0..DENIAL_LIMIT + 1_234 {
        stage.audit.denied(denial());
    }
    assert!(stage.audit.healthy());
    let mut call = Box::pin(stage.audit.intent(intent()));
    assert!(poll!(&mut call).is_pending());
    stage.disk.set_hanging(false);
    call.await.unwrap();
    assert_eq!(details(&stage).await, ["1234 denials not recorded"]);
    assert_eq!(stage.sink.lines().len(), 1 + DENIAL_LIMIT + 1 + 1);

    stage.audit.denied(denial());
    assert_eq!(details(&stage).await.len(), 1, "said once");
}

#[tokio::test]
async fn denials_missed_just_before_the_end_are_told_of_too() {
    let (stage, _first) = Stage::with_a_hanging_disk().await;
    fill(&stage.audit, DENIAL_LIMIT).await;
    stage.audit.denied(Entry { detail: Some("too many".to_owned()), ..denial() });
    stage.disk.set_hanging(false);
    stage.audit.shutdown(LONG).await.unwrap();
    let details: Vec<_> = stage.sink.lines().into_iter().filter_map(|line| line.detail).collect();
    assert_eq!(details, ["1 denials not recorded"]);
}

#[tokio::test]
async fn a_full_spool_refuses_intents_takes_ends_and_then_has_them_wait() {
    let settings = SpoolSettings { limit_bytes: 40_000, segment_bytes: 8_000, ..SETTINGS };
    let stage = Stage::over(Arc::default(), Mode::Fail, settings);
    let mut calls = Vec::new();
    while !stage.audit.status().is_spool_full {
        let call = intent();
        stage.audit.intent(call.clone()).await.unwrap();
        calls.push(call);
    }
    stage.audit.intent(intent()).await.unwrap_err();
    assert!(!stage.audit.healthy() && stage.audit.status().is_spool_up);
    stage.audit.record(settle(&calls[0])).await;
    eventually(|| stage.audit.unwritten() == 0).await;
    let mut ends = calls[1..].iter().map(settle);
    while stage.audit.status().spool_bytes < 45_000 {
        stage.audit.record(ends.next().unwrap()).await;
        eventually(|| stage.audit.unwritten() == 0).await;
    }
    let full = stage.audit.status().spool_bytes;
    let rest: Vec<_> = ends.take(20).collect();
    for end in &rest {
        stage.audit.record(end.clone()).await;
    }
    stage.audit.flush(Duration::from_millis(100)).await.unwrap_err();
    assert_eq!(stage.audit.unwritten(), rest.len(), "what is beyond the reserve waits in memory");
    assert_eq!(stage.audit.status().spool_bytes, full);

    stage.sink.set(Mode::Work);
    let ends = stage.lines().await.iter().filter(|line| line.kind == "settle").count();
    assert!(ends > rest.len());
    eventually(|| stage.audit.healthy()).await;
    stage.audit.intent(intent()).await.unwrap();
}
