//! What a call has spent, where its provider tells and where it doesn't.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::timeout;

use super::{Estimator, TokenCounter, tokenizer::scaled};
use crate::domain::{Usage, UsageSource};

/// How long the end of a call may wait for its count: its slot, its client and its row wait too.
const PATIENCE: Duration = Duration::from_millis(250);

/// Of the answers that a provider has counted, one in this many is counted by us as well, to learn
/// how the model's vocabulary differs from ours.
const LEARN_EVERY: u64 = 16;

/// Estimates and counts tokens. Shared by all calls.
#[derive(Debug, Default)]
pub struct TokenMeter {
    pub estimator: Arc<Estimator>,
    pub counter: TokenCounter,
    seen: AtomicU64,
}

/// What is known of the tokens of a call that no provider has counted.
#[derive(Debug)]
pub struct Unmetered {
    /// Bytes that were sent to providers which may charge for them.
    pub sent_bytes: usize,
    /// The beginning of what the model wrote.
    pub text: String,
    /// Bytes that it wrote in all.
    pub written_bytes: usize,
}

/// What is known of the tokens of a call that a provider has counted.
#[derive(Debug)]
pub struct Metered {
    /// Bytes of the request that it answered, and their tokens.
    pub request_bytes: usize,
    pub input_tokens: u64,
    /// What the model wrote, if all of it came.
    pub written: Option<Written>,
}

/// What a model wrote, and what its provider says that this came to.
#[derive(Debug)]
pub struct Written {
    /// Its beginning.
    pub text: String,
    pub bytes: usize,
    /// Without those of a reasoning that was not shown.
    pub tokens: u64,
}

impl TokenMeter {
    #[must_use]
    pub fn new(estimator: Estimator) -> Self {
        Self { estimator: Arc::new(estimator), ..Self::default() }
    }

    /// Counts what the model wrote; the input, whose text is gone by then, is estimated. Estimates
    /// both where counting takes longer than a quarter of a second or too many wait for it.
    ///
    /// Pieces of several choices or tool calls are counted as one text: where they meet, the count
    /// may be off by a token.
    pub async fn count(&self, model: &str, call: Unmetered) -> (Usage, UsageSource) {
        let Unmetered { sent_bytes, text, written_bytes } = call;
        let counted = self.count_output(model, text, written_bytes).await;
        let source = counted.map_or(UsageSource::Estimate, |_| UsageSource::Counted);
        let output_tokens =
            counted.unwrap_or_else(|| self.estimator.output_tokens(model, written_bytes));
        let input_tokens = self.estimator.input_tokens(model, sent_bytes);
        (Usage { input_tokens, output_tokens, ..Usage::default() }, source)
    }

    async fn count_output(&self, model: &str, text: String, bytes: usize) -> Option<u64> {
        let part = text.len();
        if part == 0 {
            return None;
        }
        let tokens = timeout(PATIENCE, self.counter.count(text)).await.ok()??;
        // A byte is at most a token in any vocabulary, however a count was corrected.
        let most = u64::try_from(bytes).unwrap_or(u64::MAX);
        Some(self.estimator.own_tokens(model, scaled(tokens, part, bytes)).min(most))
    }

    /// Learns from what a provider has counted.
    pub fn learn(&self, model: &str, call: Metered) {
        self.estimator.observe_input(model, call.request_bytes, call.input_tokens);
        let Some(Written { text, bytes, tokens }) = call.written else { return };
        self.estimator.observe_output(model, bytes, tokens);
        let is_sample = self.seen.fetch_add(1, Ordering::Relaxed).is_multiple_of(LEARN_EVERY);
        if is_sample && text.len() == bytes {
            let (estimator, model) = (Arc::clone(&self.estimator), model.to_owned());
            self.counter.count_if_warm(text, move |counted| {
                estimator.observe_counted(&model, counted, tokens);
            });
        }
    }
}
