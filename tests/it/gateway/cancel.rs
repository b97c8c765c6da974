//! Ending a call that nobody wants any more: DELETE, a hang-up, an orphan.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::json;
use tokio::sync::Notify;

use crate::support::{
    app::{TestApp, chat},
    native::{Native, assert_whole},
    upstream::{Step, fault, openai},
};

/// How soon an upstream has to be let go of.
const AT_ONCE: Duration = Duration::from_millis(100);

/// The shortest of a few: other processes may take the machine for a while, and a delay of the
/// gateway's own would be in each.
fn assert_at_once(times: &[Duration]) {
    let shortest = times.iter().min().expect("some times");
    assert!(*shortest < AT_ONCE, "{times:?}");
}

#[tokio::test]
async fn delete_ends_a_stream_and_its_upstream_at_once() {
    let app = TestApp::start().await;
    app.count_once().await;
    let alice = app.alice();
    let mut times = Vec::new();
    for i in 1..=5 {
        app.upstream.enqueue(fault::stall_mid_stream());
        let mut native = Native::open(&alice, &chat(true)).await;
        let mut other = Native::resume(&alice, &native.id, 0).await;
        native.frame().await;
        let asked_at = Instant::now();
        let response = alice.delete(&format!("/v1/streams/{}", native.id)).send().await;
        assert_eq!(response.status, 202);
        assert_eq!(response.bytes().await, "");
        let aborted_at = app.upstream.until(|counts| counts.aborted == i).await.last_aborted_at;
        times.push(aborted_at.expect("aborted") - asked_at);

        let frames = other.rest().await;
        assert_eq!(frames[1..], native.rest().await, "all readers are told");
        assert_eq!(assert_whole(0, &frames).data, json!({ "seq": 3, "reason": "requested" }));
    }
    assert_at_once(&times);
    let rows = app.audit_rows_once(10).await;
    let canceled: Vec<_> = rows.iter().filter(|row| row.kind == "canceled").collect();
    assert_eq!((rows.len(), canceled.len()), (10, 5));
    assert_eq!(canceled[0].outcome.as_deref(), Some("canceled"));
    assert_eq!(canceled[0].detail.as_deref(), Some("requested"));
    assert_eq!(canceled[0].usage_source.as_deref(), Some("counted"), "what was said is charged");
    app.shutdown().await;
}

#[tokio::test]
async fn delete_is_idempotent_and_changes_no_stream_that_has_ended() {
    let app = TestApp::start().await;
    let alice = app.alice();
    let mut native = Native::open(&alice, &chat(true)).await;
    let frames = native.rest().await;
    let path = format!("/v1/streams/{}", native.id);
    for _ in 0..3 {
        assert_eq!(alice.delete(&path).send().await.status, 202);
    }
    assert_eq!(Native::resume(&alice, &native.id, 0).await.rest().await, frames);
    let (_, terminal) = app.the_call().await;
    assert_eq!(terminal.kind, "settle");

    app.upstream.enqueue(fault::stall_mid_stream());
    let mut native = Native::open(&alice, &chat(true)).await;
    let path = format!("/v1/streams/{}", native.id);
    for _ in 0..3 {
        assert_eq!(alice.delete(&path).send().await.status, 202);
    }
    let frames = native.rest().await;
    assert_eq!(assert_whole(0, &frames).event, "canceled");
    assert_eq!(alice.delete(&path).send().await.status, 202);
    assert_eq!(Native::resume(&alice, &native.id, 0).await.rest().await, frames);
    app.until_idle().await;
    assert_eq!(app.audit_rows_once(4).await.len(), 4);
    app.shutdown().await;
}

#[tokio::test]
async fn a_stream_that_nobody_reads_is_canceled() {
    let app = TestApp::with(|config| config.stream.orphan_timeout_s = 1).await;
    let alice = app.alice();
    app.upstream.enqueue(fault::stall_mid_stream());
    let mut native = Native::open(&alice, &chat(true)).await;
    native.frame().await;
    let id = native.id.clone();
    drop(native);

    app.upstream.until(|counts| counts.aborted == 1).await;
    app.until_idle().await;
    let frames = Native::resume(&alice, &id, 0).await.rest().await;
    assert_eq!(assert_whole(0, &frames).data["reason"], "orphaned");
    let (_, terminal) = app.the_call().await;
    assert_eq!((&*terminal.kind, terminal.detail.as_deref()), ("canceled", Some("orphaned")));
    app.shutdown().await;
}

#[tokio::test]
async fn a_stream_that_is_read_lives_on_beyond_the_orphan_timeout() {
    let app = TestApp::with(|config| config.stream.orphan_timeout_s = 1).await;
    let alice = app.alice();
    let pause = Duration::from_millis(1_500);
    app.upstream.enqueue(openai::text_stream(["a", "b"]).insert(2, Step::Delay(pause)));
    let mut native = Native::open(&alice, &chat(true)).await;
    native.frame().await;
    let id = native.id.clone();
    drop(native);

    let frames = Native::resume(&alice, &id, 1).await.rest().await;
    assert_eq!(assert_whole(1, &frames).event, "done");
    app.shutdown().await;
}

#[tokio::test]
async fn hanging_up_before_the_stream_has_begun_ends_it_since_nobody_can_come_back() {
    // The orphan timeout is half a minute, and no test waits for so long.
    let app = TestApp::start().await;
    app.upstream.enqueue(fault::stall_before_head());
    let alice = app.alice();
    let call = tokio::spawn(async move {
        let _ = alice.post("/v1/streams").json(&chat(true)).try_send().await;
    });
    app.upstream.until(|counts| counts.open == 1).await;
    call.abort();

    app.upstream.until(|counts| counts.aborted == 1).await;
    app.until_idle().await;
    assert_eq!(app.gateway().hub.len(), 0);
    let (_, terminal) = app.the_call().await;
    assert_eq!((&*terminal.kind, terminal.detail.as_deref()), ("canceled", Some("hung_up")));
    app.shutdown().await;
}

#[tokio::test]
async fn hanging_up_on_a_chat_lets_its_upstream_go_at_once() {
    let app = TestApp::start().await;
    let mut times = Vec::new();
    for (i, stream) in [(1, true), (2, false), (3, true), (4, false), (5, true), (6, false)] {
        let (alice, head) = (app.alice(), Arc::new(Notify::new()));
        let script = if stream { fault::stall_mid_stream() } else { fault::stall_before_head() };
        app.upstream.enqueue(script);
        let told = Arc::clone(&head);
        let call = tokio::spawn(async move {
            let response = alice.post("/v1/chat/completions").json(&chat(stream)).send().await;
            told.notify_one();
            response.events().rest().await;
        });
        if stream {
            head.notified().await;
        } else {
            app.upstream.until(|counts| counts.open == 1).await;
        }
        let hung_up_at = Instant::now();
        call.abort();
        let aborted_at = app.upstream.until(|counts| counts.aborted == i).await.last_aborted_at;
        times.push(aborted_at.expect("aborted") - hung_up_at);
        app.until_idle().await;
    }
    assert_at_once(&times);
    let rows = app.audit_rows_once(12).await;
    let canceled: Vec<_> = rows.iter().filter(|row| row.kind == "canceled").collect();
    assert_eq!((rows.len(), canceled.len()), (12, 6));
    assert!(canceled.iter().all(|row| row.detail.as_deref() == Some("hung_up")), "{canceled:?}");
    app.shutdown().await;
}
