//! What a connection is at, and for how long it may be.
//!
//! hyper has one timer, for an HTTP/1 head, and idleness counts as one; it has none before it
//! knows the version, and none for HTTP/2 that sends no request. One timer a connection does for
//! all of that here. It is set anew when it rings and not at each request.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use http::Version;
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, sleep, sleep_until};

use crate::stream::Seldom;

/// How often a connection that is to end is looked at.
const QUIET_INTERVAL: Duration = Duration::from_millis(250);
/// No head has begun.
const NONE: u64 = u64::MAX;

/// Why a connection is no longer served as before.
#[derive(Debug)]
pub(super) enum Verdict {
    Ended(hyper::Result<()>),
    /// A head did not arrive in time.
    Late,
    /// No request for long.
    Idle,
    /// The client takes nothing of its answers, and has not for long.
    Stalled,
    /// The server stops.
    Stop,
}

/// What one connection is at. Times are in milliseconds since it was opened.
#[derive(Debug)]
pub(super) struct Activity {
    opened: Instant,
    header_timeout: Duration,
    idle_timeout: Duration,
    /// Was there a request yet?
    called: AtomicBool,
    is_h2: AtomicBool,
    in_flight: AtomicUsize,
    /// Answers of which a piece was handed over and the next not asked for: it waits for the
    /// client.
    handed: AtomicUsize,
    /// How many pieces were, in all answers: the clock is not asked at each.
    pieces: AtomicU64,
    idle_since_ms: AtomicU64,
    head_since_ms: AtomicU64,
}

impl Activity {
    pub(super) fn new(header_timeout: Duration, idle_timeout: Duration) -> Self {
        Self {
            opened: Instant::now(),
            header_timeout,
            idle_timeout,
            called: AtomicBool::new(false),
            is_h2: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
            handed: AtomicUsize::new(0),
            pieces: AtomicU64::new(0),
            idle_since_ms: AtomicU64::new(0),
            head_since_ms: AtomicU64::new(NONE),
        }
    }

    /// Bytes came. In HTTP/1 and between requests, the first of them begin a head.
    pub(super) fn received(&self) {
        let between = self.in_flight.load(Ordering::Acquire) == 0
            && self.called.load(Ordering::Relaxed)
            && !self.is_h2.load(Ordering::Relaxed);
        if between && self.head_since_ms.load(Ordering::Relaxed) == NONE {
            self.head_since_ms.store(self.now_ms(), Ordering::Relaxed);
        }
    }

    /// A request's head is complete; the request lasts until the returned call is dropped.
    pub(super) fn call(self: &Arc<Self>, version: Version) -> Call {
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        self.is_h2.store(version == Version::HTTP_2, Ordering::Relaxed);
        self.called.store(true, Ordering::Relaxed);
        self.head_since_ms.store(NONE, Ordering::Relaxed);
        Call { activity: Arc::clone(self), handed: false }
    }

    /// What happens when, unless something else does; `None` while a request is in flight.
    fn due(&self) -> Option<(Instant, Verdict)> {
        if !self.called.load(Ordering::Relaxed) {
            return Some((self.opened + self.header_timeout, Verdict::Late));
        }
        let at = |ms| self.opened + Duration::from_millis(ms);
        if self.in_flight.load(Ordering::Acquire) > 0 {
            return None;
        }
        Some(match self.head_since_ms.load(Ordering::Relaxed) {
            NONE => {
                let since = at(self.idle_since_ms.load(Ordering::Relaxed));
                (since + self.idle_timeout, Verdict::Idle)
            }
            head => (at(head) + self.header_timeout, Verdict::Late),
        })
    }

    /// How many pieces the client was handed, if all that is in flight waits for it to take one.
    /// (In HTTP/2 one answer that stands still is no reason to cut the others.)
    fn stuck(&self) -> Option<u64> {
        let in_flight = self.in_flight.load(Ordering::Acquire);
        let is_stuck = in_flight > 0 && self.handed.load(Ordering::Acquire) >= in_flight;
        is_stuck.then(|| self.pieces.load(Ordering::Relaxed))
    }

    /// Waits until no request has been in flight for a moment: what hyper has left to write then
    /// is on its way.
    pub(super) async fn quiet(&self) {
        let mut looks_in_a_row = 0;
        while looks_in_a_row < 2 {
            sleep(QUIET_INTERVAL).await;
            let is_quiet = self.in_flight.load(Ordering::Acquire) == 0;
            looks_in_a_row = if is_quiet { looks_in_a_row + 1 } else { 0 };
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(NONE - 1)
    }
}

/// A request in flight, its answer's body included.
#[derive(Debug)]
pub(super) struct Call {
    activity: Arc<Activity>,
    handed: bool,
}

impl Call {
    fn set_handed(&mut self, handed: bool) {
        if handed {
            self.activity.pieces.fetch_add(1, Ordering::Relaxed);
        }
        match (self.handed, handed) {
            (false, true) => _ = self.activity.handed.fetch_add(1, Ordering::AcqRel),
            (true, false) => _ = self.activity.handed.fetch_sub(1, Ordering::AcqRel),
            _ => {}
        }
        self.handed = handed;
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.set_handed(false);
        self.activity.idle_since_ms.store(self.activity.now_ms(), Ordering::Relaxed);
        self.activity.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Drives a connection until it ends or has been at one thing for too long.
pub(super) async fn watch<C>(mut connection: Pin<&mut C>, activity: &Activity) -> Verdict
where
    C: Future<Output = hyper::Result<()>>,
{
    // Never further ahead than the idle timeout, or it would ring too late for a stuck answer.
    let first = activity.header_timeout.min(activity.idle_timeout);
    let mut timer = Seldom::new(sleep_until(activity.opened + first));
    let mut was_stuck = None;
    poll_fn(|context| {
        if let Poll::Ready(end) = connection.as_mut().poll(context) {
            return Poll::Ready(Verdict::Ended(end));
        }
        // A head that has just begun is due before what the timer is set to.
        if let Some((at, _)) = activity.due()
            && at < timer.deadline()
        {
            timer.reset(at);
        }
        while Pin::new(&mut timer).poll(context).is_ready() {
            let now = Instant::now();
            match activity.due() {
                Some((at, verdict)) if at <= now => return Poll::Ready(verdict),
                Some((at, _)) => timer.reset(at.min(now + activity.idle_timeout)),
                None => {
                    let stuck = activity.stuck();
                    if stuck.is_some() && stuck == was_stuck {
                        return Poll::Ready(Verdict::Stalled);
                    }
                    was_stuck = stuck;
                    // If it ended right now, this is when the connection would be idle for too long.
                    timer.reset(now + activity.idle_timeout);
                }
            }
        }
        Poll::Pending
    })
    .await
}

/// An answer's body, which holds its [`Call`].
pub(super) struct CountedBody {
    body: Body,
    call: Call,
}

impl CountedBody {
    pub(super) fn new(body: Body, mut call: Call) -> Self {
        // The head waits for the client, and over HTTP/2 the body is not asked for until it took it.
        call.set_handed(true);
        Self { body, call }
    }
}

impl http_body::Body for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        self.call.set_handed(matches!(frame, Poll::Ready(Some(_))));
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
