//! The record of every call: an intent before anything leaves, one terminal entry after.
//!
//! [`Audit`] is the handle that calls use. Behind it one writer task gathers what is
//! queued and gives it to an [`AuditSink`] in one batch, so many calls share one commit.
//!
//! What is held, whatever the sink does:
//! - An intent that [`Audit::intent`] said yes to is durable. One that it said no to is not
//!   there, or is followed by a terminal entry.
//! - A terminal entry is kept and retried until it is written, for as long as the process lives.
//! - Nothing grows without bound: past one mark denials are counted instead of kept, past the
//!   next no intent is taken, and past the last [`Audit::record`] waits.

mod entry;
mod sink;
mod stored;
mod writer;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::{
        mpsc::{self, Permit},
        oneshot,
    },
    time::{Instant, timeout, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use entry::{Entry, EntryKind};
pub use sink::{AuditSink, SinkError};
pub use stored::StoredEntry;
use writer::{Message, Writer};

use crate::redact::LiveRedactor;

/// Entries queued at once, intents and terminal ones together. [`Audit::record`] waits beyond it.
pub const QUEUE_ENTRIES: usize = 16_384;
/// Beyond this many no intent is taken, which leaves room for the ends of calls under way.
pub const INTENT_LIMIT: usize = QUEUE_ENTRIES / 2;
/// Beyond this many denials are only counted: a flood of them must not stop calls.
pub const DENIAL_LIMIT: usize = QUEUE_ENTRIES / 4;
/// How long an intent may take to be durable, and a sink to take a batch.
pub const WRITE_DEADLINE: Duration = Duration::from_secs(5);

/// The call can't be recorded, so it must not leave.
#[derive(Debug, thiserror::Error)]
#[error("the audit trail takes no entries at present")]
pub struct AuditUnavailable;

/// Time ran out with this many entries not written.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} audit entries are not written")]
pub struct Unwritten(pub usize);

/// The handle to the audit trail. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Audit {
    queue: mpsc::Sender<Message>,
    shared: Arc<Shared>,
}

/// What the handles and the writer both see.
#[derive(Debug)]
struct Shared {
    /// The last batch failed; cleared by the next that does not.
    is_failing: AtomicBool,
    /// Entries taken and not yet written.
    unwritten: AtomicUsize,
    /// Denials not kept since the last entry that said how many.
    missed_denials: AtomicU64,
    /// Makes the writer give up.
    abandon: CancellationToken,
    /// Set once the writer has ended.
    ended: CancellationToken,
    tasks: TaskTracker,
    runtime: Handle,
}

