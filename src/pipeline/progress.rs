//! What has been seen of an answer so far: enough to settle it wherever it breaks off.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    domain::{Usage, UsageSource},
    provider::{ChunkView, Complete, CompletionView},
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
    pub time_to_first: Option<Duration>,
    /// What the provider says it has spent; the last word counts.
    pub reported: Option<Usage>,
    pub response_id: Option<String>,
    pub response_model: Option<String>,
    /// Chunks that were looked at for the two above.
    heads: u8,
    /// Every choice that was begun, and why it ended, if it did.
    choices: BTreeMap<u64, Option<String>>,
    /// Bytes that the model wrote, in all choices.
    pub written_bytes: usize,
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
                self.written_bytes += delta.written_bytes();
            }
            self.note_choice(choice.index, choice.finish_reason.as_deref());
        }
    }

    fn note_choice(&mut self, index: u64, finish_reason: Option<&str>) {
        if self.choices.len() >= MAX_CHOICES && !self.choices.contains_key(&index) {
            return;
        }
        let ended = self.choices.entry(index).or_default();
        if let Some(reason) = finish_reason {
            *ended = Some(short(reason));
        }
    }

    pub(super) fn note_complete(&mut self, complete: &Complete) {
        if complete.status >= 400 {
            return;
        }
        self.written_bytes = complete.body.len();
        let Ok(view) = serde_json::from_slice::<CompletionView<'_>>(&complete.body) else { return };
        self.response_id = view.id.as_deref().map(short);
        self.response_model = view.model.as_deref().map(short);
        self.reported = view.usage.map(Usage::from);
        for (index, choice) in (0..).zip(view.choices.iter().flatten()) {
            self.note_choice(index, choice.finish_reason.as_deref());
        }
    }

    /// What the call has spent: as the provider says, else by our estimate. `None` where no
    /// provider has seen the call.
    #[must_use]
    pub fn usage(&self) -> Option<(Usage, UsageSource)> {
        if let Some(usage) = self.reported {
            return Some((usage, UsageSource::Provider));
        }
        let tokens = |bytes: usize| u64::try_from(bytes.div_ceil(4)).unwrap_or(u64::MAX);
        (self.sent_bytes > 0).then(|| {
            let usage = Usage {
                input_tokens: tokens(self.sent_bytes),
                output_tokens: tokens(self.written_bytes),
                ..Usage::default()
            };
            (usage, UsageSource::Estimate)
        })
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
