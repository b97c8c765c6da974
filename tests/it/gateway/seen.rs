//! One call and what came of it, to its client and in the audit trail.

use bytes::Bytes;
use http::HeaderMap;
use serde_json::Value;
use tollgate::{audit::StoredEntry, config::Config};

use crate::support::{
    app::{TestApp, chat},
    client::{Call, Response},
    event_stream::{EventStream, Item, ServerSentEvent},
    upstream::Script,
};

pub const PATH: &str = "/v1/chat/completions";

/// An answer, read to its end, and the call's last audit row.
#[derive(Debug)]
pub struct Seen {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub terminal: StoredEntry,
}

/// A call of `body` to a fresh gateway whose provider answers with `script`. Nothing is left.
pub async fn call_with(change: impl FnOnce(&mut Config), script: Script, body: &Value) -> Seen {
    let app = TestApp::with(change).await;
    app.count_once().await;
    app.upstream.enqueue(script);
    let answer = read(app.alice().post(PATH).json(body)).await;
    let seen = answer.recorded(&app).await;
    app.shutdown().await;
    seen
}

pub async fn streamed(script: Script) -> Seen {
    call_with(|_| {}, script, &chat(true)).await
}

pub async fn whole(script: Script) -> Seen {
    call_with(|_| {}, script, &chat(false)).await
}

/// Waits are cut so short that a stall shows at once.
pub fn impatient(config: &mut Config) {
    config.providers[0].connect_timeout_ms = 250;
    config.providers[0].first_token_timeout_ms = 250;
    config.providers[0].answer_timeout_ms = 250;
    config.providers[0].idle_timeout_ms = 250;
}

/// Only a stall in an answer that has begun shows at once: what comes before may take its time.
pub fn impatient_in_the_middle(config: &mut Config) {
    config.providers[0].idle_timeout_ms = 250;
}

/// An answer as its client sees it.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

pub async fn read(call: Call) -> Answer {
    read_rest(call.send().await).await
}

pub async fn read_rest(response: Response) -> Answer {
    let (status, headers) = (response.status.as_u16(), response.headers.clone());
    Answer { status, headers, body: response.bytes().await }
}

impl Answer {
    /// With the row that ended the one call of this gateway: there is no other after it.
    pub async fn recorded(self, app: &TestApp) -> Seen {
        app.until_idle().await;
        let (_, terminal) = app.the_call().await;
        let Self { status, headers, body } = self;
        Seen { status, headers, body, terminal }
    }
}

/// How a stream ended, as its client sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    Done,
    /// An `error` event of this code.
    Error(String),
    /// The body ended, and that was all.
    Mute,
}

/// A stream as `OpenAI`'s clients read it.
#[derive(Debug)]
pub struct Stream {
    pub chunks: Vec<Value>,
    pub end: End,
}

impl Stream {
    /// Panics at whatever those clients would trip over.
    pub fn parse(body: &[u8]) -> Self {
        let mut stream = Self { chunks: Vec::new(), end: End::Mute };
        for item in EventStream::parse(body) {
            match item {
                Item::Event(event) => stream.push(&event),
                Item::Comment(_) => {}
                Item::Retry(_) => panic!("`retry:` in {}", String::from_utf8_lossy(body)),
            }
        }
        assert!(body.is_empty() || body.ends_with(b"\n\n"), "the last event is not complete");
        stream
    }

    fn push(&mut self, event: &ServerSentEvent) {
        assert_eq!(self.end, End::Mute, "an event after the last one: {}", event.text());
        assert_eq!((event.event.as_str(), event.last_event_id.as_str()), ("message", ""));
        if event.text() == "[DONE]" {
            self.end = End::Done;
            return;
        }
        let chunk = event.json();
        match &chunk["error"] {
            Value::Null => {
                assert!(chunk["choices"].is_array(), "no chunk: {chunk}");
                self.chunks.push(chunk);
            }
            error => self.end = End::Error(error["code"].as_str().expect("a code").to_owned()),
        }
    }

    /// What the first choice says.
    pub fn text(&self) -> String {
        let choices = self.chunks.iter().flat_map(|chunk| chunk["choices"].as_array().unwrap());
        let firsts = choices.filter(|choice| choice["index"] == 0);
        firsts.filter_map(|choice| choice["delta"]["content"].as_str()).collect()
    }

    /// The choices that have ended, and how, in their order.
    pub fn finish_reasons(&self) -> Vec<(u64, String)> {
        let choices = self.chunks.iter().flat_map(|chunk| chunk["choices"].as_array().unwrap());
        let ended = choices.filter_map(|choice| {
            let reason = choice["finish_reason"].as_str()?;
            Some((choice["index"].as_u64().unwrap(), reason.to_owned()))
        });
        ended.collect()
    }
}

impl Seen {
    pub fn stream(&self) -> Stream {
        assert_eq!(self.status, 200, "{self:?}");
        assert_eq!(self.headers["content-type"], "text/event-stream; charset=utf-8");
        let stream = Stream::parse(&self.body);
        let counted = stream.chunks.iter().any(|chunk| chunk.get("usage").is_some());
        assert!(!counted, "usage was not asked for: {stream:?}");
        stream
    }

    /// The body's `error`, whose four keys SDKs rely on, and who it says it is from.
    pub fn error(&self) -> (String, &str) {
        let body: Value = serde_json::from_slice(&self.body).expect("an error's body is JSON");
        let error = body["error"].as_object().expect("an error");
        for key in ["message", "type", "param", "code"] {
            assert!(error.contains_key(key), "no `{key}` in {body}");
        }
        let source = self.headers["x-tollgate-source"].to_str().unwrap();
        (error["code"].as_str().unwrap_or_default().to_owned(), source)
    }

    /// Kind, outcome, status and who counted what was spent.
    pub fn row(&self) -> (&str, &str, i64, Option<&str>) {
        let row = &self.terminal;
        let outcome = row.outcome.as_deref().expect("a terminal row has an outcome");
        (&row.kind, outcome, row.status.expect("a status"), row.usage_source.as_deref())
    }

    /// We refuse, and the row says the same.
    pub fn assert_refused(&self, status: u16, code: &str, usage_source: Option<&str>) {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.error(), (code.to_owned(), "gateway"));
        assert_eq!(self.row(), ("settle", code, i64::from(status), usage_source));
    }
}
