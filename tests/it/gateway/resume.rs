//! GET /v1/streams/{id}: coming back to a native stream.

use std::sync::Arc;

use proptest::{
    collection::vec,
    strategy::{Strategy, ValueTree},
    test_runner::TestRunner,
};
use tokio::{sync::Notify, task::JoinSet};
use tollgate::config::IssuerConfig;

use crate::support::{
    app::{TestApp, chat},
    client::Client,
    native::{Frame, Native, assert_whole},
    upstream::{Script, Step, fault, openai},
};

/// Twenty pieces; the upstream waits before the eleventh.
fn held(gate: &Arc<Notify>) -> Script {
    let pieces: Vec<String> = (0..20).map(|i| format!("{i} ")).collect();
    let script = openai::text_stream(pieces.iter().map(String::as_str));
    script.insert(11, Step::WaitFor(Arc::clone(gate)))
}

async fn status_after(client: &Client, id: &str, last_event_id: &str) -> (u16, Option<String>) {
    let get = client.get(&format!("/v1/streams/{id}"));
    let response = get.header("last-event-id", last_event_id).send().await;
    let status = response.status.as_u16();
    let body = response.text().await;
    let body: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
    (status, body["error"]["code"].as_str().map(str::to_owned))
}

fn gone() -> (u16, Option<String>) {
    (404, Some("stream_gone".to_owned()))
}

#[tokio::test]
async fn a_finished_stream_resumes_at_every_frame() {
    let app = TestApp::start().await;
    let alice = app.alice();
    let mut first = Native::open(&alice, &chat(true)).await;
    let frames = first.rest().await;
    assert_eq!(frames.len(), 4, "two tokens, usage, done");

    for seq in 0..4 {
        let mut again = Native::resume(&alice, &first.id, seq).await;
        let skipped = usize::try_from(seq).expect("a few");
        assert_eq!(again.rest().await, frames[skipped..]);
        assert_eq!(again.events.retry_ms, Some(1_000));
    }
    let get = alice.get(&format!("/v1/streams/{}", first.id)).send().await;
    assert_eq!(get.header("x-stream-id"), Some(&*first.id));
    assert_eq!(get.events().rest().await.len(), 4, "without Last-Event-ID, from the start");
    assert_eq!(status_after(&alice, &first.id, "4").await, (204, None));
    app.shutdown().await;
}

#[tokio::test]
async fn frames_that_were_never_written_and_garbage_are_refused() {
    let app = TestApp::start().await;
    let alice = app.alice();
    let mut native = Native::open(&alice, &chat(true)).await;
    assert_whole(0, &native.rest().await);

    for seq in ["5", "6", "18446744073709551615", "9999999999999999999"] {
        let (status, code) = status_after(&alice, &native.id, seq).await;
        let expected = if seq.len() < 20 { gone() } else { (400, Some("invalid_request".into())) };
        assert_eq!((status, code), expected, "{seq}");
    }
    for garbage in ["-1", "abc", "1.5", "0x1", "1 2", "+1", "99999999999999999999999"] {
        let (status, code) = status_after(&alice, &native.id, garbage).await;
        assert_eq!((status, code.as_deref()), (400, Some("invalid_request")), "{garbage}");
    }
    for id in ["nonsense", "00000000-0000-0000-0000-000000000000", "..", "%20"] {
        assert_eq!(status_after(&alice, id, "0").await, gone(), "{id}");
    }
    let response = alice.get("/v1/streams/%FF").send().await;
    assert_eq!(response.status, 400);
    assert_eq!(response.json().await["error"]["code"], "invalid_request");
    app.shutdown().await;
}

