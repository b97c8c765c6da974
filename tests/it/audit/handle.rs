//! The handle: what it says of an intent is true, whatever the sink does.

use std::{sync::Arc, time::Duration};

use futures_util::poll;
use tokio::{
    task::yield_now,
    time::{Instant, sleep},
};
use tokio_util::task::TaskTracker;
use tollgate::{
    audit::{Audit, Entry, Unwritten, WRITE_DEADLINE},
    redact::LiveRedactor,
};

use super::{
    faulty::{FaultySink, Mode},
    support::{Line, denial, intent, kinds_of, settle},
};

pub const LONG: Duration = Duration::from_mins(1);

pub fn start(mode: Mode) -> (Audit, Arc<FaultySink>, TaskTracker) {
    let (sink, tasks) = (Arc::new(FaultySink::new(mode)), TaskTracker::new());
    let audit = Audit::start(sink.clone(), LiveRedactor::default(), &tasks);
    (audit, sink, tasks)
}

fn spawn_intent(audit: &Audit, entry: &Entry) -> tokio::task::JoinHandle<bool> {
    let (audit, entry) = (audit.clone(), entry.clone());
    tokio::spawn(async move { audit.intent(entry).await.is_ok() })
}

fn end_of(call: &Entry, lines: &[Line]) -> Line {
    let call_id = call.call_id.map(|id| id.to_string());
    let mut ends = lines.iter().filter(|line| line.call_id == call_id && line.kind != "intent");
    let end = ends.next().expect("an end").clone();
    assert_eq!(ends.next(), None, "one end");
    end
}

#[tokio::test(start_paused = true)]
async fn an_intent_is_in_the_sink_when_it_returns() {
    let (audit, sink, _) = start(Mode::Work);
    let call = intent();
    audit.intent(call.clone()).await.unwrap();
    assert_eq!(sink.lines(), [Line::from(&call)]);
    assert!(audit.healthy());
}

#[tokio::test(start_paused = true)]
async fn an_intent_does_not_return_before_the_sink_does() {
    let (audit, sink, _) = start(Mode::Hang);
    let call = intent();
    let waiting = spawn_intent(&audit, &call);
    sleep(Duration::from_secs(4)).await;
    assert!(!waiting.is_finished());
    sink.set(Mode::Work);
    assert!(waiting.await.unwrap());
    assert_eq!(sink.lines(), [Line::from(&call)]);
}

#[tokio::test(start_paused = true)]
async fn calls_that_come_while_a_batch_is_written_share_the_next() {
    let (audit, sink, _) = start(Mode::Hang);
    let mut waiting = vec![spawn_intent(&audit, &intent())];
    sleep(Duration::from_millis(1)).await;
    waiting.extend((0..100).map(|_| spawn_intent(&audit, &intent())));
    sleep(Duration::from_millis(1)).await;
    sink.set(Mode::Work);
    for call in waiting {
        assert!(call.await.unwrap());
    }
    assert_eq!(sink.batches(), [1, 100]);
}

#[tokio::test(start_paused = true)]
async fn an_intent_of_unknown_outcome_is_refused_and_closed() {
    let (audit, sink, _) = start(Mode::WriteAndFail);
    let call = intent();
    audit.intent(call.clone()).await.unwrap_err();
    sink.set(Mode::Work);
    audit.flush(LONG).await.unwrap();
    assert_eq!(kinds_of(&call, &sink.lines()), ["intent", "denied"]);
    assert_eq!(end_of(&call, &sink.lines()).outcome.as_deref(), Some("audit_unavailable"));
}

#[tokio::test(start_paused = true)]
async fn an_intent_that_failed_never_appears_later() {
    let (audit, sink, _) = start(Mode::Fail);
    let call = intent();
    audit.intent(call.clone()).await.unwrap_err();
    sleep(LONG).await;
    sink.set(Mode::Work);
    audit.flush(LONG).await.unwrap();
    assert_eq!(kinds_of(&call, &sink.lines()), ["denied"]);
}

#[tokio::test(start_paused = true)]
async fn the_refusal_of_a_closed_call_is_not_recorded_twice() {
    let (audit, sink, _) = start(Mode::WriteAndFail);
    let call = intent();
    audit.intent(call.clone()).await.unwrap_err();
    let mut refusal = denial();
    refusal.call_id = call.call_id;
    audit.denied(refusal);
    sink.set(Mode::Work);
    audit.flush(LONG).await.unwrap();
    assert_eq!(kinds_of(&call, &sink.lines()), ["intent", "denied"]);
}

