//! Native streams as their readers see them.

use std::time::Duration;

use serde_json::Value;

use super::{
    client::{Client, Events},
    event_stream::ServerSentEvent,
};

/// A frame, whose `id:` and `seq` were seen to agree.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    pub seq: u64,
    pub event: String,
    pub data: Value,
}

impl Frame {
    pub fn read(event: &ServerSentEvent) -> Self {
        let data = event.json();
        let seq = data["seq"].as_u64().unwrap_or_else(|| panic!("no seq: {data}"));
        assert_eq!(event.last_event_id, seq.to_string(), "id and seq differ: {data}");
        Self { seq, event: event.event.clone(), data }
    }

    pub fn is_terminal(&self) -> bool {
        ["done", "canceled", "error"].contains(&&*self.event)
    }
}

/// A reader of a native stream. Dropping it hangs up.
pub struct Native {
    pub id: String,
    pub events: Events,
}

impl Native {
    pub async fn open(client: &Client, body: &Value) -> Self {
        let response = client.post("/v1/streams").json(body).send().await;
        assert_eq!(response.status, 200, "{response:?}");
        let id = response.header("x-stream-id").expect("x-stream-id").to_owned();
        Self { id, events: response.events() }
    }

    pub async fn resume(client: &Client, id: &str, seq: u64) -> Self {
        let get = client.get(&format!("/v1/streams/{id}"));
        let response = get.header("last-event-id", &seq.to_string()).send().await;
        assert_eq!(response.status, 200, "after {seq}: {response:?}");
        Self { id: id.to_owned(), events: response.events() }
    }

    /// The next frame, which has to come.
    pub async fn frame(&mut self) -> Frame {
        Frame::read(&self.events.expect_event().await)
    }

    /// The next frame; `None` at the body's end.
    pub async fn next_frame(&mut self) -> Option<Frame> {
        let event = self.events.next_event(Duration::from_secs(10)).await;
        event.as_ref().map(Frame::read)
    }

    /// All further frames, to the body's orderly end.
    pub async fn rest(&mut self) -> Vec<Frame> {
        let frames = self.events.rest().await.iter().map(Frame::read).collect();
        assert_eq!(self.events.broken, None, "after {frames:?}");
        frames
    }
}

/// Asserts that these are all of a stream's frames after `seq`: without gaps, and the last one
/// and only the last one terminal. Gives that one.
pub fn assert_whole(seq: u64, frames: &[Frame]) -> &Frame {
    let seqs: Vec<u64> = frames.iter().map(|frame| frame.seq).collect();
    let expected: Vec<u64> = (seq + 1..).take(frames.len()).collect();
    assert_eq!(seqs, expected);
    let (last, others) = frames.split_last().expect("at least the terminal frame");
    assert!(last.is_terminal(), "{last:?}");
    assert!(!others.iter().any(Frame::is_terminal), "{frames:?}");
    last
}
