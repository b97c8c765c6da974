//! Native frames made from a provider's chunks.

use std::{collections::BTreeMap, sync::Arc};

use bytes::BytesMut;
use serde_json::value::RawValue;

use super::{Conclusion, Hub, HubFull, NativeStream, Owner};
use crate::{
    domain::Frame,
    provider::{Choice, ChunkView, Delta, Text, ToolCallDelta},
};

/// Tool calls under way at once, and the bytes of all of them, may be no more.
const MAX_TOOL_CALLS: usize = 128;
const MAX_TOOL_CALL_BYTES: usize = 4 << 20;

/// The provider sent tool calls of more than can be held until they are whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("tool calls of more than {MAX_TOOL_CALLS}, or of more than {MAX_TOOL_CALL_BYTES} bytes")]
pub struct ToolCallOverflow;

/// Writes frames into a stream's log.
#[derive(Debug)]
pub struct NativeWriter {
    hub: Arc<Hub>,
    stream: Arc<NativeStream>,
    model: String,
    next_seq: u64,
    buffer: BytesMut,
    ends: Vec<usize>,
    /// Of each choice, in the order in which they began.
    tool_calls: BTreeMap<u64, Vec<PendingToolCall>>,
    held_calls: usize,
    held_bytes: usize,
    finish_reason: Option<String>,
    concluded: bool,
}

#[derive(Debug, Default)]
struct PendingToolCall {
    index: u64,
    id: String,
    name: String,
    arguments: String,
}

impl NativeWriter {
    /// Opens a stream and writes it.
    ///
    /// # Errors
    /// [`HubFull`]: as many streams are live as may be.
    pub fn open(hub: &Arc<Hub>, owner: Owner, model: String) -> Result<Self, HubFull> {
        let stream = hub.open(owner)?;
        Ok(Self {
            hub: Arc::clone(hub),
            next_seq: stream.next_seq(),
            stream,
            model,
            buffer: BytesMut::new(),
            ends: Vec::new(),
            tool_calls: BTreeMap::new(),
            held_calls: 0,
            held_bytes: 0,
            finish_reason: None,
            concluded: false,
        })
    }

    #[must_use]
    pub const fn stream(&self) -> &Arc<NativeStream> {
        &self.stream
    }

    pub(super) fn begin(&self) {
        self.hub.begin(&self.stream);
    }

    pub(super) fn push(&mut self, view: &ChunkView<'_>) -> Result<(), ToolCallOverflow> {
        for choice in view.choices() {
            if let Some(delta) = &choice.delta {
                self.push_delta(choice.index, delta)?;
            }
            self.push_finish(choice);
        }
        Ok(())
    }

    fn push_delta(&mut self, choice: u64, delta: &Delta<'_>) -> Result<(), ToolCallOverflow> {
        // Taken out for the frames to borrow from while `self` writes them.
        let model = std::mem::take(&mut self.model);
        let reasoning = delta.reasoning.as_deref().or(delta.reasoning_content.as_deref());
        if let Some(delta) = reasoning.filter(|text| !text.is_empty()) {
            self.write(&Frame::Reasoning { delta, model: &model, choice });
        }
        if let Some(delta) = delta.content.as_deref().filter(|text| !text.is_empty()) {
            self.write(&Frame::Token { delta, model: &model, choice });
        }
        if let Some(delta) = delta.refusal.as_deref().filter(|text| !text.is_empty()) {
            self.write(&Frame::Refusal { delta, choice });
        }
        self.model = model;
        delta.tool_calls.iter().flatten().try_for_each(|call| self.gather(choice, call))
    }

