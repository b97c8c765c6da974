//! The one thread that writes to the spool.
//!
//! A thread and not a task, as writing to a disk blocks, and calls must not wait for each other's.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
    thread,
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::{
    Entry, EntryKind, Shared, WRITE_DEADLINE,
    clean::Clean,
    spool::{Room, SpoolWriter},
};
use crate::{domain::Kind, fail_point::FailPoint, redact::LiveRedactor};

/// The most that one group carries: so many messages, and about so many bytes.
const GROUP_ENTRIES: usize = 512;
const GROUP_BYTES: usize = 1 << 20;
/// How often the thread lets others run before it writes what they have given it.
const GATHER_TURNS: u32 = 4;
/// A group of so many says that there is load. Then the next one is written no sooner than this after
/// it: a write and its wakes cost what many entries do, and a call takes a thousand times as long.
const LOAD_ENTRIES: usize = 4;
const LOAD_PACE: Duration = Duration::from_micros(500);
/// The pause after a group that failed; doubled with each further one up to the most.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What the handles send. Boxed: an entry is half a kilobyte, and goes from hand to hand.
#[derive(Debug)]
pub(super) enum Message {
    /// The entry goes back through `ack` once it is durable; `ack` dropped says that it isn't.
    Intent {
        entry: Box<Entry>,
        ack: oneshot::Sender<Box<Entry>>,
        queued_at: Instant,
    },
    Entry(Box<Entry>),
    /// A terminal entry that was made of a stored intent, encoded and without secrets.
    Record(Box<[u8]>),
    /// Answered with the number of the last record, once all that was taken before is written.
    Flush(oneshot::Sender<u64>),
    Stop,
}

/// What is to be written: kept until it is, as a group that failed is made anew.
enum Item {
    Entry(Box<Entry>),
    Record(Box<[u8]>),
}

/// A call that waits for its intent.
struct Waiter {
    ack: oneshot::Sender<Box<Entry>>,
    queued_at: Instant,
}

pub(super) struct Writer {
    spool: SpoolWriter,
    redactor: LiveRedactor,
    clean: Clean,
    queue: mpsc::Receiver<Message>,
    shared: Arc<Shared>,
    /// What is to be written next, and who waits for which of it (the same length).
    entries: Vec<Item>,
    waiters: Vec<Option<Waiter>>,
    /// How many of them the spool's group holds already.
    encoded: usize,
    /// When the last group was written, if there was load.
    paced_from: Option<std::time::Instant>,
    flushes: Vec<oneshot::Sender<u64>>,
}

impl Writer {
    /// Starts the thread. It ends with the queue, or once the rest is to be abandoned.
    pub(super) fn start(
        spool: SpoolWriter,
        redactor: LiveRedactor,
        queue: mpsc::Receiver<Message>,
        shared: Arc<Shared>,
    ) -> io::Result<()> {
        let (entries, waiters, flushes) = (Vec::new(), Vec::new(), Vec::new());
        let clean = Clean::default();
        let writer = Self {
            spool,
            redactor,
            clean,
            queue,
            shared,
            entries,
            waiters,
            encoded: 0,
            paced_from: None,
            flushes,
        };
        let thread = thread::Builder::new().name("audit-spool".to_owned());
        thread.spawn(move || writer.run()).map(drop)
    }

    fn run(mut self) {
        // Also when something panics, so that nobody waits for a writer that is gone.
        let _ended = self.shared.ended.clone().drop_guard();
        _ = self.shared.thread.set(thread::current());
        let mut inbox = Vec::with_capacity(GROUP_ENTRIES);
        let mut is_open = true;
        while is_open {
            is_open = self.queue.blocking_recv_many(&mut inbox, GROUP_ENTRIES) > 0;
            self.gather(&mut inbox);
            if !self.take_all(&mut inbox) {
                return;
            }
        }
        if let Err(error) = self.spool.close() {
            // It is in the files all the same, and is shipped after the next start.
            tracing::error!(%error, "the audit spool can't be synced");
        }
    }

    /// Under load waits for what comes within the pace. Else it lets the threads that are ready run, as
    /// long as that brings entries: a write and a wake cost more than an entry does.
    fn gather(&mut self, inbox: &mut Vec<Message>) {
        if let Some(from) = self.paced_from {
            while let Some(left) = LOAD_PACE.checked_sub(from.elapsed()) {
                thread::park_timeout(left);
            }
            return self.take_what_is_there(inbox);
        }
        for _ in 0..GATHER_TURNS {
            let had = inbox.len();
            thread::yield_now();
            self.take_what_is_there(inbox);
            if inbox.len() == had {
                return;
            }
        }
    }

    fn take_what_is_there(&mut self, inbox: &mut Vec<Message>) {
        while inbox.len() < GROUP_ENTRIES
            && let Ok(message) = self.queue.try_recv()
        {
            inbox.push(message);
        }
    }

