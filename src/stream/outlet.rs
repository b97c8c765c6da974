//! Where a call's answer goes, whichever dialect its client speaks.

use std::{sync::Arc, time::Duration};

use super::{NativeStream, NativeWriter, PassthroughWriter, ToolCallOverflow, Watch};
use crate::{
    domain::{CancelReason, FrameError, MicroUsd, Usage},
    provider::{ChunkView, sse::Event},
};

/// Nobody reads any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

/// How a stream ends, as its reader is told.
#[derive(Debug, Clone)]
pub enum Conclusion {
    Completed { usage: Usage, cost: Option<MicroUsd> },
    Canceled(CancelReason),
    Failed(FrameError),
}

/// Writes a stream in the dialect of its client.
#[derive(Debug)]
pub enum Outlet {
    /// `OpenAI` chunks, as the provider sent them.
    Passthrough(PassthroughWriter),
    /// Our own frames, kept for resumption.
    Native(NativeWriter),
}

impl Outlet {
    /// The client is about to be told that the stream begins.
    pub fn begin(&self) {
        match self {
            Self::Passthrough(_) => {}
            Self::Native(writer) => writer.begin(),
        }
    }

    /// Takes in one event; what it gives to write waits for [`Outlet::flush`].
    ///
    /// # Errors
    /// [`ToolCallOverflow`]: the stream can't go on without leaving something out.
    pub fn push(&mut self, event: &Event, view: &ChunkView<'_>) -> Result<(), ToolCallOverflow> {
        match self {
            Self::Passthrough(writer) => {
                writer.push(event, view);
                Ok(())
            }
            Self::Native(writer) => writer.push(view),
        }
    }

    /// Writes what was taken in. Waits while a client reads too slowly.
    ///
    /// # Errors
    /// [`Gone`] if nobody will read it.
    pub async fn flush(&mut self) -> Result<(), Gone> {
        match self {
            Self::Passthrough(writer) => writer.flush().await,
            Self::Native(writer) => {
                writer.flush();
                Ok(())
            }
        }
    }

    /// Writes what is left, and the one terminal event.
    pub async fn conclude(self, conclusion: &Conclusion) {
        match self {
            Self::Passthrough(writer) => writer.conclude(conclusion).await,
            Self::Native(writer) => writer.conclude(conclusion),
        }
    }
}

/// Tells when nobody wants a call's answer any more.
#[derive(Debug)]
pub enum Lifeline {
    /// The receiving end is held by the handler, and then by the response's body.
    Connection(Watch),
    Stream {
        stream: Arc<NativeStream>,
        orphan_timeout: Duration,
    },
}

impl Lifeline {
    /// Waits until the call is to be canceled, and says why.
    pub async fn cut(&self) -> CancelReason {
        match self {
            Self::Connection(watch) => {
                watch.gone().await;
                CancelReason::HungUp
            }
            // Boxed, as it is the larger one.
            Self::Stream { stream, orphan_timeout } => {
                Box::pin(async {
                    tokio::select! {
                        () = stream.canceled() => CancelReason::Requested,
                        reason = stream.orphaned(*orphan_timeout) => reason,
                    }
                })
                .await
            }
        }
    }
}
