//! Native streams by id: live ones, and finished ones for as long as they can be read.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{Log, LogLimits};
use crate::{
    config::StreamConfig,
    domain::{Caller, CancelReason, StreamId},
};

/// Whose a stream is: nobody else may read or cancel it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    issuer: String,
    subject: String,
}

impl From<&Caller> for Owner {
    fn from(caller: &Caller) -> Self {
        Self { issuer: caller.issuer.clone(), subject: caller.subject.clone() }
    }
}

/// Every native stream that can be read.
#[derive(Debug)]
pub struct Hub {
    limits: LogLimits,
    max_streams: usize,
    replay_ttl: Duration,
    streams: Mutex<Streams>,
}

#[derive(Debug, Default)]
struct Streams {
    by_id: HashMap<StreamId, Arc<NativeStream>>,
    /// Finished ones, first those that expire first.
    finished: VecDeque<(Instant, StreamId)>,
    /// Opened and not finished, whether or not they have begun.
    live: usize,
}

/// As many streams are live as may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HubFull;

impl Hub {
    #[must_use]
    pub fn new(config: &StreamConfig) -> Self {
        Self {
            limits: LogLimits {
                frames: config.replay_limit_frames,
                bytes: config.replay_limit_bytes,
            },
            max_streams: config.max_streams,
            replay_ttl: Duration::from_secs(config.replay_ttl_s),
            streams: Mutex::default(),
        }
    }

    /// No code that can panic runs under the lock, so poison is no harm.
    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a stream, which must be given to [`Hub::finish`] in the end. Until [`Hub::begin`] it
    /// is nowhere to be found: a call that is refused leaves nothing behind, and takes nobody's
    /// finished stream from them.
    ///
    /// # Errors
    /// [`HubFull`] if as many are live as may be.
    pub(super) fn open(&self, owner: Owner) -> Result<Arc<NativeStream>, HubFull> {
        let mut streams = self.streams();
        if streams.live >= self.max_streams {
            return Err(HubFull);
        }
        streams.live += 1;
        drop(streams);
        Ok(Arc::new(NativeStream::new(owner, self.limits)))
    }

    /// The stream can be found from now on: its client is being told its id. The oldest finished
    /// one makes room if there is none.
    pub(super) fn begin(&self, stream: &Arc<NativeStream>) {
        stream.begun.store(true, Ordering::Release);
        let mut streams = self.streams();
        streams.forget_expired();
        while streams.by_id.len() >= self.max_streams {
            // Not all are live, since this one is and is not among them yet.
            let Some((_, oldest)) = streams.finished.pop_front() else { break };
            streams.by_id.remove(&oldest);
        }
        streams.by_id.insert(stream.id, Arc::clone(stream));
    }

    /// The stream of this id, if `owner` may see it: a stranger's does not exist.
    #[must_use]
    pub fn get(&self, id: StreamId, owner: &Owner) -> Option<Arc<NativeStream>> {
        let mut streams = self.streams();
        streams.forget_expired();
        streams.by_id.get(&id).filter(|stream| stream.owner == *owner).cloned()
    }

    /// A stream has ended: if it had begun, it can be read for `replay_ttl_s` from now on.
    pub(super) fn finish(&self, id: StreamId) {
        let expires = Instant::now() + self.replay_ttl;
        let mut streams = self.streams();
        streams.live = streams.live.saturating_sub(1);
        streams.forget_expired();
        if streams.by_id.contains_key(&id) {
            streams.finished.push_back((expires, id));
        }
    }

    /// Drops what has expired. Called now and then, so that an idle gateway lets go too.
    pub fn sweep(&self) {
        self.streams().forget_expired();
    }

