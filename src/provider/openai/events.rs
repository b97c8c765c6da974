//! The events of a streamed answer, as many at a time as have come in.

use std::{pin::Pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::FutureExt as _;
use reqwest::Response;
use tokio::time::{Instant, Sleep};

use super::{OpenAi, causes, key::Key};
use crate::provider::{
    EventStream, Phase, ProviderError,
    sse::{Decoder, Event},
};

/// One event of a stream may be no larger.
const MAX_EVENT_BYTES: usize = 1 << 20;
/// Bytes that come so soon after the last ones come in a burst.
const BURST: Duration = Duration::from_micros(500);
/// How much of what has come in is handed on at once.
const MAX_BATCH_BYTES: usize = 32 << 10;

/// The events of one answer.
pub(super) struct HttpEvents {
    provider: String,
    key: Option<Arc<Key>>,
    response: Response,
    decoder: Decoder,
    idle_timeout: Duration,
    /// The wait for the first bytes is bounded by who waits for the first token.
    is_first: bool,
    /// Rearmed only when it fires: moving a timer for each event would cost more than the event.
    idle: Pin<Box<Sleep>>,
    /// When the wait for the next bytes began.
    waiting_since: Instant,
    /// What ended the stream after events that are yet to be handed on.
    ended: Option<Result<(), ProviderError>>,
}

impl HttpEvents {
    pub(super) fn new(provider: &OpenAi, mut response: Response) -> Self {
        // They are slices of the connection's read buffer, which can't be used again until then.
        drop(std::mem::take(response.headers_mut()));
        response.extensions_mut().clear();
        Self {
            provider: provider.name.clone(),
            key: provider.key.clone(),
            response,
            decoder: Decoder::new(MAX_EVENT_BYTES),
            idle_timeout: provider.idle_timeout,
            is_first: true,
            idle: Box::pin(tokio::time::sleep(provider.idle_timeout)),
            waiting_since: Instant::now(),
            ended: None,
        }
    }

    /// The next bytes, waited for no longer than the idle timeout. A slow client is no silent
    /// provider: while its answer is not read, the time is not the provider's.
    async fn read(&mut self) -> Result<Option<Bytes>, ProviderError> {
        self.waiting_since = Instant::now();
        loop {
            tokio::select! {
                biased;
                chunk = self.response.chunk() => return chunk.map_err(|error| self.lost(&error)),
                () = self.idle.as_mut(), if !self.is_first => {
                    let due = self.waiting_since + self.idle_timeout;
                    if due <= Instant::now() {
                        let limit_ms = u64::try_from(self.idle_timeout.as_millis()).unwrap_or(u64::MAX);
                        let provider = self.provider.clone();
                        return Err(ProviderError::Timeout { provider, phase: Phase::Idle, limit_ms });
                    }
                    self.idle.as_mut().reset(due);
                }
            }
        }
    }

    fn lost(&self, error: &reqwest::Error) -> ProviderError {
        ProviderError::Lost { provider: self.provider.clone(), cause: causes(error) }
    }

    /// The stream's end: clean only if no event is half there. A last `[DONE]` without its blank
    /// line is taken for one: some servers end so, and nothing of the answer is missing.
    fn end(&mut self, events: &mut Vec<Event>) -> Result<(), ProviderError> {
        let rest = self.decoder.partial().trim_ascii();
        if rest.strip_prefix(b"data:").is_some_and(|data| data.trim_ascii() == b"[DONE]") {
            return self.feed(Bytes::from_static(b"\n\n"), events);
        }
        if !rest.is_empty() {
            let cause = "it ended in the middle of an event".to_owned();
            return Err(ProviderError::Lost { provider: self.provider.clone(), cause });
        }
        Ok(())
    }

    fn feed(&mut self, chunk: Bytes, events: &mut Vec<Event>) -> Result<(), ProviderError> {
        self.decoder.feed(chunk, events).map_err(|error| ProviderError::Invalid {
            provider: self.provider.clone(),
            cause: error.to_string(),
        })
    }

    /// Adds whatever else has come in already. The connection's task is let run before each look:
    /// it hands over one piece at a time. Writing out at once what one read brought in is what
    /// makes the difference between a write for each event and one for many.
    async fn gather(&mut self, mut size: usize, events: &mut Vec<Event>) {
        while size < MAX_BATCH_BYTES && self.ended.is_none() {
            let_others_run().await;
            match self.response.chunk().now_or_never() {
                None => return,
                Some(Ok(Some(chunk))) => {
                    size += chunk.len();
                    self.ended = self.feed(chunk, events).err().map(Err);
                }
                Some(Ok(None)) => self.ended = Some(self.end(events)),
                Some(Err(error)) => self.ended = Some(Err(self.lost(&error))),
            }
        }
    }
}

#[async_trait]
impl EventStream for HttpEvents {
    async fn next(&mut self) -> Result<Option<Vec<Event>>, ProviderError> {
        let mut events = Vec::with_capacity(4);
        loop {
            if let Some(ended) = self.ended.take() {
                return ended.map(|()| None);
            }
            match self.read().await? {
                Some(chunk) => {
                    let size = chunk.len();
                    self.ended = self.feed(chunk, &mut events).err().map(Err);
                    // A token each 10 ms has nothing behind it, and to look costs a wake-up.
                    if self.waiting_since.elapsed() < BURST {
                        self.gather(size, &mut events).await;
                    }
                }
                None => self.ended = Some(self.end(&mut events)),
            }
            events.retain(|event| event.has_data);
            if let Some(key) = &self.key {
                for event in &mut events {
                    key.hide_in_event(event);
                }
            }
            if !events.is_empty() {
                self.is_first = false;
                return Ok(Some(events));
            }
        }
    }
}

/// Puts this task at the back of its worker's queue, once. Unlike `yield_now` it does not go by
/// way of the I/O driver.
async fn let_others_run() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if yielded {
            return std::task::Poll::Ready(());
        }
        yielded = true;
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}