impl Audit {
    /// Starts the writer on `tasks`. It ends with [`Audit::shutdown`], or with the last handle.
    /// `redactor` takes the secrets out of every entry before the sink sees it.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(sink: Arc<dyn AuditSink>, redactor: LiveRedactor, tasks: &TaskTracker) -> Self {
        let (queue, inbox) = mpsc::channel(QUEUE_ENTRIES);
        let shared = Arc::new(Shared {
            is_failing: AtomicBool::new(false),
            unwritten: AtomicUsize::new(0),
            missed_denials: AtomicU64::new(0),
            abandon: CancellationToken::new(),
            ended: CancellationToken::new(),
            tasks: tasks.clone(),
            runtime: Handle::current(),
        });
        tasks.spawn(Writer::new(sink, redactor, inbox, Arc::clone(&shared)).run());
        Self { queue, shared }
    }

    /// Writes the intent of a call and returns once it is durable.
    ///
    /// Dropping the future gives the call up: what was written of it by then is closed by a
    /// `canceled` entry.
    ///
    /// # Errors
    /// [`AuditUnavailable`] while the sink fails, where the queue is full, or past
    /// [`WRITE_DEADLINE`]. The call must not leave. Its refusal may be given to
    /// [`Audit::denied`] under the same call id: where the writer has closed it already, that
    /// stands and this is left out.
    pub async fn intent(&self, entry: Entry) -> Result<(), AuditUnavailable> {
        if self.shared.is_failing.load(Ordering::Relaxed) || self.queued() >= INTENT_LIMIT {
            return Err(AuditUnavailable);
        }
        let room = self.queue.try_reserve().map_err(|_| AuditUnavailable)?;
        let (ack, written) = oneshot::channel();
        self.put(room, Message::Intent { entry, ack, queued_at: Instant::now() });
        let mut pending = PendingIntent { written, audit: self };
        match timeout(WRITE_DEADLINE, &mut pending.written).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(AuditUnavailable),
            // It may have been written just now.
            Err(_) => pending.take().map(|_| ()).ok_or(AuditUnavailable),
        }
    }

    /// Takes an entry that must not be lost, such as a call's terminal one. Waits for room, which
    /// there is unless the sink has failed for long.
    ///
    /// To be called from a tracked task: a future dropped while it waits takes its entry along.
    pub async fn record(&self, entry: Entry) {
        match self.queue.reserve().await {
            Ok(room) => self.put(room, Message::Entry(entry)),
            Err(_) => log_lost(&entry),
        }
    }

    /// Counts a denial that is one of a flood: an entry says later how many there were.
    pub fn denied_unrecorded(&self) {
        self.shared.missed_denials.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the denial of a call that has no intent. Never waits: where there is no room it is
    /// counted, and one entry says later how many there were.
    ///
    /// A denial that ends a call with an intent is to be given to [`Audit::record`].
    pub fn denied(&self, entry: Entry) {
        match self.queue.try_reserve() {
            Ok(room) if self.queued() <= DENIAL_LIMIT => self.put(room, Message::Entry(entry)),
            _ => _ = self.shared.missed_denials.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Are intents being taken? For readiness.
    #[must_use]
    pub fn healthy(&self) -> bool {
        !self.shared.is_failing.load(Ordering::Relaxed)
            && !self.queue.is_closed()
            && self.queued() < INTENT_LIMIT
    }

    /// How many entries were taken and are not yet written.
    #[must_use]
    pub fn unwritten(&self) -> usize {
        self.shared.unwritten.load(Ordering::Relaxed)
    }

    /// Waits until all that was taken before is written.
    ///
    /// # Errors
    /// [`Unwritten`] if that takes longer than `within`, or if the writer has ended.
    pub async fn flush(&self, within: Duration) -> Result<(), Unwritten> {
        let (ack, written) = oneshot::channel();
        let flushed =
            async { self.queue.send(Message::Flush(ack)).await.is_ok() && written.await.is_ok() };
        match timeout(within, flushed).await {
            Ok(true) => Ok(()),
            _ => self.all_written(),
        }
    }

    /// Writes what was taken, takes no more, and ends the writer.
    ///
    /// # Errors
    /// [`Unwritten`] if that takes longer than `within`: the rest is given up and lost.
    pub async fn shutdown(&self, within: Duration) -> Result<(), Unwritten> {
        let deadline = Instant::now() + within;
        let finished = async {
            // An error says that the writer has ended already.
            let _ = self.queue.send(Message::Stop).await;
            self.shared.ended.cancelled().await;
        };
        if timeout_at(deadline, finished).await.is_err() {
            self.shared.abandon.cancel();
            self.shared.ended.cancelled().await;
        }
        self.all_written()
    }

    fn all_written(&self) -> Result<(), Unwritten> {
        match self.unwritten() {
            0 => Ok(()),
            left => Err(Unwritten(left)),
        }
    }

    /// Entries in the queue, those in the writer's hand not counted.
    fn queued(&self) -> usize {
        self.queue.max_capacity() - self.queue.capacity()
    }

    fn put(&self, room: Permit<'_, Message>, message: Message) {
        self.shared.unwritten.fetch_add(1, Ordering::Relaxed);
        room.send(message);
    }

    /// As [`Audit::record`], from where nothing can be awaited.
    fn record_later(&self, entry: Entry) {
        if let Ok(room) = self.queue.try_reserve() {
            return self.put(room, Message::Entry(entry));
        }
        let audit = self.clone();
        let recorded = async move { audit.record(entry).await };
        self.shared.tasks.spawn_on(recorded, &self.shared.runtime);
    }
}

/// An intent whose outcome its call is waiting for.
struct PendingIntent<'a> {
    /// The writer sends the entry back once it is durable.
    written: oneshot::Receiver<Entry>,
    audit: &'a Audit,
}

impl PendingIntent<'_> {
    /// The entry, if it was written and nobody has taken note yet. The writer sees from now on
    /// that nobody waits.
    fn take(&mut self) -> Option<Entry> {
        self.written.close();
        self.written.try_recv().ok()
    }
}

impl Drop for PendingIntent<'_> {
    /// A call given up between its intent's commit and hearing of it would else stay open.
    fn drop(&mut self) {
        if let Some(intent) = self.take() {
            self.audit.record_later(writer::canceled(&intent));
        }
    }
}

fn log_lost(entry: &Entry) {
    tracing::error!(
        call_id = entry.call_id.map(tracing::field::display),
        kind = entry.kind.as_str(),
        outcome = entry.outcome,
        "an audit entry is lost: the writer has ended"
    );
}