    /// Streams that can be found, live and finished.
    #[must_use]
    pub fn len(&self) -> usize {
        self.streams().by_id.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Streams {
    fn forget_expired(&mut self) {
        let now = Instant::now();
        while let Some((_, id)) = self.finished.pop_front_if(|(expires, _)| *expires <= now) {
            self.by_id.remove(&id);
        }
    }
}

/// One native stream: its log, its readers, and the handle that cancels it.
#[derive(Debug)]
pub struct NativeStream {
    id: StreamId,
    owner: Owner,
    log: Mutex<Log>,
    written: Notify,
    readers: watch::Sender<usize>,
    cancel: CancellationToken,
    /// Is anybody being told its id?
    begun: AtomicBool,
}

/// A stream can't be resumed where it was asked to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResumeError;

impl NativeStream {
    fn new(owner: Owner, limits: LogLimits) -> Self {
        Self {
            id: StreamId::generate(),
            owner,
            log: Mutex::new(Log::new(limits)),
            written: Notify::new(),
            readers: watch::Sender::new(0),
            cancel: CancellationToken::new(),
            begun: AtomicBool::new(false),
        }
    }

    #[must_use]
    pub const fn id(&self) -> StreamId {
        self.id
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn next_seq(&self) -> u64 {
        self.log().next_seq()
    }

    pub(super) fn append(&self, bytes: Bytes, ends: Vec<usize>, last: bool) {
        let mut log = self.log();
        log.append(bytes, ends);
        if last {
            log.end();
        }
        drop(log);
        self.written.notify_waiters();
    }

    /// Has the terminal frame been written?
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.log().has_ended()
    }

    /// The number of the last frame written.
    #[must_use]
    pub fn last_seq(&self) -> u64 {
        self.log().last_seq()
    }

    /// Asks for the stream's end. Idempotent; nothing happens to one that has ended.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Waits for [`NativeStream::cancel`].
    pub async fn canceled(&self) {
        self.cancel.cancelled().await;
    }

    /// Waits until nobody has read for `timeout`, and says so; or until the one client that could
    /// know of the stream is gone before it was told its id.
    pub async fn orphaned(&self, timeout: Duration) -> CancelReason {
        let mut readers = self.readers.subscribe();
        loop {
            // The sender lives as long as `self`, so there is always something to wait for.
            let _ = readers.wait_for(|count| *count == 0).await;
            if !self.begun.load(Ordering::Acquire) {
                return CancelReason::HungUp;
            }
            tokio::select! {
                () = tokio::time::sleep(timeout) => return CancelReason::Orphaned,
                // Whoever came starts the time anew, even if they are gone again by now.
                _ = readers.changed() => {}
            }
        }
    }

    /// A reader of every frame after `seq`.
    ///
    /// # Errors
    /// [`ResumeError`] if those frames are gone, or `seq` was never written.
    pub fn read_after(self: &Arc<Self>, seq: u64) -> Result<Reader, ResumeError> {
        self.log().after(seq).map_err(|_| ResumeError)?;
        self.readers.send_modify(|count| *count += 1);
        Ok(Reader { stream: Arc::clone(self), seq })
    }
}

/// Reads a stream, from where it was asked to, to its end.
#[derive(Debug)]
pub struct Reader {
    stream: Arc<NativeStream>,
    seq: u64,
}

impl Reader {
    /// The next frames; `None` after the terminal one. It also ends, without a terminal frame,
    /// where the reader was so slow that frames it had not read were dropped: coming back with
    /// `Last-Event-ID` then says `stream_gone`.
    pub async fn next(&mut self) -> Option<Bytes> {
        loop {
            // Registered before the look, so that what is written after it wakes us.
            let mut written = std::pin::pin!(self.stream.written.notified());
            written.as_mut().enable();
            let (slice, ended) = {
                let log = self.stream.log();
                (log.after(self.seq), log.has_ended())
            };
            match slice {
                Ok(Some(slice)) => {
                    self.seq = slice.last_seq;
                    return Some(slice.bytes);
                }
                Ok(None) if !ended => written.await,
                Ok(None) | Err(_) => return None,
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stream.readers.send_modify(|count| *count = count.saturating_sub(1));
    }
}
