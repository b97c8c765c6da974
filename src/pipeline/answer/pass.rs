//! Between a provider's chunks and the client's outlet.

use super::{AnswerError, AnswerStream, Taken};
use crate::{
    domain::{Denial, Kind},
    pipeline::content::Exit,
    provider::{ChunkView, sse::Event},
    redact::Redactor,
    stream::ToolCallOverflow,
};

/// A chunk can't be passed on, and no other one after it.
#[derive(Debug, thiserror::Error)]
pub(in crate::pipeline) enum PassError {
    #[error(transparent)]
    Overflow(#[from] ToolCallOverflow),
    #[error(transparent)]
    Redaction(#[from] AnswerError),
}

impl PassError {
    pub fn to_denial(&self) -> Denial {
        match self {
            Self::Overflow(_) => Denial::new(
                Kind::UpstreamInvalid,
                "The model's provider sent larger tool calls than can be passed on.",
            ),
            Self::Redaction(error) => error.to_denial(),
        }
    }
}

/// Passes a chunk on without its secrets.
pub(in crate::pipeline) fn pass(
    redaction: &mut AnswerStream,
    redactor: &Redactor,
    exit: &mut Exit<'_>,
    chunk: &Event,
    view: &ChunkView<'_>,
) -> Result<(), PassError> {
    match redaction.take(redactor, chunk, view)? {
        Taken::Untouched => exit.push(chunk, view),
        Taken::Replaced(chunks) => chunks.iter().try_for_each(|chunk| push(exit, chunk)),
    }
}

/// Passes on what is held back at a stream's end.
pub(in crate::pipeline) fn let_go(
    redaction: &mut AnswerStream,
    redactor: &Redactor,
    exit: &mut Exit<'_>,
) -> Result<(), PassError> {
    redaction.finish(redactor).iter().try_for_each(|chunk| push(exit, chunk))
}

fn push(exit: &mut Exit<'_>, chunk: &Event) -> Result<(), PassError> {
    let view = ChunkView::parse(&chunk.data).map_err(|_| AnswerError::Broken)?;
    exit.push(chunk, &view)
}
