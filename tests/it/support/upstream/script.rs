//! What to answer, step by step.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::sync::Notify;

/// One thing that the server does.
#[derive(Debug, Clone)]
pub enum Step {
    /// Write a piece of the body, in one chunk and one write.
    Send(Bytes),
    /// Write it in pieces, each a chunk and a write of its own, cut at these offsets.
    SendSplit {
        bytes: Bytes,
        cuts: Vec<usize>,
    },
    /// Write bytes past the framing, such as a chunk header that is none.
    Raw(Bytes),
    Delay(Duration),
    /// Nothing more, until the client closes.
    Stall,
    /// Go on when the test says so. (`notify_one` before the step is reached counts.)
    WaitFor(Arc<Notify>),
    /// An orderly end of the connection, whatever the framing still owes.
    Close,
    /// A TCP reset.
    Reset,
}

/// How the body's end is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    Chunked,
    /// The length of all that the steps send.
    ContentLength,
    /// A length that may be a lie.
    Claimed(usize),
    /// The connection's end is the body's.
    UntilClose,
}

/// One answer: a head and the steps that make its body.
#[derive(Debug, Clone)]
pub struct Script {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) framing: Framing,
    /// Without a head the steps' bytes are all there is, and nothing frames them.
    pub(super) has_head: bool,
    pub(super) before_head: Vec<Step>,
    pub(super) steps: Vec<Step>,
}

impl Script {
    pub fn new(status: u16, content_type: &str, framing: Framing) -> Self {
        Self {
            status,
            headers: vec![("content-type".to_owned(), content_type.to_owned())],
            framing,
            has_head: true,
            before_head: Vec::new(),
            steps: Vec::new(),
        }
    }

    /// A chunked event stream, each piece written by itself.
    pub fn events<B: Into<Bytes>>(pieces: impl IntoIterator<Item = B>) -> Self {
        let mut script = Self::new(200, "text/event-stream; charset=utf-8", Framing::Chunked);
        script.steps = pieces.into_iter().map(|piece| Step::Send(piece.into())).collect();
        script
    }

    /// A whole body with its length.
    pub fn body(status: u16, content_type: &str, body: impl Into<Bytes>) -> Self {
        Self::new(status, content_type, Framing::ContentLength).then(Step::Send(body.into()))
    }

    /// These bytes instead of HTTP, then the end of the connection.
    pub fn raw(bytes: impl Into<Bytes>) -> Self {
        let mut script = Self::new(200, "", Framing::UntilClose).then(Step::Send(bytes.into()));
        script.has_head = false;
        script
    }

    pub fn then(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// A step before the `index`th one, counted from 0.
    pub fn insert(mut self, index: usize, step: Step) -> Self {
        self.steps.insert(index, step);
        self
    }

    /// A pause between any two steps.
    pub fn paced(mut self, pause: Duration) -> Self {
        let steps = self.steps.into_iter().flat_map(|step| [step, Step::Delay(pause)]);
        self.steps = steps.collect();
        self.steps.pop();
        self
    }

    /// Only the first steps.
    pub fn only(mut self, steps: usize) -> Self {
        self.steps.truncate(steps);
        self
    }

    /// A step before even the status line is written.
    pub fn before_head(mut self, step: Step) -> Self {
        self.before_head.push(step);
        self
    }

    /// Sets a header, in the place of one of the same name.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(header, _)| !header.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn framing(mut self, framing: Framing) -> Self {
        self.framing = framing;
        self
    }

    /// All that the steps send, as the client should see it.
    pub fn sent(&self) -> Bytes {
        let pieces = self.steps.iter().filter_map(|step| match step {
            Step::Send(bytes) | Step::SendSplit { bytes, .. } => Some(bytes.as_ref()),
            _ => None,
        });
        Bytes::from(pieces.collect::<Vec<_>>().concat())
    }

    /// The same bytes in chunks of this many, so that events, characters and line ends are cut.
    pub fn split_every(mut self, bytes: usize) -> Self {
        let whole = self.sent();
        let cuts = (1..whole.len()).filter(|at| at % bytes == 0).collect();
        self.steps = vec![Step::SendSplit { bytes: whole, cuts }];
        self
    }

    /// The same bytes up to here, then this step.
    pub fn cut_at(mut self, bytes: usize, step: Step) -> Self {
        let whole = self.sent();
        assert!(bytes < whole.len(), "{bytes} would cut nothing off {}", whole.len());
        self.steps = vec![Step::Send(whole.slice(..bytes)), step];
        self
    }
}
