//! A provider that needs no network: for trying the gateway out, and for tests of clients.
//!
//! A model whose name ends in `tool` calls the first tool of the request, with example arguments
//! made from the tool's schema; any other says back what it was asked.

use std::{
    fmt::Display,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header::CONTENT_TYPE};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Sleep, sleep};
use uuid::Uuid;

use super::{
    Complete, EventStream, Opened, Provider, ProviderError, ProviderRequest, Reply, sse::Event,
};
use crate::{config::ProviderConfig, domain::ModelCall, offload::Offload};

/// More choices than this are not made.
const MAX_CHOICES: u32 = 8;

#[derive(Debug)]
pub struct Scripted {
    name: String,
    token_interval: Duration,
    offload: Offload,
}

impl Scripted {
    #[must_use]
    pub fn new(config: &ProviderConfig, offload: &Offload) -> Self {
        Self {
            offload: offload.clone(),
            name: config.name.clone(),
            token_interval: Duration::from_millis(config.token_interval_ms),
        }
    }
}

/// What [`ModelCall`] does not hold.
#[derive(Deserialize)]
struct Ask {
    messages: Vec<Value>,
    tools: Option<Vec<Value>>,
    /// JSON writes whole numbers as floats too.
    n: Option<f64>,
}

/// At least one, whatever was asked for.
fn choices(asked: f64) -> usize {
    (1..=MAX_CHOICES).take_while(|count| f64::from(*count) <= asked).count().max(1)
}

#[async_trait]
impl Provider for Scripted {
    fn name(&self) -> &str {
        &self.name
    }

    async fn send(&self, request: ProviderRequest) -> Result<Reply, ProviderError> {
        let body = request.body;
        let asked = self.offload.run_for(body.len(), move || Answer::of(body));
        let (answer, include_usage) = match asked.await {
            Ok(Ok(asked)) => asked,
            Ok(Err(cause)) => return Ok(Reply::Complete(refusal(&cause))),
            Err(lost) => return Ok(Reply::Complete(refusal(&lost))),
        };
        if !request.stream {
            return Ok(Reply::Complete(ok(&answer.whole())));
        }
        let mut chunks = answer.chunks(include_usage).into_iter();
        let first = chunks.next().into_iter().collect();
        let interval = self.token_interval;
        let rest = Typed { chunks, interval, pause: Box::pin(sleep(interval)) };
        Ok(Reply::Stream(Opened { first, rest: Box::new(rest) }))
    }
}

/// What is said, word by word, or which tool is called.
struct Answer {
    id: String,
    model: String,
    choices: usize,
    words: Vec<String>,
    tool: Option<(String, String)>,
    finish_reason: &'static str,
    prompt_tokens: usize,
}

impl Answer {
    /// To a request, and whether that asks for usage; or what is wrong with it.
    fn of(body: Bytes) -> Result<(Self, bool), String> {
        let ask = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
        let call = ModelCall::parse(body).map_err(|error| error.to_string())?;
        Ok((Self::to(&call, &ask), call.include_usage))
    }

    fn to(call: &ModelCall, ask: &Ask) -> Self {
        let prompt = last_prompt(&ask.messages);
        let tool = call.model.ends_with("tool").then(|| tool_call(ask.tools.as_deref()));
        let text = format!("You said: {prompt}");
        let mut words: Vec<String> = text.split_inclusive(' ').map(str::to_owned).collect();
        let limit = call.max_tokens.and_then(|limit| usize::try_from(limit).ok());
        let limit = limit.unwrap_or(usize::MAX);
        let finish_reason = match &tool {
            Some(_) => "tool_calls",
            None if words.len() > limit => "length",
            None => "stop",
        };
        words.truncate(limit);
        Self {
            id: format!("chatcmpl-{}", Uuid::now_v7().simple()),
            model: call.model.clone(),
            choices: choices(ask.n.unwrap_or(1.0)),
            words,
            tool,
            finish_reason,
            prompt_tokens: ask.messages.iter().map(|message| message.to_string().len() / 4).sum(),
        }
    }

