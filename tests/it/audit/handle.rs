//! The handle: what it says of an intent is true, whatever the disk and the store do.
//!
//! The writer is a real thread, so these tests wait in real time; where time is paused, it is to
//! see that a call does not wait, or waits for its deadline, while the disk hangs.

use std::{sync::Arc, time::Duration};

use futures_util::poll;
use tokio::{
    task::{JoinHandle, yield_now},
    time::Instant,
};
use tokio_util::task::TaskTracker;
use tollgate::{
    audit::{
        Audit, Entry, Unwritten, WRITE_DEADLINE,
        spool::{SEGMENT_BYTES, Spool, SpoolSettings},
    },
    redact::LiveRedactor,
};

use super::{
    fake_disk::{FakeDisk, Fault},
    faulty::{FaultySink, Mode},
    support::{Line, denial, intent, kinds_of, settle},
};

pub const LONG: Duration = Duration::from_mins(1);
pub const SETTINGS: SpoolSettings =
    SpoolSettings { limit_bytes: 64 << 20, segment_bytes: SEGMENT_BYTES, is_strict: false };

/// A handle over a disk and a store that fail when told.
pub struct Stage {
    pub audit: Audit,
    pub disk: Arc<FakeDisk>,
    pub sink: Arc<FaultySink>,
    pub tasks: TaskTracker,
}

impl Stage {
    pub fn new(mode: Mode) -> Self {
        Self::over(Arc::default(), mode, SETTINGS)
    }

    pub fn over(disk: Arc<FakeDisk>, mode: Mode, settings: SpoolSettings) -> Self {
        let (sink, tasks) = (Arc::new(FaultySink::new(mode)), TaskTracker::new());
        let spool = Spool::open(disk.clone(), settings).unwrap();
        let audit = Audit::start(spool, sink.clone(), LiveRedactor::default(), &tasks).unwrap();
        Self { audit, disk, sink, tasks }
    }

    /// Its call has its intent in hand, and the disk does not answer.
    pub async fn with_a_hanging_disk() -> (Self, JoinHandle<bool>) {
        let stage = Self::new(Mode::Work);
        stage.disk.set_hanging(true);
        let first = spawn_intent(&stage.audit, &intent());
        eventually(|| stage.disk.appends() == 1).await;
        (stage, first)
    }

    /// All that was taken, as the store has it.
    pub async fn lines(&self) -> Vec<Line> {
        self.audit.flush(LONG).await.unwrap();
        self.sink.lines()
    }