#[tokio::test(start_paused = true)]
async fn while_the_sink_fails_calls_are_refused_at_once_until_it_recovers() {
    let (audit, sink, _) = start(Mode::Fail);
    audit.intent(intent()).await.unwrap_err();
    assert!(!audit.healthy());
    let before = Instant::now();
    audit.intent(intent()).await.unwrap_err();
    assert_eq!(before.elapsed(), Duration::ZERO);
    sink.set(Mode::Work);
    sleep(Duration::from_secs(1)).await;
    assert!(audit.healthy());
    audit.intent(intent()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_hanging_sink_refuses_the_intent_at_the_deadline() {
    let (audit, sink, _) = start(Mode::Hang);
    let (first, second) = (intent(), intent());
    let before = Instant::now();
    let waiting = [spawn_intent(&audit, &first), spawn_intent(&audit, &second)];
    for call in waiting {
        assert!(!call.await.unwrap());
    }
    assert_eq!(before.elapsed(), WRITE_DEADLINE);
    sleep(Duration::from_millis(1)).await;
    assert!(!audit.healthy());
    sink.set(Mode::Work);
    audit.flush(LONG).await.unwrap();
    for call in [first, second] {
        assert!(!kinds_of(&call, &sink.lines()).contains(&"intent".to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn an_intent_that_times_out_in_the_queue_is_never_tried() {
    let (audit, sink, _) = start(Mode::Hang);
    let first = spawn_intent(&audit, &intent());
    sleep(Duration::from_secs(1)).await;
    let late = intent();
    let waiting = spawn_intent(&audit, &late);
    // The first batch fails at 5 s and is retried; the late one's deadline is at 6 s.
    assert!(!waiting.await.unwrap());
    assert!(!first.await.unwrap());
    sink.set(Mode::Work);
    audit.flush(LONG).await.unwrap();
    assert!(kinds_of(&late, &sink.lines()).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_call_given_up_while_its_intent_is_written_is_closed_as_canceled() {
    let (audit, sink, _) = start(Mode::Hang);
    let call = intent();
    let waiting = spawn_intent(&audit, &call);
    sleep(Duration::from_secs(1)).await;
    waiting.abort();
    sleep(Duration::from_secs(1)).await;
    sink.set(Mode::Work);
    audit.flush(LONG).await.unwrap();
    assert_eq!(kinds_of(&call, &sink.lines()), ["intent", "canceled"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_given_up_before_it_hears_of_its_intent_is_closed_as_canceled() {
    let (audit, sink, _) = start(Mode::Work);
    let call = intent();
    let mut waiting = Box::pin(audit.intent(call.clone()));
    assert!(poll!(&mut waiting).is_pending());
    while sink.lines().is_empty() {
        yield_now().await;
    }
    yield_now().await;
    drop(waiting);
    audit.flush(LONG).await.unwrap();
    assert_eq!(kinds_of(&call, &sink.lines()), ["intent", "canceled"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_given_up_in_the_queue_leaves_no_row() {
    let (audit, sink, _) = start(Mode::Hang);
    let _first = spawn_intent(&audit, &intent());
    sleep(Duration::from_millis(1)).await;
    let call = intent();
    let waiting = spawn_intent(&audit, &call);
    sleep(Duration::from_millis(1)).await;
    waiting.abort();
    sleep(Duration::from_millis(1)).await;
    sink.set(Mode::Work);
    audit.flush(LONG).await.unwrap();
    assert!(kinds_of(&call, &sink.lines()).is_empty());
    assert_eq!(audit.unwritten(), 0);
}

#[tokio::test(start_paused = true)]
async fn terminal_entries_outlast_a_failing_sink_and_are_written_once() {
    let (audit, sink, _) = start(Mode::Work);
    let calls: Vec<_> = (0..300).map(|_| intent()).collect();
    for call in &calls {
        audit.intent(call.clone()).await.unwrap();
    }
    for mode in [Mode::Fail, Mode::WriteAndFail, Mode::Hang] {
        sink.set(mode);
        for call in &calls[..100] {
            audit.record(settle(call)).await;
        }
        sleep(LONG).await;
    }
    assert_eq!(audit.unwritten(), 300);
    sink.set(Mode::Work);
    audit.flush(LONG).await.unwrap();
    assert_eq!(audit.unwritten(), 0);
    for call in &calls[..100] {
        assert_eq!(kinds_of(call, &sink.lines()), ["intent", "settle"]);
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_writes_what_was_taken_and_takes_no_more() {
    let (audit, sink, tasks) = start(Mode::Work);
    let call = intent();
    audit.intent(call.clone()).await.unwrap();
    for entry in (0..1_000).map(|_| denial()) {
        audit.denied(entry);
    }
    audit.record(settle(&call)).await;
    audit.shutdown(LONG).await.unwrap();
    assert_eq!(sink.lines().len(), 1_002);
    assert!(!audit.healthy());
    audit.intent(intent()).await.unwrap_err();
    audit.record(settle(&intent())).await;
    audit.shutdown(LONG).await.unwrap();
    tasks.close();
    tasks.wait().await;
    assert_eq!(sink.lines().len(), 1_002);
}

#[tokio::test(start_paused = true)]
async fn shutdown_says_what_it_had_to_leave() {
    for mode in [Mode::Hang, Mode::Fail] {
        let (audit, _, tasks) = start(mode);
        for _ in 0..300 {
            audit.record(denial()).await;
        }
        assert_eq!(audit.flush(Duration::from_secs(1)).await, Err(Unwritten(300)));
        let before = Instant::now();
        assert_eq!(audit.shutdown(Duration::from_secs(9)).await, Err(Unwritten(300)));
        assert_eq!(before.elapsed(), Duration::from_secs(9));
        tasks.close();
        tasks.wait().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_panics_refuses_calls_instead_of_hanging_them() {
    let (audit, _, _) = start(Mode::Panic);
    audit.intent(intent()).await.unwrap_err();
    assert!(!audit.healthy());
    audit.intent(intent()).await.unwrap_err();
    assert_eq!(audit.shutdown(LONG).await, Err(Unwritten(1)));
}

#[tokio::test(start_paused = true)]
async fn the_writer_ends_with_the_last_handle_and_leaves_nothing() {
    let (audit, sink, tasks) = start(Mode::Work);
    audit.denied(denial());
    drop(audit);
    tasks.close();
    tasks.wait().await;
    assert_eq!(sink.lines().len(), 1);
}
