//! The record of every call: an intent before anything leaves, one terminal entry after.
//!
//! [`Audit`] is the handle that calls use. Behind it one writer thread gathers what is queued,
//! links each entry to the one before ([`Link`]), and writes all to the [`spool`] at once, so that
//! many calls share one write. From there it is shipped to an [`AuditSink`] in large batches.
//!
//! What is held, whatever the disk and the sink do:
//! - An intent that [`Audit::intent`] said yes to is durable. One that it said no to is not
//!   there, or is followed by a terminal entry.
//! - A terminal entry is kept and retried until it is written, for as long as the process lives.
//! - What is written comes to the store, in order; a store that is away stops no call.
//! - Nothing grows without bound: past one mark denials are counted instead of kept, past the
//!   next no intent is taken, and past the last [`Audit::record`] waits.

mod busy;
mod chain;
pub mod checkpoint;
mod clean;
mod content;
mod entry;
mod open_intent;
mod pending;
pub mod query;
mod record;
mod shipper;
mod sink;
pub mod spool;
mod status;
mod stored;
mod sweeper;
pub mod verify;
mod writer;

use std::{
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::Thread,
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::{
        Notify,
        mpsc::{self, Permit},
        oneshot, watch,
    },
    time::{Instant, timeout, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use busy::Busy;
pub use chain::{Chain, Hash, Link, Linked};
use checkpoint::{CheckpointStatus, Checkpointer, SealState};
pub use content::{Content, ContentDigest, KeptContent, MAX_CONTENT_BYTES, Part, Transcript, keep};
pub use entry::{Entry, EntryKind};
pub use open_intent::{OpenIntent, OpenIntents, Reservations, SweepError, Turn};
use pending::PendingIntent;
pub use record::{
    FIELDS, FieldType, MAX_RECORD_BYTES, MAX_TEXT_BYTES, Record, RecordError, Value, encode,
};
use shipper::Shipper;
pub use sink::{AuditSink, SinkError};
use spool::{Spool, SpoolState};
pub use status::AuditStatus;
pub use stored::StoredEntry;
pub use sweeper::{Sweeper, UNKNOWN};
use writer::{Message, Writer};

use crate::redact::LiveRedactor;

/// Entries queued at once, intents and terminal ones together. [`Audit::record`] waits beyond it.
pub const QUEUE_ENTRIES: usize = 16_384;
/// Beyond this many no intent is taken, which leaves room for the ends of calls under way.
pub const INTENT_LIMIT: usize = QUEUE_ENTRIES / 2;
/// Beyond this many denials are only counted: a flood of them must not stop calls.
pub const DENIAL_LIMIT: usize = QUEUE_ENTRIES / 4;
/// How long an intent may take to be durable, and a sink, unless it says otherwise, to take a batch.
pub const WRITE_DEADLINE: Duration = Duration::from_secs(5);
/// How long the writer may take to see that it is to give up. A disk that hangs is not waited for.
const END_OF_WRITER: Duration = Duration::from_secs(1);

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

/// What the handles, the writer and the tasks behind the spool all see.
#[derive(Debug)]
struct Shared {
    /// The last group could not be written; cleared by the next that can.
    is_failing: AtomicBool,
    is_sync_failing: AtomicBool,
    /// While the disk writes, and while it syncs: one that hangs says nothing.
    writing: Busy,
    syncing: Busy,
    is_store_failing: AtomicBool,
    /// Entries taken and not yet in the spool.
    unwritten: AtomicUsize,
    /// Denials not kept since the last entry that said how many.
    missed_denials: AtomicU64,
    /// Entries that the store has kept apart.
    dead_letters: AtomicU64,
    closed_unknown: AtomicU64,
    state: Arc<SpoolState>,
    /// Something was written, and something was synced.
    dirty: Notify,
    synced: Notify,
    /// Somebody waits for the record of this number to be shipped.
    hurried: watch::Sender<u64>,
    /// The number of the last record that is in the store.
    shipped: watch::Sender<u64>,
    seal: SealState,
    /// Makes the writer and the shipper give up.
    abandon: CancellationToken,
    /// Set once the writer has ended.
    ended: CancellationToken,
    /// Set once the shipper has, too.
    done: CancellationToken,
    /// The writer's, to be woken from a pause.
    thread: OnceLock<Thread>,
    tasks: TaskTracker,
    runtime: Handle,
}

impl Shared {
    fn new(state: Arc<SpoolState>, tasks: &TaskTracker) -> Self {
        Self {
            is_failing: AtomicBool::new(false),
            is_sync_failing: AtomicBool::new(false),
            writing: Busy::default(),
            syncing: Busy::default(),
            is_store_failing: AtomicBool::new(false),
            unwritten: AtomicUsize::new(0),
            missed_denials: AtomicU64::new(0),
            dead_letters: AtomicU64::new(0),
            closed_unknown: AtomicU64::new(0),
            dirty: Notify::new(),
            synced: Notify::new(),
            hurried: watch::Sender::new(0),
            shipped: watch::Sender::new(state.shipped()),
            state,
            seal: SealState::default(),
            abandon: CancellationToken::new(),
            ended: CancellationToken::new(),
            done: CancellationToken::new(),
            thread: OnceLock::new(),
            tasks: tasks.clone(),
            runtime: Handle::current(),
        }
    }

    /// May no intent be taken, whatever is queued?
    fn is_refusing(&self) -> bool {
        !self.is_spool_up() || self.state.is_full()
    }

    fn is_spool_up(&self) -> bool {
        let is_failing = [&self.is_failing, &self.is_sync_failing];
        let busy = [&self.writing, &self.syncing];
        !is_failing.iter().any(|is_failing| is_failing.load(Ordering::Relaxed))
            && !busy.iter().any(|busy| busy.has_lasted(WRITE_DEADLINE))
    }
}

impl Audit {
    /// Starts the writer's thread, and on `tasks` what ships to `sink`. They end with
    /// [`Audit::shutdown`], or with the last handle. `redactor` takes the secrets out of every
    /// entry before it is written anywhere.
    ///
    /// # Errors
    /// If the thread can't be started.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(
        spool: Spool,
        sink: Arc<dyn AuditSink>,
        redactor: LiveRedactor,
        tasks: &TaskTracker,
    ) -> io::Result<Self> {
        let (queue, inbox) = mpsc::channel(QUEUE_ENTRIES);
        let shared = Arc::new(Shared::new(spool.state, tasks));
        Writer::start(spool.writer, redactor, inbox, Arc::clone(&shared))?;
        tasks.spawn(shipper::sync(Arc::clone(&shared)));
        tasks.spawn(Shipper::new(sink, spool.reader, Arc::clone(&shared)).run());
        Ok(Self { queue, shared })
    }

    /// Has checkpoints made of what is written, on the tasks that the trail was started with.
    pub fn seal(&self, checkpointer: Checkpointer) {
        let sealed = checkpointer.run(Arc::clone(&self.shared));
        self.shared.tasks.spawn(self.shared.seal.tasks.track_future(sealed));
    }

    /// Writes the intent of a call and returns once it is durable.
    ///
    /// Dropping the future gives the call up: what was written of it by then is closed by a
    /// `canceled` entry.
    ///
    /// # Errors
    /// [`AuditUnavailable`] while the disk fails or hangs, where the spool or the queue is full, or past
    /// [`WRITE_DEADLINE`]. The call must not leave. Its refusal may be given to
    /// [`Audit::denied`] under the same call id: where the writer has closed it already, that
    /// stands and this is left out.
    pub async fn intent(&self, entry: Entry) -> Result<(), AuditUnavailable> {
        if self.shared.is_refusing() || self.queued() >= INTENT_LIMIT {
            return Err(AuditUnavailable);
        }
        let room = self.queue.try_reserve().map_err(|_| AuditUnavailable)?;
        let (ack, written) = oneshot::channel();
        let entry = Box::new(entry);
        self.put(room, Message::Intent { entry, ack, queued_at: Instant::now() });
        let mut pending = PendingIntent::new(written, self);
        match timeout(WRITE_DEADLINE, pending.outcome()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(AuditUnavailable),
            // It may have been written just now.
            Err(_) => pending.take().map(|_| ()).ok_or(AuditUnavailable),
        }
    }

    /// Takes an entry that must not be lost, such as a call's terminal one. Waits for room, which
    /// there is unless the disk has failed for long.
    ///
    /// To be called from a tracked task: a future dropped while it waits takes its entry along.
    pub async fn record(&self, entry: Entry) {
        match self.queue.reserve().await {
            Ok(room) => self.put(room, Message::Entry(Box::new(entry))),
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
            Ok(room) if self.queued() <= DENIAL_LIMIT => {
                self.put(room, Message::Entry(Box::new(entry)));
            }
            _ => _ = self.shared.missed_denials.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Are intents being taken? For readiness.
    #[must_use]
    pub fn healthy(&self) -> bool {
        !self.shared.is_refusing() && !self.queue.is_closed() && self.queued() < INTENT_LIMIT
    }

    /// How many entries were taken and are not yet in the spool.
    #[must_use]
    pub fn unwritten(&self) -> usize {
        self.shared.unwritten.load(Ordering::Relaxed)
    }

    /// Waits until all that was taken before is in the store.
    ///
    /// # Errors
    /// [`Unwritten`], with what is not, if that takes longer than `within` or can't be any more.
    pub async fn flush(&self, within: Duration) -> Result<(), Unwritten> {
        let (ack, written) = oneshot::channel();
        let flushed = async {
            self.queue.send(Message::Flush(ack)).await.ok()?;
            let last = written.await.ok()?;
            self.shared.hurried.send_if_modified(|to| {
                let is_further = *to < last;
                *to = last.max(*to);
                is_further
            });
            let mut shipped = self.shared.shipped.subscribe();
            tokio::select! {
                biased;
                _ = shipped.wait_for(|shipped| *shipped >= last) => Some(()),
                () = self.shared.done.cancelled() => None,
            }
        };
        match timeout(within, flushed).await {
            Ok(Some(())) => Ok(()),
            _ => Self::nothing_of(self.unwritten().saturating_add(
                usize::try_from(self.shared.state.unshipped()).unwrap_or(usize::MAX),
            )),
        }
    }

    /// Writes what was taken, takes no more, ships as much as time allows, and ends the writer.
    /// What is not shipped stays in the spool for the next start, and is not lost.
    ///
    /// # Errors
    /// [`Unwritten`] if writing takes longer than `within`: the rest is given up and lost.
    pub async fn shutdown(&self, within: Duration) -> Result<(), Unwritten> {
        let deadline = Instant::now() + within;
        let finished = async {
            // An error says that the writer has ended already.
            let _ = self.queue.send(Message::Stop).await;
            self.shared.done.cancelled().await;
            // The last checkpoint speaks of what is shipped.
            self.shared.seal.tasks.close();
            self.shared.seal.tasks.wait().await;
        };
        if timeout_at(deadline, finished).await.is_err() {
            self.shared.abandon.cancel();
            if let Some(thread) = self.shared.thread.get() {
                thread.unpark();
            }
            let ended = async {
                self.shared.ended.cancelled().await;
                self.shared.done.cancelled().await;
            };
            let _ = timeout(END_OF_WRITER, ended).await;
        }
        Self::nothing_of(self.unwritten())
    }

    const fn nothing_of(left: usize) -> Result<(), Unwritten> {
        match left {
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
            return self.put(room, Message::Entry(Box::new(entry)));
        }
        let audit = self.clone();
        let recorded = async move { audit.record(entry).await };
        self.shared.tasks.spawn_on(recorded, &self.shared.runtime);
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