#[tokio::test]
async fn a_live_stream_resumes_at_every_frame_and_goes_on() {
    let app = TestApp::start().await;
    let (alice, gate) = (app.alice(), Arc::new(Notify::new()));
    app.upstream.enqueue(held(&gate));
    let mut first = Native::open(&alice, &chat(true)).await;
    let mut seen = Vec::new();
    for _ in 0..10 {
        seen.push(first.frame().await);
    }

    let mut readers = Vec::new();
    for seq in 0..=10 {
        readers.push((seq, Native::resume(&alice, &first.id, seq).await));
    }
    assert_eq!(status_after(&alice, &first.id, "11").await, gone(), "not written yet");
    gate.notify_one();

    seen.extend(first.rest().await);
    assert_eq!(assert_whole(0, &seen).event, "done");
    for (seq, mut reader) in readers {
        let skipped = usize::try_from(seq).expect("a few");
        assert_eq!(reader.rest().await, seen[skipped..]);
    }
    app.shutdown().await;
}

#[tokio::test]
async fn whoever_hangs_up_may_come_back() {
    let app = TestApp::start().await;
    let (alice, gate) = (app.alice(), Arc::new(Notify::new()));
    app.upstream.enqueue(held(&gate));
    let mut first = Native::open(&alice, &chat(true)).await;
    let mut seen = vec![first.frame().await, first.frame().await];
    let id = first.id.clone();
    drop(first);

    let mut second = Native::resume(&alice.clone().http2(), &id, 2).await;
    gate.notify_one();
    seen.extend(second.rest().await);

    assert_eq!(assert_whole(0, &seen).event, "done");
    let (_, terminal) = app.the_call().await;
    assert_eq!((&*terminal.kind, terminal.stream_id), ("settle", Some(id)));
    assert_eq!(app.upstream.requests().len(), 1, "the upstream was asked once");
    app.shutdown().await;
}

/// Reads a stream to its end over many connections, each given up after a few frames.
async fn read_in_pieces(client: Client, id: String, counts: Vec<usize>) -> Vec<Frame> {
    let mut frames: Vec<Frame> = Vec::new();
    for count in counts.into_iter().cycle() {
        let seq = frames.last().map_or(0, |frame| frame.seq);
        let mut reader = Native::resume(&client, &id, seq).await;
        for _ in 0..count {
            match reader.next_frame().await {
                Some(frame) if frame.is_terminal() => {
                    frames.push(frame);
                    return frames;
                }
                Some(frame) => frames.push(frame),
                None => panic!("no terminal frame after {seq}"),
            }
        }
    }
    unreachable!("a cycle has no end")
}

#[tokio::test]
async fn readers_that_come_and_go_at_random_all_read_the_same_and_miss_nothing() {
    let app = TestApp::start().await;
    let pieces: Vec<String> = (0..150).map(|i| format!("{i} ")).collect();
    let script = openai::text_stream(pieces.iter().map(String::as_str));
    app.upstream.enqueue(script.paced(std::time::Duration::from_millis(1)));
    let alice = app.alice();
    let mut native = Native::open(&alice, &chat(true)).await;

    let mut readers = JoinSet::new();
    let mut runner = TestRunner::deterministic();
    for _ in 0..6 {
        let counts = vec(0_usize..12, 64).new_tree(&mut runner).expect("counts").current();
        readers.spawn(read_in_pieces(alice.clone(), native.id.clone(), counts));
    }
    let all = native.rest().await;

    assert_eq!(assert_whole(0, &all).event, "done");
    assert_eq!(all.len(), 152);
    while let Some(read) = readers.join_next().await {
        assert_eq!(read.expect("a reader"), all);
    }
    app.shutdown().await;
}

