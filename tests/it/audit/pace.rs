//! When the disk is written and synced, by whom, and what is said of one that hangs.

use std::{
    sync::Arc,
    task::Poll,
    thread,
    time::{Duration, Instant},
};

use futures_util::poll;
use jiff::{SignedDuration, Timestamp};
use tollgate::audit::{Audit, Entry, WRITE_DEADLINE, spool::SpoolSettings};

use super::{
    faulty::Mode,
    handle::{LONG, SETTINGS, Stage, eventually},
    support::{denial, intent, settle},
};

async fn is_refused_at_once(audit: &Audit) -> bool {
    let mut call = Box::pin(audit.intent(intent()));
    matches!(poll!(&mut call), Poll::Ready(Err(_)))
}

#[tokio::test]
async fn what_is_written_is_synced_soon_and_many_writes_at_once() {
    let stage = Stage::new(Mode::Hang);
    let began = Instant::now();
    for _ in 0..300 {
        stage.audit.intent(intent()).await.unwrap();
    }
    eventually(|| !stage.disk.is_dirty()).await;
    let intervals = began.elapsed().as_millis() / 50;
    let syncs = stage.disk.syncs() as u128;
    assert!((1..=intervals + 1).contains(&syncs), "{syncs} in {intervals} intervals");
}

#[tokio::test]
async fn in_strict_durability_an_intent_is_synced_when_it_returns() {
    let strict = SpoolSettings { is_strict: true, segment_bytes: 4_000, ..SETTINGS };
    let stage = Stage::over(Arc::default(), Mode::Work, strict);
    for _ in 0..100 {
        stage.audit.intent(intent()).await.unwrap();
        assert!(!stage.disk.is_dirty());
    }
}

#[tokio::test]
async fn no_thread_of_the_runtime_waits_for_the_disk() {
    let small = SpoolSettings { segment_bytes: 4_000, ..SETTINGS };
    let stage = Stage::over(Arc::default(), Mode::Work, small);
    stage.disk.take_callers();
    for round in 0..100 {
        let call = intent();
        stage.audit.intent(call.clone()).await.unwrap();
        stage.audit.record(settle(&call)).await;
        if round % 30 == 0 {
            stage.audit.flush(LONG).await.unwrap();
            stage.disk.set_broken(true);
            stage.audit.record(denial()).await;
            eventually(|| !stage.audit.healthy()).await;
            stage.disk.set_broken(false);
            eventually(|| stage.audit.healthy()).await;
        }
    }
    stage.audit.shutdown(LONG).await.unwrap();
    assert_eq!(stage.disk.names(), ["head"]);
    let callers = stage.disk.take_callers();
    assert!(!callers.is_empty());
    // All tasks of the test's runtime run on its own thread.
    assert!(!callers.contains(&thread::current().id()));
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_hangs_is_told_of_and_calls_are_refused_at_once() {
    let (stage, first) = Stage::with_a_hanging_disk().await;
    assert!(stage.audit.healthy(), "not yet");
    assert!(!first.await.unwrap());
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(!stage.audit.healthy() && !stage.audit.status().is_spool_up);
    assert!(is_refused_at_once(&stage.audit).await);
    stage.disk.set_hanging(false);
    eventually(|| stage.audit.healthy()).await;
}

#[tokio::test(start_paused = true)]
async fn a_disk_whose_syncs_hang_is_told_of_too() {
    let stage = Stage::new(Mode::Work);
    stage.disk.set_sync_hanging(true);
    stage.audit.record(denial()).await;
    eventually(|| stage.audit.unwritten() == 0).await;
    assert!(stage.audit.healthy());
    while stage.disk.syncs() == 0 {
        tokio::time::advance(Duration::from_millis(50)).await;
    }
    tokio::time::advance(WRITE_DEADLINE).await;
    assert!(!stage.audit.healthy() && !stage.audit.status().is_spool_up);
    assert!(is_refused_at_once(&stage.audit).await);
    stage.disk.set_sync_hanging(false);
    eventually(|| stage.audit.healthy()).await;
}

#[tokio::test]
async fn a_clock_that_is_set_back_changes_no_order() {
    let mut disk = Arc::default();
    let mut written: Vec<String> = Vec::new();
    let mut now = Timestamp::now();
    for _ in 0..3 {
        let stage = Stage::over(Arc::clone(&disk), Mode::Work, SETTINGS);
        for _ in 0..20 {
            now -= SignedDuration::from_hours(7);
            let id = uuid::Uuid::new_v7(uuid::Timestamp::from_unix(
                uuid::NoContext,
                u64::try_from(now.as_second()).unwrap(),
                0,
            ));
            written.push(id.to_string());
            stage.audit.record(Entry { id, time: now, ..denial() }).await;
        }
        stage.audit.shutdown(LONG).await.unwrap();
        let last = u64::try_from(written.len()).unwrap();
        assert_eq!(stage.sink.seqs(), (last - 19..=last).collect::<Vec<_>>());
        let ids: Vec<_> = stage.sink.lines().into_iter().map(|line| line.id).collect();
        assert_eq!(ids, written[written.len() - 20..]);
        disk = Arc::clone(&stage.disk);
    }
}
