//! What goes wrong with a provider.

use crate::domain::{Denial, Kind};

/// Which wait was too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Of a stream.
    FirstToken,
    /// The head of a whole answer.
    Answer,
    Idle,
}

/// Why a provider gave no answer, or no more of one.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// No connection: nothing was sent.
    #[error("{provider}: cannot connect: {cause}")]
    Connect { provider: String, cause: String },
    #[error("{provider}: no answer within {limit_ms} ms ({})", match .phase {
        Phase::FirstToken => "first_token_timeout_ms",
        Phase::Answer => "answer_timeout_ms",
        Phase::Idle => "idle_timeout_ms",
    })]
    Timeout { provider: String, phase: Phase, limit_ms: u64 },
    /// The connection broke, or ended before the answer did.
    #[error("{provider}: the answer was cut: {cause}")]
    Lost { provider: String, cause: String },
    /// What came is no answer in the provider's dialect.
    #[error("{provider}: not understood: {cause}")]
    Invalid { provider: String, cause: String },
}

impl ProviderError {
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Connect { .. } => Kind::UpstreamUnavailable,
            Self::Timeout { .. } => Kind::UpstreamTimeout,
            Self::Lost { .. } => Kind::UpstreamLost,
            Self::Invalid { .. } => Kind::UpstreamInvalid,
        }
    }

    /// As the public sees it: nothing of the provider's address or of what it said.
    #[must_use]
    pub fn to_denial(&self) -> Denial {
        let message = match self {
            Self::Connect { .. } => "The model's provider cannot be reached; try again.",
            Self::Timeout { phase: Phase::FirstToken | Phase::Answer, .. } => {
                "The model's provider did not answer in time; try again."
            }
            Self::Timeout { phase: Phase::Idle, .. } => {
                "The model's provider fell silent in the middle of its answer; try again."
            }
            Self::Lost { .. } => "The connection to the model's provider broke; try again.",
            Self::Invalid { .. } => "The model's provider sent an answer that is not understood.",
        };
        Denial::new(self.kind(), message)
    }
}
