//! What goes wrong with a call on its way, as its client is told and as it is logged.

use super::{Ending, answer::PassError};
use crate::{
    domain::{Denial, Kind},
    redact::RedactError,
};

pub(super) fn shutting_down() -> Denial {
    Denial::new(Kind::ShuttingDown, "The gateway is shutting down; try again.")
        .with_retry_after_ms(1_000)
}

pub(super) fn too_long() -> Denial {
    Denial::new(Kind::CallTimeout, "The call took longer than request_timeout_s.")
}

pub(super) fn panicked() -> Denial {
    tracing::error!("the story of a call panicked: a bug");
    Denial::new(Kind::Internal, "The gateway failed; the request id finds it in the log.")
}

/// What is wrong with the body may quote it, so it is not logged.
pub(super) fn not_redacted(error: &RedactError) -> Ending {
    match error {
        RedactError::Blocked { denial, .. } => Ending::Denied(denial.clone()),
        RedactError::Broken { .. } | RedactError::Failed => {
            tracing::error!("a call could not be redacted, so it was not sent: a bug");
            Ending::Failed(error.to_denial())
        }
    }
}

/// What the parser says of the chunk may quote it, so only the place is logged.
pub(super) fn not_understood(error: &serde_json::Error) -> Ending {
    let (kind, column) = (error.classify(), error.column());
    tracing::warn!(?kind, column, "a chunk is not understood");
    let message = "The model's provider sent a chunk that is not understood.";
    Ending::Failed(Denial::new(Kind::UpstreamInvalid, message))
}

pub(super) fn not_passed_on(error: &PassError) -> Ending {
    tracing::warn!(%error, "a stream cannot be passed on whole");
    Ending::Failed(error.to_denial())
}

pub(super) fn cut_short() -> Denial {
    Denial::new(Kind::UpstreamLost, "The model's provider broke off before the answer's end.")
}
