//! Tokens spent.

/// The tokens of one call, as the provider counted them or as we did.
///
/// `input_tokens` includes the cached ones (OpenAI's way; Anthropic's three numbers are summed).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_field_names, reason = "the unit stands in the name, as everywhere")]
pub struct Usage {
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// Of `input_tokens`, read from the provider's prompt cache.
    pub cached_input_tokens: u64,
    /// Of `output_tokens`, spent on reasoning.
    pub reasoning_tokens: u64,
}

/// Who counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageSource {
    /// The provider reported it.
    Provider,
    /// We counted what the model wrote, and estimated what it was asked.
    Counted,
    /// We estimated all of it by its bytes.
    Estimate,
}

impl UsageSource {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Provider => "provider",
            Self::Counted => "counted",
            Self::Estimate => "estimate",
        }
    }
}
