//! Large bodies and answers are read off the threads that other calls are on. No test looks at a
//! clock: while all slots of [`Offload`] are taken, a large one must come to nothing, and small
//! ones go through.

use std::{num::NonZero, sync::mpsc, thread::available_parallelism};

use serde_json::{Value, json};
use tollgate::offload::{INLINE_BYTES, Offload};

use crate::support::{
    app::{TestApp, chat},
    client::eventually,
    upstream::{Script, openai},
};

use super::seen::{Answer, PATH, read};

/// All slots of a pool, until this is dropped.
struct Taken {
    _held: Vec<mpsc::Sender<()>>,
}

impl Taken {
    async fn all(offload: &Offload) -> Self {
        let slots = available_parallelism().map_or(2, NonZero::get);
        let mut slots_taken = Vec::new();
        for _ in 0..slots {
            let (hold, released) = mpsc::channel::<()>();
            let (begun, has_begun) = tokio::sync::oneshot::channel();
            let offload = offload.clone();
            tokio::spawn(async move {
                let work = move || {
                    begun.send(()).unwrap();
                    // Ends when the other side is dropped.
                    let _ = released.recv();
                };
                offload.run(work).await
            });
            has_begun.await.unwrap();
            slots_taken.push(hold);
        }
        Self { _held: slots_taken }
    }
}

fn large() -> Value {
    let mut body = chat(false);
    body["messages"][0]["content"] = Value::from("word ".repeat(INLINE_BYTES / 4));
    body
}

async fn small_passes(app: &TestApp) {
    app.upstream.enqueue(openai::completion("well"));
    assert_eq!(read(app.alice().post(PATH).json(&chat(false))).await.status, 200);
}

/// Sends a call that must wait for a slot; what it comes to once there is one.
async fn waits(app: &TestApp, body: Vec<u8>, sent_on: usize) -> Answer {
    let before = app.upstream.requests().len();
    let taken = Taken::all(&app.gateway().offload).await;
    let call = app.alice().post(PATH).header("content-type", "application/json").body(body);
    let call = tokio::spawn(read(call));
    eventually(std::time::Duration::from_secs(10), async || {
        app.upstream.requests().len() == before + sent_on
    })
    .await;
    // Whatever it does by itself, it does before these have gone their way.
    for _ in 0..3 {
        small_passes(app).await;
    }
    assert!(!call.is_finished());
    assert_eq!(app.upstream.requests().len(), before + sent_on + 3);
    drop(taken);
    call.await.unwrap()
}

#[tokio::test]
async fn a_large_body_is_not_even_parsed_on_an_async_thread() {
    let app = TestApp::start().await;
    let broken = format!("{{\"model\": \"m\", \"x\": \"{}", "y".repeat(INLINE_BYTES));
    let answer = waits(&app, broken.into_bytes(), 0).await;
    let error: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!((answer.status, &error["error"]["code"]), (400, &json!("invalid_json")));
    app.shutdown().await;
}

#[tokio::test]
async fn a_large_body_is_answered_once_there_is_room() {
    let app = TestApp::start().await;
    let taken = Taken::all(&app.gateway().offload).await;
    let call = tokio::spawn(read(app.alice().post(PATH).json(&large())));
    for _ in 0..3 {
        small_passes(&app).await;
    }
    assert!(!call.is_finished());
    app.upstream.enqueue(openai::completion("large"));
    drop(taken);
    assert_eq!(call.await.unwrap().status, 200);
    app.shutdown().await;
}

#[tokio::test]
async fn a_large_answer_is_not_read_on_an_async_thread() {
    let app = TestApp::start().await;
    for (answer, status) in [
        (openai::completion(&"word ".repeat(INLINE_BYTES / 4)), 200),
        (Script::body(200, "application/json", "x".repeat(INLINE_BYTES + 1)), 502),
        (Script::body(400, "text/plain", "x".repeat(INLINE_BYTES + 1)), 400),
    ] {
        app.upstream.enqueue(answer);
        let body = serde_json::to_vec(&chat(false)).unwrap();
        assert_eq!(waits(&app, body, 1).await.status, status);
    }
    app.shutdown().await;
}