    /// A tool call comes in pieces and is written whole when its choice ends: not before, since
    /// the pieces of several may come by turns.
    fn gather(&mut self, choice: u64, delta: &ToolCallDelta<'_>) -> Result<(), ToolCallOverflow> {
        let text = |text: &Option<Text<'_>>| text.as_deref().unwrap_or_default().to_owned();
        let id = text(&delta.id);
        let (name, arguments) = delta.function.as_ref().map_or_else(Default::default, |function| {
            (text(&function.name), text(&function.arguments))
        });
        let calls = self.tool_calls.entry(choice).or_default();
        // Some providers number every call 0, and tell them apart by their ids alone.
        let is_same = |call: &&mut PendingToolCall| {
            call.index == delta.index && (id.is_empty() || call.id.is_empty() || call.id == id)
        };
        self.held_bytes += name.len() + arguments.len();
        if let Some(call) = calls.iter_mut().rev().find(is_same) {
            call.name.push_str(&name);
            call.arguments.push_str(&arguments);
            if call.id.is_empty() {
                self.held_bytes += id.len();
                call.id = id;
            }
        } else {
            self.held_calls += 1;
            self.held_bytes += id.len();
            calls.push(PendingToolCall { index: delta.index, id, name, arguments });
        }
        if self.held_calls > MAX_TOOL_CALLS || self.held_bytes > MAX_TOOL_CALL_BYTES {
            return Err(ToolCallOverflow);
        }
        Ok(())
    }

    fn write_tool_calls(&mut self, choice: u64) {
        for call in self.tool_calls.remove(&choice).unwrap_or_default() {
            self.held_calls -= 1;
            self.held_bytes -= call.id.len() + call.name.len() + call.arguments.len();
            let arguments = as_json(call.arguments);
            self.write(&Frame::ToolCall {
                id: &call.id,
                name: &call.name,
                arguments: &arguments,
                choice,
            });
        }
    }

    fn push_finish(&mut self, choice: &Choice<'_>) {
        let Some(reason) = choice.finish_reason.as_deref() else { return };
        self.write_tool_calls(choice.index);
        if choice.index == 0 || self.finish_reason.is_none() {
            self.finish_reason = Some(reason.to_owned());
        }
    }

    fn write(&mut self, frame: &Frame<'_>) {
        let start = self.buffer.len();
        if let Err(error) = frame.encode(self.next_seq, &mut self.buffer) {
            tracing::error!(%error, "a frame could not be written and is left out");
            self.buffer.truncate(start);
            return;
        }
        self.next_seq += 1;
        self.ends.push(self.buffer.len());
    }

    pub(super) fn flush(&mut self) {
        self.append(false);
    }

    fn append(&mut self, last: bool) {
        let ends = std::mem::take(&mut self.ends);
        if last || !ends.is_empty() {
            self.stream.append(self.buffer.split().freeze(), ends, last);
        }
    }

    pub(super) fn conclude(mut self, conclusion: &Conclusion) {
        match conclusion {
            Conclusion::Completed { usage, cost } => {
                while let Some((&choice, _)) = self.tool_calls.first_key_value() {
                    self.write_tool_calls(choice);
                }
                self.write(&Frame::Usage { usage: *usage, cost: *cost });
                let finish_reason = self.finish_reason.take();
                let finish_reason = finish_reason.as_deref().unwrap_or("stop");
                self.write(&Frame::Done { finish_reason });
            }
            Conclusion::Canceled(reason) => self.write(&Frame::Canceled { reason: *reason }),
            Conclusion::Failed(error) => self.write(&Frame::Error(error)),
        }
        self.append(true);
        self.concluded = true;
    }
}

impl Drop for NativeWriter {
    /// The log ends whatever happens: no reader may wait for a writer that is gone.
    fn drop(&mut self) {
        if !self.concluded {
            self.append(true);
        }
        self.hub.finish(self.stream.id());
    }
}

/// The arguments as a JSON object; what is none (models do write such) as a JSON string of its
/// text, so that a string never is anything else.
fn as_json(arguments: String) -> Box<RawValue> {
    let text = if arguments.trim().is_empty() { "{}".to_owned() } else { arguments };
    if !text.trim_start().starts_with('{') {
        return quote(&text);
    }
    match RawValue::from_string(text.clone()) {
        // An SSE data line must stay one line; JSON needs no line ends outside of strings.
        Ok(json) if !json.get().contains(['\n', '\r']) => json,
        Ok(json) => compact(json.get()),
        Err(_) => quote(&text),
    }
}

fn compact(json: &str) -> Box<RawValue> {
    let spaced = json.replace(['\n', '\r'], " ");
    RawValue::from_string(spaced).unwrap_or_else(|_| quote(json))
}

fn quote(text: &str) -> Box<RawValue> {
    serde_json::value::to_raw_value(text).unwrap_or_else(|_| RawValue::NULL.to_owned())
}
