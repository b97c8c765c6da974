//! The one task that gives entries to the sink.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot},
    task::yield_now,
    time::{Instant, sleep, timeout},
};

use super::{AuditSink, Entry, EntryKind, Shared, SinkError, WRITE_DEADLINE};
use crate::{domain::Kind, redact::LiveRedactor};

/// The most that one commit carries.
const BATCH_ENTRIES: usize = 256;
/// How often the writer lets others run before it writes what they have given it.
const GATHER_TURNS: u32 = 8;
/// The pause after a batch that failed; doubled with each further one up to the most.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What the handles send.
#[derive(Debug)]
pub(super) enum Message {
    /// The entry goes back through `ack` once it is durable; `ack` dropped says that it isn't.
    Intent {
        entry: Entry,
        ack: oneshot::Sender<Entry>,
        queued_at: Instant,
    },
    Entry(Entry),
    Flush(oneshot::Sender<()>),
    Stop,
}

/// A call that waits for its intent.
struct Waiter {
    ack: oneshot::Sender<Entry>,
    queued_at: Instant,
}

pub(super) struct Writer {
    sink: Arc<dyn AuditSink>,
    redactor: LiveRedactor,
    queue: mpsc::Receiver<Message>,
    shared: Arc<Shared>,
    /// What is to be written next, and who waits for which of it (the same length).
    entries: Vec<Entry>,
    waiters: Vec<Option<Waiter>>,
    flushes: Vec<oneshot::Sender<()>>,
}

impl Writer {
    pub(super) fn new(
        sink: Arc<dyn AuditSink>,
        redactor: LiveRedactor,
        queue: mpsc::Receiver<Message>,
        shared: Arc<Shared>,
    ) -> Self {
        let (entries, waiters, flushes) = (Vec::new(), Vec::new(), Vec::new());
        Self { sink, redactor, queue, shared, entries, waiters, flushes }
    }

    /// Until the queue is closed and empty, or the rest is to be abandoned.
    pub(super) async fn run(mut self) {
        // Also when a sink panics, so that nobody waits for a writer that is gone.
        let _ended = self.shared.ended.clone().drop_guard();
        let mut inbox = Vec::with_capacity(BATCH_ENTRIES);
        let mut is_open = true;
        while is_open {
            is_open = self.queue.recv_many(&mut inbox, BATCH_ENTRIES).await > 0;
            self.gather(&mut inbox).await;
            for message in inbox.drain(..) {
                self.take(message);
            }
            self.add_missed_denials();
            if !self.write().await {
                return;
            }
            for flush in self.flushes.drain(..) {
                // Whoever asked may have gone.
                let _ = flush.send(());
            }
        }
    }

    /// Lets the calls that are ready run, as long as that brings entries: a commit writes whole
    /// pages, so that many small ones cost several times as much as one large one.
    async fn gather(&mut self, inbox: &mut Vec<Message>) {
        for _ in 0..GATHER_TURNS {
            let had = inbox.len();
            yield_now().await;
            while inbox.len() < BATCH_ENTRIES
                && let Ok(message) = self.queue.try_recv()
            {
                inbox.push(message);
            }
            if inbox.len() == had {
                return;
            }
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            // Nobody waits any more and nothing was tried: it never was.
            Message::Intent { ack, .. } if ack.is_closed() => self.count_out(1),
            Message::Intent { mut entry, ack, queued_at } => {
                entry.redact(&self.redactor);
                self.entries.push(entry);
                self.waiters.push(Some(Waiter { ack, queued_at }));
            }
            Message::Entry(mut entry) => {
                entry.redact(&self.redactor);
                self.add(entry);
            }
            Message::Flush(ack) => self.flushes.push(ack),
            Message::Stop => self.queue.close(),
        }
    }

    fn add(&mut self, entry: Entry) {
        self.entries.push(entry);
        self.waiters.push(None);
    }

    fn add_missed_denials(&mut self) {
        if self.shared.missed_denials.load(Ordering::Relaxed) == 0 {
            return;
        }
        let missed = self.shared.missed_denials.swap(0, Ordering::Relaxed);
        let mut entry = Entry::new(EntryKind::Denied, "audit", "");
        entry.outcome = Some(Kind::Overloaded.code());
        entry.detail = Some(format!("{missed} denials not recorded"));
        self.count_in(1);
        self.add(entry);
    }

    /// Writes what is in hand, as often as it takes. False if it was given up.
    async fn write(&mut self) -> bool {
        let mut pause = FIRST_PAUSE;
        while !self.entries.is_empty() {
            let appended = tokio::select! {
                appended = timeout(WRITE_DEADLINE, self.sink.append(&self.entries)) => appended,
                () = self.shared.abandon.cancelled() => return false,
            };
            match appended.unwrap_or(Err(SinkError::TimedOut(WRITE_DEADLINE.as_secs()))) {
                Ok(()) => self.confirm(),
                Err(error) => {
                    self.fail(&error);
                    tokio::select! {
                        () = sleep(pause) => pause = LONGEST_PAUSE.min(pause * 2),
                        () = self.shared.abandon.cancelled() => return false,
                    }
                }
            }
        }
        true
    }

    /// All in hand is durable: says so to those who wait, and closes the calls of those who left.
    fn confirm(&mut self) {
        if self.shared.is_failing.swap(false, Ordering::Relaxed) {
            tracing::info!("the audit store can be written again");
        }
        self.count_out(self.entries.len());
        let mut ends = Vec::new();
        for (entry, waiter) in self.entries.drain(..).zip(self.waiters.drain(..)) {
            let Some(Waiter { ack, queued_at }) = waiter else { continue };
            if let Err(intent) = ack.send(entry) {
                let in_time = queued_at.elapsed() < WRITE_DEADLINE;
                ends.push(if in_time { canceled(&intent) } else { unavailable(&intent) });
            }
        }
        self.count_in(ends.len());
        for end in ends {
            self.add(end);
        }
    }

    /// The batch may or may not be there. Its intents are refused and never sent again; in their
    /// place go terminal entries, so that none that did get there stays open.
    fn fail(&mut self, error: &SinkError) {
        if !self.shared.is_failing.swap(true, Ordering::Relaxed) {
            tracing::error!(%error, "audit entries are retained; calls are refused");
        }
        for (entry, waiter) in self.entries.iter_mut().zip(&mut self.waiters) {
            if waiter.take().is_some() {
                *entry = unavailable(entry);
            }
        }
    }

    fn count_in(&self, entries: usize) {
        self.shared.unwritten.fetch_add(entries, Ordering::Relaxed);
    }

    fn count_out(&self, entries: usize) {
        self.shared.unwritten.fetch_sub(entries, Ordering::Relaxed);
    }
}

/// The end of a call that was given up before its intent was known to be durable.
pub(super) fn canceled(intent: &Entry) -> Entry {
    let detail = "the caller was gone before the call left";
    terminal(intent, EntryKind::Canceled, Kind::Canceled, detail)
}

/// The end of a call that was refused because its intent was not durable in time.
fn unavailable(intent: &Entry) -> Entry {
    let detail = "the audit store did not take the call's intent in time; the call did not leave";
    terminal(intent, EntryKind::Denied, Kind::AuditUnavailable, detail)
}

fn terminal(intent: &Entry, kind: EntryKind, why: Kind, detail: &str) -> Entry {
    let mut entry = intent.follow_up(kind);
    entry.outcome = Some(why.code());
    entry.status = Some(why.status());
    entry.detail = Some(detail.to_owned());
    entry
}
