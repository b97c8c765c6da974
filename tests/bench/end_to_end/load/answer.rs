//! Reads an answer and holds it against what must come.

use std::time::Duration;

use http::StatusCode;
use http_body_util::BodyExt;
use tokio::time::Instant;

use super::Response;
use crate::{
    Outcome,
    payload::{ANSWER, Answer, Ask},
};

/// What came, and when.
pub struct Receipt {
    pub events: u64,
    /// From the request's start to the end of a whole answer or the first event of a stream.
    pub latency: Duration,
}

/// Reads to the answer's end; an idle stream's is its first token.
pub async fn read(response: &mut Response, ask: Ask, started: Instant) -> Outcome<Receipt> {
    if response.status() != StatusCode::OK {
        let status = response.status();
        let body = response.body_mut().collect().await?.to_bytes();
        let body = String::from_utf8_lossy(&body);
        return Err(format!("answered {status}: {}", body.trim_end()).into());
    }
    if ask.answer == Answer::Whole {
        whole(response, started).await
    } else {
        stream(response, ask, started).await
    }
}

async fn whole(response: &mut Response, started: Instant) -> Outcome<Receipt> {
    let body = response.body_mut().collect().await?.to_bytes();
    let latency = started.elapsed();
    if memchr::memmem::find(&body, ANSWER.as_bytes()).is_none() {
        return Err("an answer without the upstream's text".into());
    }
    Ok(Receipt { events: 0, latency })
}

async fn stream(response: &mut Response, ask: Ask, started: Instant) -> Outcome<Receipt> {
    let mut events = EventCounter::default();
    let mut latency = None;
    while let Some(frame) = response.body_mut().frame().await {
        if let Some(data) = frame?.data_ref() {
            events.feed(data);
        }
        if events.count > 0 && latency.is_none() {
            latency = Some(started.elapsed());
        }
        if ask.answer == Answer::Idle && events.count == ask.events() {
            break;
        }
    }
    let whole = events.is_done == (ask.answer != Answer::Idle);
    if events.count != ask.events() || !whole {
        let (came, due) = (events.count, ask.events());
        return Err(format!("a stream of {came} events, not {due}, or without [DONE]").into());
    }
    Ok(Receipt { events: events.count, latency: latency.unwrap_or_default() })
}

/// Counts the `data:` lines of a stream whose events have one each, wherever it was cut.
#[derive(Default)]
struct EventCounter {
    /// The beginning of a line whose end has not come yet.
    line: Vec<u8>,
    count: u64,
    is_done: bool,
}

impl EventCounter {
    fn feed(&mut self, mut data: &[u8]) {
        while let Some(end) = memchr::memchr(b'\n', data) {
            if self.line.is_empty() {
                self.take_line(&data[..end]);
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(&data[..end]);
                self.take_line(&line);
            }
            data = &data[end + 1..];
        }
        self.line.extend_from_slice(data);
    }

    fn take_line(&mut self, line: &[u8]) {
        if line.starts_with(b"data:") {
            self.count += 1;
            self.is_done |= line == b"data: [DONE]";
        }
    }
}