    /// False if it was given up.
    fn take_all(&mut self, inbox: &mut Vec<Message>) -> bool {
        let has_room = self.spool.room() == Room::ForAll;
        for message in inbox.drain(..) {
            self.take(message, has_room);
            if self.spool.group_bytes() >= GROUP_BYTES && !self.write() {
                return false;
            }
        }
        self.add_missed_denials();
        if !self.write() {
            return false;
        }
        let committed = self.shared.state.committed();
        for flush in self.flushes.drain(..) {
            // Whoever asked may have gone.
            let _ = flush.send(committed);
        }
        true
    }

    fn take(&mut self, message: Message, has_room: bool) {
        match message {
            // Nobody waits any more and nothing was tried, or there is no room: it never was.
            Message::Intent { ack, .. } if !has_room || ack.is_closed() => {
                drop(ack);
                self.count_out(1);
            }
            Message::Intent { mut entry, ack, queued_at } => {
                entry.redact(&self.redactor, &mut self.clean);
                self.add(Item::Entry(entry), Some(Waiter { ack, queued_at }));
            }
            Message::Entry(mut entry) => {
                entry.redact(&self.redactor, &mut self.clean);
                self.add(Item::Entry(entry), None);
            }
            Message::Record(record) => self.add(Item::Record(record), None),
            Message::Flush(ack) => self.flushes.push(ack),
            Message::Stop => self.queue.close(),
        }
    }

    fn add(&mut self, item: Item, waiter: Option<Waiter>) {
        item.add_to(&mut self.spool);
        self.entries.push(item);
        self.waiters.push(waiter);
        self.encoded += 1;
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
        self.add(Item::Entry(Box::new(entry)), None);
    }

    /// Writes what is in hand, as often as it takes. False if it was given up.
    fn write(&mut self) -> bool {
        let mut pause = FIRST_PAUSE;
        while !self.entries.is_empty() {
            if self.shared.abandon.is_cancelled() {
                return false;
            }
            if self.spool.room() == Room::None {
                // Shipping makes room; intents are refused since long.
                thread::park_timeout(FIRST_PAUSE);
                continue;
            }
            for item in &self.entries[self.encoded..] {
                item.add_to(&mut self.spool);
            }
            self.encoded = self.entries.len();
            self.shared.writing.begin();
            let written = self.spool.commit();
            self.shared.writing.end();
            match written {
                Ok(()) => {
                    FailPoint::AfterWrite.hit();
                    self.confirm();
                }
                Err(error) => {
                    self.fail(&error);
                    thread::park_timeout(pause);
                    pause = LONGEST_PAUSE.min(pause * 2);
                }
            }
        }
        true
    }

    /// All in hand is written: says so to those who wait, and closes the calls of those who left.
    fn confirm(&mut self) {
        if self.shared.is_failing.swap(false, Ordering::Relaxed) {
            tracing::info!("the audit spool can be written again");
        }
        let written = self.entries.len();
        self.paced_from = (written >= LOAD_ENTRIES).then(std::time::Instant::now);
        self.encoded = 0;
        let mut ends = Vec::new();
        for (item, waiter) in self.entries.drain(..).zip(self.waiters.drain(..)) {
            let (Item::Entry(entry), Some(Waiter { ack, queued_at })) = (item, waiter) else {
                continue;
            };
            if let Err(intent) = ack.send(entry) {
                let in_time = queued_at.elapsed() < WRITE_DEADLINE;
                ends.push(if in_time { canceled(&intent) } else { unavailable(&intent) });
            }
        }
        self.shared.dirty.notify_one();
        // Last of all, and what follows from it first: whoever sees that nothing is unwritten may
        // rely on it that everybody was told, and that nothing more comes of it.
        self.count_in(ends.len());
        self.count_out(written);
        for end in ends {
            self.add(Item::Entry(Box::new(end)), None);
        }
    }

    /// None of the group is there. Its intents are refused and never written again; in their place
    /// go terminal entries, for a crash may come before what was written in part is taken back.
    fn fail(&mut self, error: &io::Error) {
        if !self.shared.is_failing.swap(true, Ordering::Relaxed) {
            tracing::error!(%error, "the audit spool can't be written: calls are refused");
        }
        self.encoded = 0;
        for (item, waiter) in self.entries.iter_mut().zip(&mut self.waiters) {
            if let (Item::Entry(entry), Some(_)) = (item, waiter.take()) {
                **entry = unavailable(entry);
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

impl Item {
    fn add_to(&self, spool: &mut SpoolWriter) {
        match self {
            Self::Entry(entry) => spool.add(entry),
            Self::Record(record) => spool.add_record(record),
        }
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
