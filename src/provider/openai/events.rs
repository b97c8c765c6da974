//! The events of a streamed answer, as many at a time as have come in.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::Body as _;
use tokio::time::{Instant, Sleep, sleep};

use super::{OpenAi, client::Body, key::Key};
use crate::provider::{
    EventStream, Phase, ProviderError,
    sse::{Decoder, Event},
};

/// One event of a stream may be no larger.
const MAX_EVENT_BYTES: usize = 1 << 20;
/// How much of what has come in is handed on at once.
const MAX_BATCH_BYTES: usize = 32 << 10;
/// After so many looks for more that found nothing, the next is taken only after as many events.
const FRUITLESS_LOOKS: u32 = 4;
const EVENTS_BETWEEN_LOOKS: u32 = 16;

/// The events of one answer.
pub(super) struct HttpEvents {
    provider: String,
    key: Option<Arc<Key>>,
    body: Body,
    decoder: Decoder,
    idle_timeout: Duration,
    /// The wait for the first bytes is bounded by who waits for the first token.
    is_first: bool,
    /// Rearmed only when it fires: moving a timer for each event would cost more than the event.
    idle: Pin<Box<Sleep>>,
    /// Whom it wakes: to be polled again for nothing, at each event, it is too dear as well.
    armed: Option<Waker>,
    /// When the wait for the next bytes began, if it did.
    waiting_since: Option<Instant>,
    gathering: Gathering,
    /// What ended the stream after events that are yet to be handed on.
    ended: Option<Result<(), ProviderError>>,
}

/// Whether to look for more before events are handed on. The connection's task hands over one
/// piece at a time and must be let run before each look. Writing out at once what one read brought
/// in makes the difference between a write for each event and one for many; but a token each
/// 10 ms has nothing behind it, and to look costs a wake-up.
#[derive(Default)]
struct Gathering {
    /// What this batch has, in bytes as they came.
    size: usize,
    is_looking: bool,
    /// Looks in a row that found nothing.
    fruitless: u32,
    /// Events without a look.
    unlooked: u32,
}

impl Gathering {
    /// Puts the task at the back of its worker's queue, if it may pay. (Unlike `yield_now` this
    /// does not go by way of the I/O driver.)
    fn look(&mut self, context: &Context<'_>) -> bool {
        let pays = self.fruitless < FRUITLESS_LOOKS || self.unlooked >= EVENTS_BETWEEN_LOOKS;
        if !pays || self.size >= MAX_BATCH_BYTES {
            self.unlooked += 1;
            return false;
        }
        self.unlooked = 0;
        self.is_looking = true;
        context.waker().wake_by_ref();
        true
    }

    fn found(&mut self, more: bool) {
        if std::mem::take(&mut self.is_looking) {
            self.fruitless = if more { 0 } else { self.fruitless.saturating_add(1) };
        }
    }
}

impl HttpEvents {
    /// Of an answer's body alone: its headers are slices of the connection's read buffer, which can't
    /// be used again while they are there.
    pub(super) fn new(provider: &OpenAi, body: Body) -> Self {
        Self {
            provider: provider.name.clone(),
            key: provider.key.clone(),
            body,
            decoder: Decoder::new(MAX_EVENT_BYTES),
            idle_timeout: provider.idle_timeout,
            is_first: true,
            idle: Box::pin(sleep(provider.idle_timeout)),
            armed: None,
            waiting_since: None,
            gathering: Gathering::default(),
            ended: None,
        }
    }

    /// The next bytes; `None` at the body's end.
    fn poll_body(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, ProviderError>> {
        loop {
            let frame = ready!(Pin::new(&mut self.body).poll_frame(context)).transpose();
            return Poll::Ready(match frame {
                Ok(None) => Ok(None),
                Ok(Some(frame)) => match frame.into_data() {
                    Ok(bytes) => Ok(Some(bytes)),
                    // Trailers say nothing that we read.
                    Err(_) => continue,
                },
                Err(cause) => Err(self.lost(cause)),
            });
        }
    }

    /// Ready once the wait has been longer than the idle timeout. A slow client is no silent
    /// provider: while its answer is not read, the time is not the provider's.
    fn poll_idle(&mut self, context: &mut Context<'_>) -> Poll<ProviderError> {
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        loop {
            let is_armed = self.armed.as_ref().is_some_and(|it| it.will_wake(context.waker()));
            if self.is_first || (is_armed && !self.idle.is_elapsed()) {
                return Poll::Pending;
            }
            self.armed = Some(context.waker().clone());
            ready!(self.idle.as_mut().poll(context));
            let due = since + self.idle_timeout;
            if due <= Instant::now() {
                let limit_ms = u64::try_from(self.idle_timeout.as_millis()).unwrap_or(u64::MAX);
                let provider = self.provider.clone();
                return Poll::Ready(ProviderError::Timeout {
                    provider,
                    phase: Phase::Idle,
                    limit_ms,
                });
            }
            self.idle.as_mut().reset(due);
            self.armed = None;
        }
    }

    fn lost(&self, cause: String) -> ProviderError {
        ProviderError::Lost { provider: self.provider.clone(), cause }
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
        let before = events.len();
        self.gathering.size += chunk.len();
        let fed = self.decoder.feed(chunk, events).map_err(|error| ProviderError::Invalid {
            provider: self.provider.clone(),
            cause: error.to_string(),
        });
        if let Some(key) = &self.key {
            for event in &mut events[before..] {
                key.hide_in_event(event);
            }
        }
        events.retain(|event| event.has_data);
        fed
    }

    fn take(&mut self, bytes: Result<Option<Bytes>, ProviderError>, events: &mut Vec<Event>) {
        self.waiting_since = None;
        match bytes {
            Ok(Some(chunk)) => self.ended = self.feed(chunk, events).err().map(Err),
            Ok(None) => self.ended = Some(self.end(events)),
            Err(error) => self.ended = Some(Err(error)),
        }
    }
}

impl EventStream for HttpEvents {
    fn poll_events(
        &mut self,
        context: &mut Context<'_>,
        events: &mut Vec<Event>,
    ) -> Poll<Result<(), ProviderError>> {
        while self.ended.is_none() {
            let polled = self.poll_body(context);
            self.gathering.found(polled.is_ready());
            match polled {
                Poll::Ready(bytes) => self.take(bytes, events),
                Poll::Pending if events.is_empty() => {
                    let error = ready!(self.poll_idle(context));
                    self.ended = Some(Err(error));
                }
                Poll::Pending => break,
            }
            if !events.is_empty() && self.ended.is_none() {
                if self.gathering.look(context) {
                    return Poll::Pending;
                }
                break;
            }
        }
        self.gathering.size = 0;
        if events.is_empty() {
            // Polled no more after this.
            return Poll::Ready(self.ended.take().unwrap_or(Ok(())));
        }
        self.is_first = false;
        Poll::Ready(Ok(()))
    }
}
