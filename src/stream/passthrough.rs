//! `OpenAI` chunks on their way from a provider to an `OpenAI` client.
//!
//! A chunk that needs no change is forwarded byte for byte. Changed are: a usage that the client
//! did not ask for (we did) is taken out; fields beside `data:` are taken out, as `OpenAI`'s
//! clients trip over them; a choice that has no finish reason at the end is given one.

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::json;

use super::{Conclusion, Gone, Sender, by_choice::ByChoice};
use crate::provider::{ChunkView, Text, sse::Event};

const DONE: &[u8] = b"data: [DONE]\n\n";
/// Choices that are watched for a finish reason; a provider that sends more gets none added.
const MAX_CHOICES: usize = 128;

/// Writes into the channel that a response's body reads from.
#[derive(Debug)]
pub struct PassthroughWriter {
    sender: Sender,
    include_usage: bool,
    /// Written by the next flush. A single piece is sent as it is, without a copy.
    pieces: Vec<Bytes>,
    choices: ByChoice<SeenChoice>,
    /// `id`, `created` and `model` of the first chunk, for a chunk of our own.
    head: Option<(String, i64, String)>,
    /// The provider sent an error of its own: nothing may follow.
    failed: bool,
}

/// What is known of a choice that was begun.
#[derive(Debug, Default)]
struct SeenChoice {
    has_ended: bool,
    calls_tools: bool,
}

impl PassthroughWriter {
    #[must_use]
    pub fn new(sender: Sender, include_usage: bool) -> Self {
        Self {
            sender,
            include_usage,
            pieces: Vec::new(),
            choices: ByChoice::default(),
            head: None,
            failed: false,
        }
    }

    pub(super) fn push(&mut self, event: &Event, view: &ChunkView<'_>) {
        self.failed |= view.is_error();
        self.note(view);
        if view.usage.is_some() && !self.include_usage {
            if !view.is_count() {
                self.pieces.push(without_usage(event, view));
            }
        } else if event.plain && event.raw.ends_with(b"\n\n") {
            // With other line ends it would depend on how it was cut whether all of it is there.
            self.pieces.push(event.raw.clone());
        } else {
            self.pieces.push(encode(&event.data));
        }
    }

    fn note(&mut self, view: &ChunkView<'_>) {
        if self.head.is_none() && !view.choices().is_empty() {
            let text = |text: &Option<Text<'_>>| text.as_deref().unwrap_or_default().to_owned();
            let head = view.head();
            self.head = Some((text(&head.id), head.created.unwrap_or(0), text(&head.model)));
        }
        for choice in view.choices() {
            if let Some(seen) = self.choices.get_or_default(choice.index, MAX_CHOICES) {
                seen.has_ended |= choice.finish_reason.is_some();
                seen.calls_tools |=
                    choice.delta.as_ref().is_some_and(|delta| delta.tool_calls.is_some());
            }
        }
    }

    pub(super) async fn flush(&mut self) -> Result<(), Gone> {
        let Some(bytes) = join(&mut self.pieces) else { return Ok(()) };
        self.sender.send(bytes).await
    }

    pub(super) async fn conclude(mut self, conclusion: &Conclusion) {
        match conclusion {
            Conclusion::Completed { .. } => {
                let missing = self.finish_chunks();
                self.pieces.extend(missing);
                self.pieces.push(Bytes::from_static(DONE));
            }
            Conclusion::Failed(error) if !self.failed => {
                let kind = if error.retryable { "server_error" } else { "invalid_request_error" };
                let body = json!({ "error": {
                    "message": error.message, "type": kind, "param": null, "code": error.code,
                }});
                self.pieces.push(encode(body.to_string().as_bytes()));
            }
            Conclusion::Failed(_) | Conclusion::Canceled(_) => {}
        }
        // A client that is gone by now misses nothing that it could still read.
        let _ = self.flush().await;
    }

    /// Chunks with the finish reasons that the provider left out: `OpenAI`'s clients need one.
    fn finish_chunks(&self) -> Vec<Bytes> {
        let Some((id, created, model)) = &self.head else { return Vec::new() };
        let unfinished = self.choices.iter().filter(|(_, choice)| !choice.has_ended);
        let chunk = |(index, choice): (u64, &SeenChoice)| {
            let finish_reason = if choice.calls_tools { "tool_calls" } else { "stop" };
            let chunk = json!({
                "id": id, "object": "chat.completion.chunk", "created": created, "model": model,
                "choices": [{ "index": index, "delta": {}, "finish_reason": finish_reason }],
            });
            encode(chunk.to_string().as_bytes())
        };
        unfinished.map(chunk).collect()
    }
}

/// All pieces as one, so that they go out in one write.
fn join(pieces: &mut Vec<Bytes>) -> Option<Bytes> {
    if pieces.len() <= 1 {
        return pieces.pop();
    }
    let mut joined = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
    for piece in pieces.drain(..) {
        joined.extend_from_slice(&piece);
    }
    Some(joined.freeze())
}

/// `data` as an event with nothing else in it.
fn encode(data: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(data.len() + 16);
    for line in data.split(|byte| *byte == b'\n') {
        out.put_slice(b"data: ");
        out.put_slice(line);
        out.put_u8(b'\n');
    }
    out.put_u8(b'\n');
    out.freeze()
}

/// The event without its top-level `usage` member, every other byte as it was.
fn without_usage(event: &Event, view: &ChunkView<'_>) -> Bytes {
    let data = &event.data;
    let Some(value) = view.usage else { return encode(data) };
    let value_start = value.get().as_ptr() as usize - data.as_ptr() as usize;
    let value_end = value_start + value.get().len();
    // Backwards over `"usage" :`. The member's name can be spelled with escapes too.
    let before = data[..value_start].trim_ascii_end();
    let name_end = before.strip_suffix(b":").unwrap_or(before).trim_ascii_end();
    let name = name_end.strip_suffix(b"\"").unwrap_or(name_end);
    let name_start = memchr::memrchr(b'"', name).unwrap_or(0);
    let head = data[..name_start].trim_ascii_end();
    let tail = data[value_end..].trim_ascii_start();
    let (head, tail) = match (head.strip_suffix(b","), tail.strip_prefix(b",")) {
        (Some(head), _) => (head, tail),
        (None, Some(tail)) => (head, tail),
        (None, None) => (head, tail),
    };
    encode(&[head, tail].concat())
}
