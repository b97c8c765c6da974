//! The body of a streamed answer.

use std::{
    mem::take,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use futures_util::Stream;
use http::{HeaderValue, header};
use http_body::Frame;
use tokio::time::{Instant, Sleep, sleep};

use crate::stream::{Receiver, Seldom};

const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// A response that streams `events`, with a comment in every `keepalive` in which there are none.
pub(super) fn response<S>(events: S, keepalive: Duration) -> Response
where
    S: Stream<Item = Bytes> + Send + 'static,
{
    let timer = Seldom::new(sleep(keepalive / 2));
    let events = Box::pin(events);
    let body = SseBody { events, keepalive, timer, silent_halves: 0, has_written: false };
    let mut response = Response::new(Body::new(body));
    let headers = response.headers_mut();
    headers
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    // nginx holds answers back otherwise.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// A channel's receiving end as a stream. Dropping it tells the sender that nobody reads.
pub(super) struct Received(pub Receiver);

impl Stream for Received {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.0.poll_receive(context)
    }
}

struct SseBody<S> {
    events: Pin<Box<S>>,
    keepalive: Duration,
    /// Rings each half `keepalive`: moving it for each event would cost more than the event.
    timer: Seldom<Sleep>,
    silent_halves: u8,
    /// Were there events since it rang?
    has_written: bool,
}

impl<S: Stream<Item = Bytes>> http_body::Body for SseBody<S> {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Poll::Ready(event) = self.events.as_mut().poll_next(context) {
            self.has_written = true;
            return Poll::Ready(event.map(|event| Ok(Frame::data(event))));
        }
        loop {
            ready!(Pin::new(&mut self.timer).poll(context));
            let next = Instant::now() + self.keepalive / 2;
            self.timer.reset(next);
            // Whenever in this half the last event was, by the end of the next no silence will have
            // been longer than the whole: without asking the clock at each event.
            self.silent_halves =
                if take(&mut self.has_written) { 1 } else { self.silent_halves + 1 };
            if self.silent_halves >= 2 {
                self.silent_halves = 0;
                return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(KEEP_ALIVE)))));
            }
        }
    }
}
