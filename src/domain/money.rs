//! Money, in integers.

use std::fmt;

use super::Usage;

/// Millionths of a US dollar.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct MicroUsd(pub u64);

/// US dollars with six decimals: `0.000198`.
impl fmt::Display for MicroUsd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

/// A model's price, in millionths of a US dollar per million tokens, which is the same number
/// as picodollars per token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    pub input: u64,
    pub cached_input: u64,
    pub output: u64,
}

impl Price {
    /// What `usage` costs at most, whatever of it was cached.
    #[must_use]
    pub fn dearest(&self, usage: &Usage) -> MicroUsd {
        let input = self.input.max(self.cached_input);
        Self { input, cached_input: input, ..*self }.cost(usage)
    }

    /// What `usage` costs, rounded up to a whole micro-dollar.
    #[must_use]
    pub fn cost(&self, usage: &Usage) -> MicroUsd {
        let cached = usage.cached_input_tokens.min(usage.input_tokens);
        let picodollars = u128::from(usage.input_tokens - cached) * u128::from(self.input)
            + u128::from(cached) * u128::from(self.cached_input)
            + u128::from(usage.output_tokens) * u128::from(self.output);
        MicroUsd(u64::try_from(picodollars.div_ceil(1_000_000)).unwrap_or(u64::MAX))
    }
}
