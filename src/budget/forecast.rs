//! What a call may spend at most, said before it leaves.

use std::sync::OnceLock;

use crate::domain::{Denial, Kind, ModelCall, Price, Usage};

/// The output that is reserved where neither the request nor the model bounds it.
const UNBOUNDED_OUTPUT_TOKENS: u64 = 4_096;

/// A call's tokens and money, before it is sent.
///
/// Tokens are an estimate, and what is spent beyond it becomes debt. A request that bounds its
/// output reserves that bound. One that does not reserves the model's bound, but no more than a
/// bucket ever holds: else a small bucket would let nobody in who leaves `max_tokens` out. So it
/// waits until the bucket is full, goes alone, and what it spends beyond the bucket is waited out
/// by those after it: the overrun is at most one model's bound.
///
/// Money is a bound, never an estimate: a byte of the request is at most a token. What is in an
/// image or a file its bytes don't say, so there it is the model's own bound on its input.
#[derive(Debug)]
pub struct Forecast<'a> {
    call: &'a ModelCall,
    /// The most that its input can be, where something bounds it. Worked out for the first bucket
    /// that counts money: it takes a walk through the request.
    input_bound: OnceLock<Option<u64>>,
    bounds: ModelBounds,
    input_tokens: u64,
    output_tokens: u64,
    /// The request itself bounds its output.
    is_bounded: bool,
    /// Neither the request nor the model bounds the output.
    is_endless: bool,
}

/// What the configuration says of a model.
#[derive(Debug, Clone, Copy)]
pub struct ModelBounds {
    /// Its context: it never reads more.
    pub max_input_tokens: Option<u64>,
    pub max_output_tokens: Option<u64>,
    pub price: Option<Price>,
    /// Providers that it may be tried with, one after the other.
    pub attempts: u64,
}

impl<'a> Forecast<'a> {
    /// `input_tokens`: as many as the request is thought to have.
    #[must_use]
    pub fn new(call: &'a ModelCall, input_tokens: u64, bounds: ModelBounds) -> Self {
        let bound = [call.max_tokens, bounds.max_output_tokens].into_iter().flatten().min();
        let each = bound.unwrap_or(UNBOUNDED_OUTPUT_TOKENS);
        Self {
            call,
            input_bound: OnceLock::new(),
            bounds,
            input_tokens,
            output_tokens: each.saturating_mul(call.choices),
            is_bounded: call.max_tokens.is_some(),
            is_endless: bound.is_none(),
        }
    }

    fn input_bound(&self) -> Option<u64> {
        let own = self.bounds.max_input_tokens;
        if self.call.has_parts_of_unknown_size() {
            return own;
        }
        let bytes = u64::try_from(self.call.body_len()).unwrap_or(u64::MAX);
        Some(own.map_or(bytes, |own| own.min(bytes)))
    }

    /// The most that the call's answers can have, where something bounds them.
    #[must_use]
    pub const fn output_bound(&self) -> Option<u64> {
        if self.is_endless { None } else { Some(self.output_tokens) }
    }

    /// What to reserve of a token bucket that holds `most`.
    pub(super) fn tokens_of(&self, most: u64) -> u64 {
        let tokens = self.input_tokens.saturating_add(self.output_tokens);
        if self.is_bounded { tokens } else { tokens.min(most.max(self.input_tokens)) }
    }

    /// What to reserve of a money bucket, in micro-USD.
    pub(super) fn micro_usd(&self, model: &str) -> Result<u64, Denial> {
        let Some(price) = self.bounds.price else {
            let message = format!(
                "A budget in USD applies to the caller, and the model `{model}` has no price; ask an \
                 operator to give it one, or use another."
            );
            return Err(Denial::new(Kind::UnpricedModel, message).with_param("model"));
        };
        if self.is_endless {
            let message = "A budget in USD applies to the caller, and nothing bounds this call's \
                           cost: send max_tokens.";
            return Err(Denial::new(Kind::InvalidRequest, message).with_param("max_tokens"));
        }
        let Some(input) = *self.input_bound.get_or_init(|| self.input_bound()) else {
            let message = format!(
                "A budget in USD applies to the caller, and nothing bounds what the request's images \
                 or files cost; ask an operator to set max_input_tokens of the model `{model}`."
            );
            return Err(Denial::new(Kind::InvalidRequest, message).with_param("messages"));
        };
        // Each provider that it is tried with may charge for having read it.
        let input_tokens = input.saturating_mul(self.bounds.attempts);
        let output_tokens = self.output_tokens;
        Ok(price.dearest(&Usage { input_tokens, output_tokens, ..Usage::default() }).0)
    }
}
