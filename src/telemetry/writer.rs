//! Log lines to stderr, from a thread of its own.
//!
//! A write to a pipe that nobody reads blocks, and would block the worker that serves a hundred
//! calls. So a call only queues its line, and a line that finds the queue full is dropped.

use std::{
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, SyncSender, TrySendError},
    },
    thread,
    time::{Duration, Instant},
};

use tracing_subscriber::fmt::MakeWriter;

/// Lines that wait to be written; beyond it they are dropped.
const QUEUE_LIMIT: usize = 8_192;
/// What is written at once.
const CHUNK_BYTES: usize = 65_536;
/// Dropped lines are told of no more often than this.
const REPORT_INTERVAL: Duration = Duration::from_mins(1);

enum Message {
    Line(Vec<u8>),
    /// Answered when every line before it is written.
    Flush(SyncSender<()>),
}

/// Queues lines for the thread that writes them. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct LineQueue {
    messages: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
}

impl LineQueue {
    /// Starts the thread, which ends when the last clone is dropped.
    pub(super) fn start(out: impl Write + Send + 'static) -> io::Result<Self> {
        let (messages, receiver) = mpsc::sync_channel(QUEUE_LIMIT);
        let dropped = Arc::new(AtomicU64::new(0));
        let drops = Arc::clone(&dropped);
        thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || write_lines(&receiver, out, &drops))?;
        Ok(Self { messages, dropped })
    }

    /// Waits until what was logged is written, for no longer than `bound`.
    pub(super) fn flush(&self, bound: Duration) {
        let (done, written) = mpsc::sync_channel(1);
        if self.messages.try_send(Message::Flush(done)).is_ok() {
            // Too late or the thread is gone: there is nowhere left to say so.
            let _ = written.recv_timeout(bound);
        }
    }
}

/// One line in one `write`, as the fmt layer does it.
impl Write for &LineQueue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self.messages.try_send(Message::Line(line.to_vec())) {
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            Err(TrySendError::Full(_)) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LineQueue {
    type Writer = &'a LineQueue;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

fn write_lines(messages: &Receiver<Message>, mut out: impl Write, dropped: &AtomicU64) {
    let mut chunk = Vec::new();
    let mut reported: Option<Instant> = None;
    while let Ok(first) = messages.recv() {
        let mut flushes = Vec::new();
        for message in std::iter::once(first).chain(messages.try_iter()) {
            match message {
                Message::Line(line) => chunk.extend_from_slice(&line),
                Message::Flush(done) => flushes.push(done),
            }
            if chunk.len() >= CHUNK_BYTES || !flushes.is_empty() {
                break;
            }
        }
        // A stderr that can't be written to leaves nothing to tell it to.
        let _ = out.write_all(&chunk).and_then(|()| out.flush());
        chunk.clear();
        for done in flushes {
            let _ = done.try_send(());
        }
        if reported.is_none_or(|at| at.elapsed() >= REPORT_INTERVAL) {
            let lines = dropped.swap(0, Ordering::Relaxed);
            if lines > 0 {
                reported = Some(Instant::now());
                tracing::warn!(lines, "log lines were dropped: stderr is read too slowly");
            }
        }
    }
}
