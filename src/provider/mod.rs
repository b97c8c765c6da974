//! Providers: what answers a call.
//!
//! Whatever a provider's own dialect is, it gives back `OpenAI`'s: a whole answer, or a stream of
//! chat completion chunks as SSE events, which the dialect of the client's route is made from.

mod chunk;
mod error;
mod openai;
mod registry;
mod scripted;
pub mod sse;

use std::task::{Context, Poll};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

pub use chunk::{
    Choice, ChunkHead, ChunkView, CompletionView, Delta, Text, ToolCallDelta, UsageView,
};
pub use error::{Phase, ProviderError};
pub use openai::{OpenAi, list_models};
pub use registry::{Model, Registry, RegistryError, Route};
pub use scripted::Scripted;

use crate::domain::{RequestId, TraceContext, TraceState};

/// An upstream that answers chat completions.
#[async_trait]
pub trait Provider: Send + Sync {
    /// As it is called in the configuration.
    fn name(&self) -> &str;

    /// Sends a call and waits for the answer's beginning: a whole answer, or the first events of
    /// a stream. Dropping the future or the reply stops the upstream.
    ///
    /// # Errors
    /// [`ProviderError`] where there is no answer. A refusal by the provider is an answer.
    async fn send(&self, request: ProviderRequest) -> Result<Reply, ProviderError>;
}

/// What is sent to a provider. Nothing of the caller's own credentials is in it.
#[derive(Debug, Clone)]
pub struct ProviderRequest {
    /// A chat completion's body, with the provider's own name of the model.
    pub body: Bytes,
    pub stream: bool,
    pub trace: TraceContext,
    pub trace_state: Option<TraceState>,
    pub request_id: RequestId,
}

/// A provider's answer.
pub enum Reply {
    /// A whole answer, good or bad, to be passed on as it is.
    Complete(Complete),
    Stream(Opened),
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Complete(complete) => complete.fmt(f),
            Self::Stream(_) => f.write_str("Stream"),
        }
    }
}

/// A whole answer.
#[derive(Debug, Clone)]
pub struct Complete {
    pub status: u16,
    /// Only those that may be passed on.
    pub headers: HeaderMap,
    /// JSON, unless `status` says that it is an error's.
    pub body: Bytes,
}

impl Complete {
    /// Leaves out the headers whose value `is_secret`: the client can do without.
    pub fn drop_headers(&mut self, is_secret: impl Fn(&str) -> bool) {
        let secret = |value: &HeaderValue| is_secret(&String::from_utf8_lossy(value.as_bytes()));
        let names: Vec<HeaderName> = self.headers.keys().cloned().collect();
        for name in names {
            if self.headers.get_all(&name).iter().any(secret) {
                self.headers.remove(name);
            }
        }
    }
}

/// A stream whose first events have come.
#[expect(missing_debug_implementations, reason = "a stream under way has nothing to show")]
pub struct Opened {
    pub first: Vec<sse::Event>,
    pub rest: Box<dyn EventStream>,
}

/// The events of a stream, as many at a time as have come in.
pub trait EventStream: Send {
    /// Adds the next events to `events`, which was empty at the first poll for them and is left
    /// as it is until then: at least one, or none at the stream's end.
    ///
    /// A poll function and no `async` one, which would take an allocation for each event.
    ///
    /// # Errors
    /// [`ProviderError`] where the stream is cut, stalls or is no event stream. Poll no more then.
    fn poll_events(
        &mut self,
        context: &mut Context<'_>,
        events: &mut Vec<sse::Event>,
    ) -> Poll<Result<(), ProviderError>>;
}
