//! What has been seen of an answer so far: enough to settle it wherever it breaks off.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    domain::{Usage, UsageSource},
    provider::{ChunkView, Complete, CompletionView},
};

/// Choices whose finish reasons are kept.
const MAX_CHOICES: usize = 16;

#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes that were sent to a provider; 0 if none has seen the call.
    pub sent_bytes: usize,
    pub time_to_first: Option<Duration>,
    /// What the provider says it has spent; the last word counts.
    pub reported: Option<Usage>,
    pub response_id: Option<String>,
    pub response_model: Option<String>,
    pub finish_reasons: BTreeMap<u64, String>,
    /// Bytes that the model wrote, in all choices.
    pub written_bytes: usize,
    /// The provider sent an error in the middle of its stream.
    pub failed: bool,
    /// The provider said `[DONE]`.
    pub done: bool,
}

impl Progress {
    pub(super) fn note(&mut self, view: &ChunkView<'_>) {
        if self.response_id.is_none() {
            self.response_id = view.id.as_deref().map(str::to_owned);
            self.response_model = view.model.as_deref().map(str::to_owned);
        }
        if let Some(usage) = view.usage() {
            self.reported = Some(usage);
        }
        self.failed |= view.is_error();
        for choice in view.choices() {
            if let Some(delta) = &choice.delta {
                self.written_bytes += delta.written_bytes();
            }
            if let Some(reason) = choice.finish_reason.as_deref()
                && self.finish_reasons.len() < MAX_CHOICES
            {
                self.finish_reasons.insert(choice.index, reason.to_owned());
            }
        }
    }

    pub(super) fn note_complete(&mut self, complete: &Complete) {
        if complete.status >= 400 {
            // Refused: nothing was spent that anybody told us of.
            self.sent_bytes = 0;
            return;
        }
        self.written_bytes = complete.body.len();
        let Ok(view) = serde_json::from_slice::<CompletionView<'_>>(&complete.body) else { return };
        self.response_id = view.id.map(std::borrow::Cow::into_owned);
        self.response_model = view.model.map(std::borrow::Cow::into_owned);
        self.reported = view.usage.map(Usage::from);
        let choices = view.choices.into_iter().flatten().take(MAX_CHOICES);
        for (index, choice) in (0..).zip(choices) {
            if let Some(reason) = choice.finish_reason {
                self.finish_reasons.insert(index, reason.into_owned());
            }
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
        self.done || !self.finish_reasons.is_empty()
    }
}
