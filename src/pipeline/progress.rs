//! What has been seen of an answer so far: enough to settle it wherever it breaks off.

use std::time::Duration;

use crate::{
    budget::{MAX_COUNTED_BYTES, Metered, Unmetered, Written},
    domain::Usage,
    provider::{ChunkView, Complete, CompletionView, Delta},
    stream::ByChoice,
};

/// Choices that are kept account of: `OpenAI`'s own bound on `n`.
const MAX_CHOICES: usize = 128;
/// Of what a provider says for us to record, no more is kept.
const MAX_TEXT_BYTES: usize = 128;

/// A provider that has not said what its answer is called by then never does.
const HEADS: u8 = 4;

#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes that were sent to providers which may charge for them; 0 if none has seen the call.
    pub sent_bytes: usize,
    /// Of these, the last request's.
    pub request_bytes: usize,
    pub time_to_first: Option<Duration>,
    /// What the provider says it has spent; the last word counts.
    pub reported: Option<Usage>,
    pub response_id: Option<String>,
    pub response_model: Option<String>,
    /// Chunks that were looked at for the two above.
    heads: u8,
    /// Every choice that was begun, and why it ended, if it did.
    choices: ByChoice<Option<String>>,
    /// Bytes that the model wrote, in all choices.
    pub written_bytes: usize,
    /// Their beginning, in the order in which they came, to be counted if nobody else does. It
    /// grows with what comes: most streams are short, and many are open at once.
    text: String,
    /// The model has shown its reasoning.
    reasoned: bool,
    /// The provider sent an error in the middle of its stream.
    pub failed: bool,
    /// The provider said `[DONE]`.
    pub done: bool,
}

impl Progress {
    pub(super) fn note(&mut self, view: &ChunkView<'_>) {
        if self.heads < HEADS && self.response_id.is_none() {
            self.heads += 1;
            let head = view.head();
            self.response_id = head.id.as_deref().map(short);
            self.response_model = head.model.as_deref().map(short);
        }
        if let Some(usage) = view.usage() {
            self.reported = Some(usage);
        }
        self.failed |= view.is_error();
        for choice in view.choices() {
            if let Some(delta) = &choice.delta {
                self.note_written(delta);
            }
            self.note_choice(choice.index, choice.finish_reason.as_deref());
        }
    }

    fn note_written(&mut self, delta: &Delta<'_>) {
        self.reasoned |= delta.reasoning().is_some();
        for piece in delta.written() {
            // Up to the first piece that has no room: what is kept has no holes.
            if self.text.len() == self.written_bytes {
                let room = MAX_COUNTED_BYTES - self.text.len();
                self.text.push_str(&piece[..piece.floor_char_boundary(room)]);
            }
            self.written_bytes += piece.len();
        }
    }

    fn note_choice(&mut self, index: u64, finish_reason: Option<&str>) {
        let ended = self.choices.get_or_default(index, MAX_CHOICES);
        if let (Some(ended), Some(reason)) = (ended, finish_reason) {
            *ended = Some(short(reason));
        }
    }

    /// What a whole answer says, to be [adopted](Self::adopt) by the call's own progress: to read a
    /// large one takes long.
    pub(super) fn of_complete(complete: &Complete) -> Self {
        let mut progress = Self::default();
        if complete.status < 400 {
            progress.note_complete(complete);
        }
        progress
    }

    /// The answer that was noted in `other`. What was sent, and when, stays.
    pub(super) fn adopt(&mut self, other: Self) {
        let (sent_bytes, request_bytes) = (self.sent_bytes, self.request_bytes);
        *self = Self { sent_bytes, request_bytes, time_to_first: self.time_to_first, ..other };
    }

    fn note_complete(&mut self, complete: &Complete) {
        let Ok(view) = serde_json::from_slice::<CompletionView<'_>>(&complete.body) else {
            self.written_bytes = complete.body.len();
            return;
        };
        self.response_id = view.id.as_deref().map(short);
        self.response_model = view.model.as_deref().map(short);
        self.reported = view.usage.map(Usage::from);
        for (index, choice) in (0..).zip(view.choices.iter().flatten()) {
            match choice.written() {
                Some(delta) => self.note_written(&delta),
                None => self.written_bytes += choice.message.map_or(0, |raw| raw.get().len()),
            }
            self.note_choice(index, choice.finish_reason.as_deref());
        }
    }

    /// For the meter to count, where the provider told nothing. Takes the text.
    pub(super) fn unmetered(&mut self) -> Unmetered {
        Unmetered {
            sent_bytes: self.sent_bytes,
            text: std::mem::take(&mut self.text),
            written_bytes: self.written_bytes,
        }
    }

    /// For the meter to learn from what the provider told. Takes the text.
    pub(super) fn metered(&mut self, usage: Usage) -> Metered {
        let hidden = if self.reasoned { 0 } else { usage.reasoning_tokens };
        let text = std::mem::take(&mut self.text);
        // What is told in the middle of an answer may be of its beginning alone.
        let written = (self.is_complete() && !text.is_empty()).then(|| Written {
            text,
            bytes: self.written_bytes,
            tokens: usage.output_tokens.saturating_sub(hidden),
        });
        Metered { request_bytes: self.request_bytes, input_tokens: usage.input_tokens, written }
    }

    /// Has every choice that we know of ended in its own time?
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.done || (!self.choices.is_empty() && self.choices.values().all(Option::is_some))
    }

    /// Why the choices ended that did, in their order.
    pub fn finish_reasons(&self) -> impl Iterator<Item = &str> {
        self.choices.values().flatten().map(String::as_str)
    }
}

fn short(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_TEXT_BYTES)].to_owned()
}
