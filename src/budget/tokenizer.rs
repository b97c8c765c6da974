//! Counts tokens on a thread of its own, where it holds nobody up.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use tokio::sync::{mpsc, oneshot};

/// Texts that may wait: about what the thread gets through while a call waits for its count, at
/// the slowest (8 ms for a text of the greatest length). Each is at most [`MAX_COUNTED_BYTES`] long.
const QUEUE: usize = 256;

/// No more of a text is counted; what is longer is counted to here and scaled by its length. The
/// slowest text there is (one letter, or a blank, over and over) takes 8 ms then.
pub const MAX_COUNTED_BYTES: usize = 64 << 10;

/// Counts tokens as `o200k_base` has them, the vocabulary of `OpenAI`'s models since GPT-4o.
///
/// Other vendors' vocabularies differ (for English by some ten percent, for code and other
/// scripts by more), and most are not public: [`super::Estimator::own_tokens`] corrects a count
/// by what was seen of the model.
///
/// The vocabulary is in the binary (0.8 MB, packed) and is unpacked by the first count, on the
/// counting thread: measured at 46 ms and 24 MB, which stay. A gateway whose providers all tell
/// their usage never does it. A text of 64 KiB takes 0.2 ms (prose) to 8 ms. The tokenizer keeps
/// the last 4,096 words that it met, to be quick about them; nothing else of a text stays.
#[derive(Debug)]
pub struct TokenCounter {
    jobs: mpsc::Sender<Job>,
    warm: Arc<AtomicBool>,
    refused: AtomicU64,
}

struct Job {
    text: String,
    then: Then,
}

enum Then {
    /// Somebody waits for it, or did.
    Reply(oneshot::Sender<u64>),
    Use(Box<dyn FnOnce(u64) + Send>),
}

impl Default for TokenCounter {
    fn default() -> Self {
        Self::new()
    }
}

impl TokenCounter {
    /// Starts the counting thread, which ends with the counter.
    #[must_use]
    pub fn new() -> Self {
        Self::with_tokenizer(QUEUE, o200k)
    }

    /// As [`TokenCounter::new`], with a queue of this many texts and a tokenizer of one's own:
    /// `None` is a text that it can't count.
    #[must_use]
    pub fn with_tokenizer(
        queue: usize,
        mut tokenizer: impl FnMut(&str) -> Option<u64> + Send + 'static,
    ) -> Self {
        let (jobs, mut waiting) = mpsc::channel::<Job>(queue.max(1));
        let warm = Arc::new(AtomicBool::new(false));
        let has_counted = Arc::clone(&warm);
        let thread = std::thread::Builder::new().name("token-counter".to_owned());
        let spawned = thread.spawn(move || {
            while let Some(Job { text, then }) = waiting.blocking_recv() {
                if matches!(&then, Then::Reply(reply) if reply.is_closed()) {
                    continue;
                }
                let Some(tokens) = bounded(&text, &mut tokenizer) else { continue };
                has_counted.store(true, Ordering::Relaxed);
                match then {
                    // Whoever gave up in the meantime has made an estimate.
                    Then::Reply(reply) => drop(reply.send(tokens)),
                    Then::Use(then) => then(tokens),
                }
            }
        });
        if let Err(error) = spawned {
            tracing::error!(%error, "no thread to count tokens on: they are estimated");
        }
        Self { jobs, warm, refused: AtomicU64::new(0) }
    }

    /// The text's tokens. `None`, at once, where too many texts wait already.
    pub async fn count(&self, text: String) -> Option<u64> {
        let (reply, answer) = oneshot::channel();
        if !self.submit(Job { text, then: Then::Reply(reply) }) {
            return None;
        }
        answer.await.ok()
    }

    /// Does something with the text's tokens, on the counting thread: `then` should be short. Only
    /// if counting is what this counter has done before, so that learning alone never unpacks the
    /// vocabulary; and not where too many texts wait.
    pub fn count_if_warm(&self, text: String, then: impl FnOnce(u64) + Send + 'static) {
        if self.is_warm() {
            self.submit(Job { text, then: Then::Use(Box::new(then)) });
        }
    }

    /// Has anything been counted?
    #[must_use]
    pub fn is_warm(&self) -> bool {
        self.warm.load(Ordering::Relaxed)
    }

    /// Texts that were not counted, ever, as too many waited.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn submit(&self, job: Job) -> bool {
        let taken = self.jobs.try_send(job).is_ok();
        if !taken {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        taken
    }
}

fn o200k(text: &str) -> Option<u64> {
    u64::try_from(tiktoken::get_encoding("o200k_base")?.count(text)).ok()
}

/// Counts no more than [`MAX_COUNTED_BYTES`] of a text.
fn bounded(text: &str, tokenizer: &mut impl FnMut(&str) -> Option<u64>) -> Option<u64> {
    let part = &text[..text.floor_char_boundary(MAX_COUNTED_BYTES)];
    tokenizer(part).map(|tokens| scaled(tokens, part.len(), text.len()))
}

/// The tokens of `whole` bytes, where the first `part` of them have so many. Rounded up.
pub(super) fn scaled(tokens: u64, part: usize, whole: usize) -> u64 {
    if part == whole || part == 0 {
        return tokens;
    }
    let scaled = (u128::from(tokens) * whole as u128).div_ceil(part as u128);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}