#[tokio::test]
async fn a_stranger_finds_no_stream() {
    let app = TestApp::with(|config| {
        let second = IssuerConfig {
            issuer: "https://second.test".to_owned(),
            ..config.auth.issuers[0].clone()
        };
        config.auth.issuers.push(second);
    })
    .await;
    app.upstream.enqueue(fault::stall_mid_stream());
    let alice = app.alice();
    let mut native = Native::open(&alice, &chat(true)).await;
    native.frame().await;

    let capabilities: &[&str] = &["model:reasoning"];
    let token = app.token_of("https://second.test", "alice", "pro", capabilities);
    let elsewhere = app.stranger().with_token(token);
    for stranger in [app.caller("mallory", "pro", capabilities), elsewhere] {
        let mut answers = Vec::new();
        for id in [&*native.id, "00000000-0000-0000-0000-000000000000"] {
            let path = format!("/v1/streams/{id}");
            assert_eq!(status_after(&stranger, id, "0").await, gone());
            let response = stranger.delete(&path).send().await;
            assert_eq!(response.status, 404);
            answers.push(response.text().await);
        }
        assert_eq!(answers[0], answers[1], "a stranger's stream looks as if it were not there");
    }
    assert_eq!(app.upstream.open(), 1, "nobody canceled it");
    assert_eq!(app.stranger().get(&format!("/v1/streams/{}", native.id)).send().await.status, 401);

    // The same subject with another token, of another tier even, is the same owner.
    let again = app.caller("alice", "tight", &[]);
    assert_eq!(again.delete(&format!("/v1/streams/{}", native.id)).send().await.status, 202);
    assert_eq!(native.rest().await.last().expect("a frame").event, "canceled");
    app.shutdown().await;
}

#[tokio::test]
async fn frames_that_the_log_had_to_let_go_are_gone() {
    let app = TestApp::with(|config| config.stream.replay_limit_frames = 8).await;
    let (alice, gate) = (app.alice(), Arc::new(Notify::new()));
    app.upstream.enqueue(held(&gate));
    let mut native = Native::open(&alice, &chat(true)).await;
    for _ in 0..10 {
        native.frame().await;
    }
    gate.notify_one();
    native.rest().await;

    assert_eq!(status_after(&alice, &native.id, "0").await, gone());
    assert_eq!(status_after(&alice, &native.id, "13").await, gone());
    let kept = Native::resume(&alice, &native.id, 21).await.rest().await;
    assert_eq!(kept.iter().map(|frame| frame.seq).collect::<Vec<_>>(), [22]);
    app.shutdown().await;
}

#[tokio::test]
async fn no_more_streams_are_live_than_may_be_and_finished_ones_make_room() {
    let app = TestApp::with(|config| config.stream.max_streams = 2).await;
    let alice = app.alice();
    let mut finished = Native::open(&alice, &chat(true)).await;
    finished.rest().await;
    app.until_idle().await;
    let mut live = Vec::new();
    for _ in 0..2 {
        app.upstream.enqueue(fault::stall_mid_stream());
        live.push(Native::open(&alice, &chat(true)).await);
    }
    assert_eq!(status_after(&alice, &finished.id, "0").await, gone(), "it made room");

    let refused = alice.post("/v1/streams").json(&chat(true)).send().await;
    assert_eq!(refused.status, 503);
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(refused.json().await["error"]["code"], "overloaded");

    assert_eq!(alice.delete(&format!("/v1/streams/{}", live[0].id)).send().await.status, 202);
    assert_eq!(live[0].rest().await.last().expect("a frame").event, "canceled");
    app.upstream.until(|counts| counts.open == 1).await;
    let mut next = Native::open(&alice, &chat(true)).await;
    assert_eq!(next.rest().await.last().expect("a frame").event, "done");
    alice.delete(&format!("/v1/streams/{}", live[1].id)).send().await;
    app.until_idle().await;
    app.shutdown().await;
}

#[tokio::test]
async fn refused_calls_take_no_finished_stream_from_anybody() {
    let app = TestApp::with(|config| config.stream.max_streams = 1).await;
    let alice = app.alice();
    let mut finished = Native::open(&alice, &chat(true)).await;
    finished.rest().await;
    app.until_idle().await;

    app.upstream.enqueue(openai::server_error());
    let bob = app.caller("bob", "pro", &["model:reasoning"]);
    assert_eq!(bob.post("/v1/streams").json(&chat(true)).send().await.status, 500);
    let nobody = app.caller("bob", "platinum", &["model:reasoning"]);
    assert_eq!(nobody.post("/v1/streams").json(&chat(true)).send().await.status, 403);

    let mut again = Native::resume(&alice, &finished.id, 0).await;
    assert_eq!(assert_whole(0, &again.rest().await).event, "done");
    app.shutdown().await;
}
