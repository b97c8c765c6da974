//! What must last until an answer's last byte is handed over: its span, and its place among the
//! requests in flight.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;

use crate::{pipeline::Failure, telemetry::CallSpan};

/// A place among the requests in flight, on its way from the layer that took it to the body that
/// keeps it. (An extension must be `Clone`; the permit itself is in one place only.)
#[derive(Debug, Clone)]
pub(super) struct InFlight(Arc<Mutex<Option<OwnedSemaphorePermit>>>);

impl InFlight {
    pub(super) fn new(permit: OwnedSemaphorePermit) -> Self {
        Self(Arc::new(Mutex::new(Some(permit))))
    }

    fn take(&self) -> Option<OwnedSemaphorePermit> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The response, whose span and place end with its body.
pub(super) fn until_sent(
    mut response: Response,
    span: CallSpan,
    refusal: Option<&'static str>,
    failure: &Failure,
) -> Response {
    let permit = response.extensions_mut().remove::<InFlight>().and_then(|place| place.take());
    let status = response.status().as_u16();
    if response.body().is_end_stream() {
        span.end_server(status, refusal.or_else(|| failure.code()));
        return response;
    }
    let end = Some(End { span, refusal, failure: failure.clone() });
    response.map(|body| Body::new(Watched { body, end, status, _permit: permit }))
}

struct Watched {
    body: Body,
    /// Gone once the span has ended.
    end: Option<End>,
    status: u16,
    _permit: Option<OwnedSemaphorePermit>,
}

/// What is told at the end: how the head refused the request, or how its call failed after that.
struct End {
    span: CallSpan,
    refusal: Option<&'static str>,
    failure: Failure,
}

impl Watched {
    fn end(&mut self) {
        if let Some(End { span, refusal, failure }) = self.end.take() {
            span.end_server(self.status, refusal.or_else(|| failure.code()));
        }
    }
}

impl http_body::Body for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if matches!(frame, Poll::Ready(None)) {
            self.end();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Watched {
    /// The client may hang up, and hyper does not ask a body of known length for its end.
    fn drop(&mut self) {
        self.end();
    }
}