    async fn ended(self) {
        drop(self.audit);
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Polls in real time, also where the clock is paused.
pub async fn eventually(mut is_so: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(std::time::Instant::now() < deadline, "it never came to be so");
        yield_now().await;
        std::thread::yield_now();
    }
}

/// What the next process would find in the spool.
fn spooled(disk: &FakeDisk) -> Vec<Line> {
    let Spool { mut reader, .. } = Spool::open(Arc::new(disk.copy()), SETTINGS).unwrap();
    let mut lines = Vec::new();
    while reader.read().unwrap() > 0 {
        lines.extend(reader.batch().unwrap().iter().map(|linked| Line::from(&linked.record)));
        reader.acknowledge();
    }
    lines
}

fn spawn_intent(audit: &Audit, entry: &Entry) -> JoinHandle<bool> {
    let (audit, entry) = (audit.clone(), entry.clone());
    tokio::spawn(async move { audit.intent(entry).await.is_ok() })
}

#[tokio::test]
async fn an_intent_is_in_the_spool_when_it_returns_and_then_comes_to_the_store() {
    let stage = Stage::new(Mode::Hang);
    let call = intent();
    stage.audit.intent(call.clone()).await.unwrap();
    assert_eq!(spooled(&stage.disk), [Line::from(&call)]);
    assert!(stage.audit.healthy());
    stage.sink.set(Mode::Work);
    assert_eq!(stage.lines().await, [Line::from(&call)]);
    let status = stage.audit.status();
    assert_eq!((status.unshipped, status.unwritten), (0, 0));
    assert!(status.is_spool_up && status.is_store_up && !status.is_spool_full);
}

#[tokio::test]
async fn calls_that_come_while_a_group_is_written_share_the_next() {
    let (stage, first) = Stage::with_a_hanging_disk().await;
    let waiting: Vec<_> = (0..100).map(|_| spawn_intent(&stage.audit, &intent())).collect();
    eventually(|| stage.audit.unwritten() == 101).await;
    assert!(!first.is_finished() && waiting.iter().all(|call| !call.is_finished()));
    stage.disk.set_hanging(false);
    for call in waiting {
        assert!(call.await.unwrap());
    }
    assert!(first.await.unwrap());
    assert_eq!(stage.disk.appends(), 2);
}

#[tokio::test]
async fn an_intent_that_could_not_be_written_is_refused_and_taken_back() {
    for fault in [Fault::Before, Fault::Midway(200), Fault::After] {
        let stage = Stage::new(Mode::Work);
        stage.audit.intent(intent()).await.unwrap();
        // Else the fault might meet the sync of what was written.
        stage.audit.flush(LONG).await.unwrap();
        stage.disk.plan(vec![Some(fault)]);
        let call = intent();
        stage.audit.intent(call.clone()).await.unwrap_err();
        let mut refusal = denial();
        refusal.call_id = call.call_id;
        stage.audit.denied(refusal);
        assert_eq!(kinds_of(&call, &stage.lines().await), ["denied"], "{fault:?}");
    }
}

#[tokio::test]
async fn while_the_disk_fails_calls_are_refused_at_once_until_it_recovers() {
    let stage = Stage::new(Mode::Work);
    stage.disk.set_broken(true);
    stage.audit.intent(intent()).await.unwrap_err();
    assert!(!stage.audit.healthy() && !stage.audit.status().is_spool_up);
    let call = intent();
    let mut refused = Box::pin(stage.audit.intent(call.clone()));
    assert!(matches!(poll!(&mut refused), std::task::Poll::Ready(Err(_))));
    stage.disk.set_broken(false);
    eventually(|| stage.audit.healthy()).await;
    stage.audit.intent(intent()).await.unwrap();
    assert!(kinds_of(&call, &stage.lines().await).is_empty());
}

#[tokio::test]
async fn while_the_disk_cannot_sync_calls_are_refused() {
    let stage = Stage::new(Mode::Work);
    stage.disk.set_unsyncable(true);
    stage.audit.intent(intent()).await.unwrap();
    eventually(|| !stage.audit.healthy()).await;
    stage.audit.intent(intent()).await.unwrap_err();
    assert!(stage.sink.lines().is_empty(), "what is not synced is not shipped");
    stage.disk.set_unsyncable(false);
    eventually(|| stage.audit.healthy()).await;
    stage.audit.intent(intent()).await.unwrap();

    let strict = SpoolSettings { is_strict: true, ..SETTINGS };
    let stage = Stage::over(Arc::default(), Mode::Work, strict);
    stage.audit.intent(intent()).await.unwrap();
    stage.disk.set_unsyncable(true);
    stage.audit.intent(intent()).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn a_hanging_disk_refuses_the_intent_at_the_deadline_and_its_call_is_closed() {
    let stage = Stage::new(Mode::Work);
    stage.disk.set_hanging(true);
    let (first, second) = (intent(), intent());
    let before = Instant::now();
    let waiting = spawn_intent(&stage.audit, &first);
    eventually(|| stage.disk.appends() == 1).await;
    for call in [waiting, spawn_intent(&stage.audit, &second)] {
        assert!(!call.await.unwrap());
    }
    assert_eq!(before.elapsed(), WRITE_DEADLINE);
    stage.disk.set_hanging(false);
    eventually(|| stage.audit.unwritten() == 0).await;
    let lines = spooled(&stage.disk);
    // As what it is closed depends on the clock, which stands still for its caller alone.
    assert!(matches!(&kinds_of(&first, &lines)[..], [intent, _end] if intent == "intent"));
    assert!(kinds_of(&second, &lines).is_empty(), "it was never tried");
}

#[tokio::test]
async fn a_call_given_up_while_its_intent_is_written_is_closed_as_canceled() {
    let stage = Stage::new(Mode::Work);
    stage.disk.set_hanging(true);
    let call = intent();
    let waiting = spawn_intent(&stage.audit, &call);
    eventually(|| stage.disk.appends() == 1).await;
    waiting.abort();
    waiting.await.unwrap_err();
    stage.disk.set_hanging(false);
    assert_eq!(kinds_of(&call, &stage.lines().await), ["intent", "canceled"]);
}

#[tokio::test]
async fn a_call_given_up_before_it_hears_of_its_intent_is_closed_as_canceled() {
    let stage = Stage::new(Mode::Work);
    let call = intent();
    stage.disk.set_hanging(true);
    let mut waiting = Box::pin(stage.audit.intent(call.clone()));
    assert!(poll!(&mut waiting).is_pending());
    stage.disk.set_hanging(false);
    eventually(|| stage.audit.unwritten() == 0).await;
    drop(waiting);
    assert_eq!(kinds_of(&call, &stage.lines().await), ["intent", "canceled"]);
}

#[tokio::test]
async fn a_call_given_up_in_the_queue_leaves_no_row() {
    let (stage, _first) = Stage::with_a_hanging_disk().await;
    let call = intent();
    let waiting = spawn_intent(&stage.audit, &call);
    eventually(|| stage.audit.unwritten() == 2).await;
    waiting.abort();
    waiting.await.unwrap_err();
    stage.disk.set_hanging(false);
    assert!(kinds_of(&call, &stage.lines().await).is_empty());
    assert_eq!(stage.audit.unwritten(), 0);
}

#[tokio::test]
async fn terminal_entries_outlast_a_failing_disk_and_are_written_once() {
    let stage = Stage::new(Mode::Work);
    let calls: Vec<_> = (0..300).map(|_| intent()).collect();
    for call in &calls {
        stage.audit.intent(call.clone()).await.unwrap();
    }
    stage.audit.flush(LONG).await.unwrap();
    stage.disk.set_broken(true);
    for call in &calls {
        stage.audit.record(settle(call)).await;
    }
    eventually(|| !stage.audit.healthy()).await;
    assert_eq!(stage.audit.flush(Duration::from_millis(50)).await, Err(Unwritten(300)));
    stage.disk.set_broken(false);
    let lines = stage.lines().await;
    for call in &calls {
        assert_eq!(kinds_of(call, &lines), ["intent", "settle"]);
    }
}

#[tokio::test]
async fn a_store_that_is_away_stops_no_call_and_gets_all_once_it_is_back() {
    for mode in [Mode::Fail, Mode::WriteAndFail, Mode::Hang, Mode::Panic] {
        let stage = Stage::new(mode);
        let calls: Vec<_> = (0..700).map(|_| intent()).collect();
        for call in &calls {
            stage.audit.intent(call.clone()).await.unwrap();
            stage.audit.record(settle(call)).await;
        }
        if mode != Mode::Hang {
            eventually(|| !stage.audit.status().is_store_up).await;
        }
        assert!(stage.audit.healthy(), "{mode:?}");
        stage.sink.set(Mode::Work);
        let lines = stage.lines().await;
        assert_eq!(lines.len(), 1_400, "{mode:?}");
        assert_eq!(stage.sink.seqs(), (1..=1_400).collect::<Vec<_>>(), "{mode:?}");
        assert!(stage.audit.status().is_store_up);
        assert!(stage.sink.batches().iter().all(|batch| *batch <= 512));
        for call in &calls {
            assert_eq!(kinds_of(call, &lines), ["intent", "settle"]);
        }
    }
}

#[tokio::test]
async fn shutdown_writes_what_was_taken_and_takes_no_more() {
    let stage = Stage::new(Mode::Work);
    let call = intent();
    stage.audit.intent(call.clone()).await.unwrap();
    for entry in (0..1_000).map(|_| denial()) {
        stage.audit.denied(entry);
    }
    stage.audit.record(settle(&call)).await;
    stage.audit.shutdown(LONG).await.unwrap();
    assert_eq!(stage.sink.lines().len(), 1_002);
    assert_eq!(stage.disk.names(), ["head"], "nothing waits");
    assert!(!stage.audit.healthy());
    stage.audit.intent(intent()).await.unwrap_err();
    stage.audit.record(settle(&intent())).await;
    stage.audit.shutdown(LONG).await.unwrap();
    stage.audit.flush(LONG).await.unwrap();
    assert_eq!(stage.sink.lines().len(), 1_002);
    stage.ended().await;
}

#[tokio::test]
async fn what_shutdown_can_not_ship_waits_for_the_next_start() {
    for mode in [Mode::Hang, Mode::Fail] {
        let stage = Stage::new(mode);
        for _ in 0..300 {
            stage.audit.record(denial()).await;
        }
        eventually(|| stage.audit.unwritten() == 0).await;
        let short = Duration::from_millis(200);
        assert_eq!(stage.audit.flush(short).await, Err(Unwritten(300)));
        stage.audit.shutdown(short).await.unwrap();
        assert_eq!(stage.audit.status().unshipped, 300);
        let disk = Arc::clone(&stage.disk);
        stage.ended().await;

        let next = Stage::over(disk, Mode::Work, SETTINGS);
        next.audit.record(denial()).await;
        assert_eq!(next.lines().await.len(), 301);
        assert_eq!(next.sink.seqs(), (1..=301).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn shutdown_says_what_it_had_to_lose() {
    let stage = Stage::new(Mode::Work);
    stage.disk.set_broken(true);
    for _ in 0..300 {
        stage.audit.record(denial()).await;
    }
    assert_eq!(stage.audit.shutdown(Duration::from_millis(100)).await, Err(Unwritten(300)));
    stage.ended().await;
}

#[tokio::test]
async fn the_writer_ends_with_the_last_handle_and_leaves_nothing() {
    let stage = Stage::new(Mode::Work);
    let (sink, disk) = (Arc::clone(&stage.sink), Arc::clone(&stage.disk));
    stage.audit.denied(denial());
    stage.ended().await;
    assert_eq!(sink.lines().len(), 1);
    assert_eq!(disk.names(), ["head"]);
}