    fn usage(&self) -> Value {
        let each =
            self.tool.as_ref().map_or(self.words.len(), |(_, arguments)| arguments.len() / 4);
        let completion = each * self.choices;
        json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": completion,
            "total_tokens": self.prompt_tokens + completion,
        })
    }

    fn whole(&self) -> Value {
        let message = match &self.tool {
            Some((name, arguments)) => json!({
                "role": "assistant",
                "content": null,
                "tool_calls": [{
                    "id": self.call_id(), "type": "function",
                    "function": { "name": name, "arguments": arguments },
                }],
            }),
            None => json!({ "role": "assistant", "content": self.words.concat(), "refusal": null }),
        };
        let choice = |index| json!({ "index": index, "message": message, "logprobs": null, "finish_reason": self.finish_reason });
        json!({
            "id": self.id, "object": "chat.completion", "created": now_s(), "model": self.model,
            "choices": (0..self.choices).map(choice).collect::<Vec<_>>(), "usage": self.usage(),
        })
    }

    fn chunks(&self, include_usage: bool) -> Vec<Event> {
        let created = now_s();
        let chunk = |choices: Value, usage: Option<Value>| {
            let mut chunk = json!({
                "id": self.id, "object": "chat.completion.chunk", "created": created,
                "model": self.model, "choices": choices,
            });
            if include_usage {
                chunk["usage"] = usage.unwrap_or(Value::Null);
            }
            event(&chunk.to_string())
        };
        let each = |delta: Value, finish_reason: Value| {
            (0..self.choices).map(move |index| {
                json!([{ "index": index, "delta": delta, "finish_reason": finish_reason }])
            })
        };
        let mut deltas = vec![json!({ "role": "assistant", "content": "" })];
        match &self.tool {
            Some((name, arguments)) => deltas.extend(self.call_deltas(name, arguments)),
            None => deltas.extend(self.words.iter().map(|word| json!({ "content": word }))),
        }
        let mut events: Vec<Event> = deltas
            .into_iter()
            .flat_map(|delta| each(delta, Value::Null))
            .chain(each(json!({}), self.finish_reason.into()))
            .map(|choices| chunk(choices, None))
            .collect();
        if include_usage {
            events.push(chunk(json!([]), Some(self.usage())));
        }
        events.push(event("[DONE]"));
        events
    }

    fn call_deltas(&self, name: &str, arguments: &str) -> Vec<Value> {
        let head = json!({ "tool_calls": [{
            "index": 0, "id": self.call_id(), "type": "function",
            "function": { "name": name, "arguments": "" },
        }]});
        let piece = |piece: &[char]| {
            let piece: String = piece.iter().collect();
            json!({ "tool_calls": [{ "index": 0, "function": { "arguments": piece } }] })
        };
        let characters: Vec<char> = arguments.chars().collect();
        std::iter::once(head).chain(characters.chunks(8).map(piece)).collect()
    }

    fn call_id(&self) -> String {
        self.id.replacen("chatcmpl-", "call_", 1)
    }
}

/// Chunks at the pace of somebody typing.
struct Typed {
    chunks: std::vec::IntoIter<Event>,
    interval: Duration,
    /// Until the next chunk.
    pause: Pin<Box<Sleep>>,
}

impl EventStream for Typed {
    fn poll_events(
        &mut self,
        context: &mut Context<'_>,
        events: &mut Vec<Event>,
    ) -> Poll<Result<(), ProviderError>> {
        if self.interval.is_zero() {
            events.extend(self.chunks.by_ref().take(64));
            return Poll::Ready(Ok(()));
        }
        ready!(self.pause.as_mut().poll(context));
        let due = self.pause.deadline() + self.interval;
        self.pause.as_mut().reset(due);
        events.extend(self.chunks.next());
        Poll::Ready(Ok(()))
    }
}

fn event(data: &str) -> Event {
    let raw = Bytes::from(format!("data: {data}\n\n"));
    let data = raw.slice(6..raw.len() - 2);
    Event { raw, data, name: None, has_data: true, plain: true }
}

fn ok(answer: &Value) -> Complete {
    complete(200, answer)
}

fn refusal(cause: &dyn Display) -> Complete {
    let message = format!("The scripted provider does not understand the request: {cause}");
    complete(
        400,
        &json!({ "error": {
            "message": message, "type": "invalid_request_error", "param": null, "code": "invalid_request",
        }}),
    )
}

fn complete(status: u16, body: &Value) -> Complete {
    let json = HeaderValue::from_static("application/json");
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, json)]);
    Complete { status, headers, body: Bytes::from(body.to_string()) }
}

/// The last user message's text, bounded.
fn last_prompt(messages: &[Value]) -> String {
    let last = messages.iter().rev().find(|message| message["role"] == "user");
    let text = match last.map(|message| &message["content"]) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            let texts = parts.iter().filter_map(|part| part["text"].as_str());
            texts.collect::<Vec<_>>().join(" ")
        }
        _ => "(nothing)".to_owned(),
    };
    text.chars().take(16_384).collect()
}

/// A call of the first tool, or of one that says that there was none.
fn tool_call(tools: Option<&[Value]>) -> (String, String) {
    let function = tools.and_then(<[Value]>::first).map(|tool| &tool["function"]);
    let name = function.and_then(|function| function["name"].as_str()).unwrap_or("no_tool_given");
    let properties = function.and_then(|function| function["parameters"]["properties"].as_object());
    let arguments: serde_json::Map<String, Value> = properties
        .into_iter()
        .flatten()
        .take(64)
        .map(|(name, schema)| (name.clone(), example(schema)))
        .collect();
    (name.to_owned(), Value::Object(arguments).to_string())
}

fn example(schema: &Value) -> Value {
    if let Some(first) = schema["enum"].get(0) {
        return first.clone();
    }
    match schema["type"].as_str() {
        Some("integer") => 42.into(),
        Some("number") => json!(4.2),
        Some("boolean") => true.into(),
        Some("array") => json!([]),
        Some("object") => json!({}),
        _ => "example".into(),
    }
}

fn now_s() -> i64 {
    jiff::Timestamp::now().as_second()
}
