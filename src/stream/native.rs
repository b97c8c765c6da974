//! Native frames made from a provider's chunks.

use std::{collections::BTreeMap, sync::Arc};

use bytes::BytesMut;
use serde_json::value::RawValue;

use super::{Conclusion, Hub, NativeStream};
use crate::{
    domain::Frame,
    provider::{Choice, ChunkView, Delta, ToolCallDelta},
};

/// Tool calls under way at once, and the bytes of all their arguments, may be no more.
const MAX_TOOL_CALLS: usize = 128;
const MAX_ARGUMENT_BYTES: usize = 4 << 20;

/// Writes frames into a stream's log.
#[derive(Debug)]
pub struct NativeWriter {
    hub: Arc<Hub>,
    stream: Arc<NativeStream>,
    model: String,
    next_seq: u64,
    buffer: BytesMut,
    ends: Vec<usize>,
    tool_calls: BTreeMap<(u64, u64), PendingToolCall>,
    argument_bytes: usize,
    finish_reason: Option<String>,
    concluded: bool,
}

#[derive(Debug, Default)]
struct PendingToolCall {
    id: String,
    name: String,
    arguments: String,
}

impl NativeWriter {
    #[must_use]
    pub fn new(hub: Arc<Hub>, stream: Arc<NativeStream>, model: String) -> Self {
        Self {
            hub,
            next_seq: stream.next_seq(),
            stream,
            model,
            buffer: BytesMut::new(),
            ends: Vec::new(),
            tool_calls: BTreeMap::new(),
            argument_bytes: 0,
            finish_reason: None,
            concluded: false,
        }
    }

    pub(super) fn push(&mut self, view: &ChunkView<'_>) {
        for choice in view.choices() {
            if let Some(delta) = &choice.delta {
                self.push_delta(choice.index, delta);
            }
            self.push_finish(choice);
        }
    }

    fn push_delta(&mut self, choice: u64, delta: &Delta<'_>) {
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
        for call in delta.tool_calls.iter().flatten() {
            self.gather(choice, call);
        }
    }

    /// A tool call comes in pieces and is written whole, when the next one or the end comes.
    fn gather(&mut self, choice: u64, delta: &ToolCallDelta<'_>) {
        let key = (choice, delta.index);
        if !self.tool_calls.contains_key(&key) {
            self.write_tool_calls(choice);
            if self.tool_calls.len() >= MAX_TOOL_CALLS {
                return;
            }
        }
        let arguments = delta.function.as_ref().and_then(|function| function.arguments.as_deref());
        let arguments = arguments.unwrap_or_default();
        self.argument_bytes += arguments.len();
        if self.argument_bytes > MAX_ARGUMENT_BYTES {
            return;
        }
        let call = self.tool_calls.entry(key).or_default();
        if let Some(id) = delta.id.as_deref().filter(|_| call.id.is_empty()) {
            id.clone_into(&mut call.id);
        }
        let name = delta.function.as_ref().and_then(|function| function.name.as_deref());
        call.name.push_str(name.unwrap_or_default());
        call.arguments.push_str(arguments);
    }

    fn write_tool_calls(&mut self, choice: u64) {
        while let Some((&key, _)) = self.tool_calls.range((choice, 0)..=(choice, u64::MAX)).next() {
            let Some(call) = self.tool_calls.remove(&key) else { break };
            self.argument_bytes = self.argument_bytes.saturating_sub(call.arguments.len());
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
                for choice in self.choices_with_calls() {
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

    fn choices_with_calls(&self) -> Vec<u64> {
        self.tool_calls.keys().map(|(choice, _)| *choice).collect()
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

/// The arguments as JSON; what is none (models do write such) as a JSON string of its text.
fn as_json(arguments: String) -> Box<RawValue> {
    let text = if arguments.trim().is_empty() { "{}".to_owned() } else { arguments };
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
