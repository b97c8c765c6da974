//! Tokens from bytes: one for each four, corrected for each model by what its providers counted.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use arc_swap::ArcSwap;

/// What English and JSON come to in the vocabularies of the day: the estimate before anything was
/// seen of a model.
const BYTES_PER_TOKEN: u64 = 4;

/// One, in the fixed point that corrections are kept in.
const ONE: u32 = 1 << 20;

/// A correction stays within these times the prior. At the upper one each byte is a token, and no
/// byte-level vocabulary makes more; at the lower one a token is 16 bytes, which whole texts don't
/// reach.
const LEAST: u32 = ONE / 4;
const MOST: u32 = ONE * 4;

/// A new sample's weight is one in this many: after 22 alike, a tenth of the error is left, and
/// one alone moves a correction by no more than 0.375.
const WEIGHT: u64 = 10;

/// Of fewer bytes than these, what a provider adds to every call (roles, ends) is the most part.
const LEAST_BYTES: u64 = 64;

/// Estimates of tokens. Shared by all calls: reading and correcting take no lock.
///
/// The error is bounded: whatever was observed, `n` bytes are estimated at no less than `n / 16`
/// and no more than `n` tokens, rounded up. Where a model's true ratio lies in these bounds, as
/// it does for text, an estimate is off by a factor of 16 at the very worst and by that of the
/// calls' own differences once some tens were seen. Bytes that are no text (a picture in base64)
/// are estimated as if they were.
///
/// The models are those of the configuration: see [`Estimator::retain`].
#[derive(Debug, Default)]
pub struct Estimator(ArcSwap<HashMap<String, Arc<Corrections>>>);

/// What was seen of one model.
#[derive(Debug, Default)]
struct Corrections {
    input: Correction,
    output: Correction,
    counted: Correction,
}

impl Estimator {
    #[must_use]
    pub fn new<'a>(models: impl IntoIterator<Item = &'a str>) -> Self {
        let estimator = Self::default();
        estimator.retain(models);
        estimator
    }

    /// These are the models from now on. What was seen of those that stay is kept; one that is not
    /// among them is estimated by the prior, and nothing is kept of it.
    pub fn retain<'a>(&self, models: impl IntoIterator<Item = &'a str>) {
        let old = self.0.load();
        let kept = |name: &str| old.get(name).map(Arc::clone).unwrap_or_default();
        let new = models.into_iter().map(|name| (name.to_owned(), kept(name))).collect();
        self.0.store(Arc::new(new));
    }

    /// The tokens that a request of so many bytes comes to.
    #[must_use]
    pub fn input_tokens(&self, model: &str, bytes: usize) -> u64 {
        self.estimate(model, |of| &of.input, wide(bytes), BYTES_PER_TOKEN)
    }

    /// The tokens that so many bytes written by the model come to.
    #[must_use]
    pub fn output_tokens(&self, model: &str, bytes: usize) -> u64 {
        self.estimate(model, |of| &of.output, wide(bytes), BYTES_PER_TOKEN)
    }

    /// What the model's own vocabulary makes of a text that [`super::TokenCounter`] counted so.
    #[must_use]
    pub fn own_tokens(&self, model: &str, counted: u64) -> u64 {
        self.estimate(model, |of| &of.counted, counted, 1)
    }

    /// A provider counted so many tokens in a request of so many bytes.
    pub fn observe_input(&self, model: &str, bytes: usize, tokens: u64) {
        self.observe(model, |of| &of.input, wide(bytes), BYTES_PER_TOKEN, tokens);
    }

    /// A provider counted so many tokens in what the model wrote, which was of so many bytes.
    pub fn observe_output(&self, model: &str, bytes: usize, tokens: u64) {
        self.observe(model, |of| &of.output, wide(bytes), BYTES_PER_TOKEN, tokens);
    }

    /// A provider counted so many tokens in a text of which [`super::TokenCounter`] made so many.
    pub fn observe_counted(&self, model: &str, counted: u64, tokens: u64) {
        self.observe(model, |of| &of.counted, counted, 1, tokens);
    }

    fn estimate(
        &self,
        model: &str,
        which: fn(&Corrections) -> &Correction,
        amount: u64,
        per_token: u64,
    ) -> u64 {
        let models = self.0.load();
        let ratio = models.get(model).map_or(ONE, |of| which(of).get());
        let scaled = u128::from(amount) * u128::from(ratio);
        let tokens = scaled.div_ceil(u128::from(per_token) * u128::from(ONE));
        u64::try_from(tokens).unwrap_or(u64::MAX)
    }

    fn observe(
        &self,
        model: &str,
        which: fn(&Corrections) -> &Correction,
        amount: u64,
        per_token: u64,
        tokens: u64,
    ) {
        // No tokens for all these bytes: a provider that doesn't count, not a measurement.
        if tokens == 0 || amount < LEAST_BYTES / (BYTES_PER_TOKEN / per_token) {
            return;
        }
        if let Some(of) = self.0.load().get(model) {
            let scaled = u128::from(tokens) * u128::from(per_token) * u128::from(ONE);
            let ratio = u32::try_from(scaled / u128::from(amount)).unwrap_or(MOST);
            which(of).learn(ratio.clamp(LEAST, MOST));
        }
    }
}

/// How many times the prior: an exponentially weighted moving average, in fixed point.
#[derive(Debug)]
struct Correction(AtomicU32);

impl Default for Correction {
    fn default() -> Self {
        Self(AtomicU32::new(ONE))
    }
}

impl Correction {
    fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// The average of values within the bounds is within them, rounded down and all.
    fn learn(&self, sample: u32) {
        let mix = |old: u32| {
            let sum = u64::from(old) * (WEIGHT - 1) + u64::from(sample);
            u32::try_from(sum / WEIGHT).ok()
        };
        // The closure always gives a value, so there is nothing to handle.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, mix);
    }
}

fn wide(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
