//! The body of a streamed answer.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use futures_util::Stream;
use http::{HeaderValue, header};
use http_body::Frame;
use tokio::time::{Instant, Sleep};

use crate::stream::Receiver;

const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// A response that streams `events`, with a comment each `keepalive` in which there are none.
pub(super) fn response<S>(events: S, keepalive: Duration) -> Response
where
    S: Stream<Item = Bytes> + Send + 'static,
{
    let body = SseBody {
        events: Box::pin(events),
        keepalive,
        timer: Box::pin(tokio::time::sleep(keepalive)),
        last_write: Instant::now(),
    };
    let mut response = Response::new(Body::new(body));
    let headers = response.headers_mut();
    headers
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
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
    /// Rearmed only when it fires: moving it for each event would cost more than the event.
    timer: Pin<Box<Sleep>>,
    last_write: Instant,
}

impl<S: Stream<Item = Bytes>> http_body::Body for SseBody<S> {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Poll::Ready(event) = self.events.as_mut().poll_next(context) {
            self.last_write = Instant::now();
            return Poll::Ready(event.map(|event| Ok(Frame::data(event))));
        }
        loop {
            ready!(self.timer.as_mut().poll(context));
            let due = self.last_write + self.keepalive;
            let now = Instant::now();
            if due <= now {
                self.last_write = now;
                let next = now + self.keepalive;
                self.timer.as_mut().reset(next);
                return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(KEEP_ALIVE)))));
            }
            self.timer.as_mut().reset(due);
        }
    }
}
