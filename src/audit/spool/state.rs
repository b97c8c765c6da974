//! How far the spool has come.

use std::{
    collections::VecDeque,
    io,
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{
    Disk, SpoolSettings,
    recovery::Recovered,
    segment::{self, HEADER_BYTES},
};
use crate::audit::chain::Link;

/// What the writer, the reader and the handles all see.
#[derive(Debug)]
pub struct SpoolState {
    disk: Arc<dyn Disk>,
    settings: SpoolSettings,
    progress: Mutex<Progress>,
    /// Held while a segment is synced. True if the last sync failed.
    is_doubtful: Mutex<bool>,
    /// Beside `progress`, so that each call can look without a lock.
    bytes: AtomicU64,
}

#[derive(Debug)]
pub(super) struct Progress {
    /// Those on the disk that hold anything, oldest first.
    pub(super) segments: VecDeque<Segment>,
    /// The last one is still being written to.
    pub(super) is_active: bool,
    /// The number of the last record that is written, and of the last that is synced.
    pub(super) committed: u64,
    pub(super) synced: u64,
    /// The link of the last that is synced.
    pub(super) head: Link,
    /// Up to where the last segment is synced.
    pub(super) synced_bytes: u64,
    /// Records written and not yet acknowledged.
    pub(super) unshipped: u64,
}

/// A segment as far as it is written. Its numbers have no gaps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    pub(super) first: u64,
    pub(super) last: Link,
    pub(super) bytes: u64,
}

impl Segment {
    pub(super) fn name(&self) -> String {
        segment::name(self.first)
    }

    pub(super) const fn records(&self) -> u64 {
        self.last.seq.saturating_add(1).saturating_sub(self.first)
    }
}

impl SpoolState {
    pub(super) fn new(disk: Arc<dyn Disk>, settings: SpoolSettings, recovered: &Recovered) -> Self {
        let segments: VecDeque<_> = recovered.segments.iter().copied().collect();
        let bytes = segments.iter().map(|segment| segment.bytes).sum();
        let progress = Progress {
            is_active: false,
            committed: recovered.last.seq,
            synced: recovered.last.seq,
            head: recovered.head,
            synced_bytes: 0,
            unshipped: segments.iter().map(Segment::records).sum(),
            segments,
        };
        let (progress, bytes) = (Mutex::new(progress), AtomicU64::new(bytes));
        Self { disk, settings, progress, is_doubtful: Mutex::new(false), bytes }
    }

    pub(super) fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of segments that have grown, and of one that is removed.
    pub(super) fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn take_bytes(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// What waits on the disk, what is kept aside not counted.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    #[must_use]
    pub const fn limit_bytes(&self) -> u64 {
        self.settings.limit_bytes
    }

    /// No further intent is to be taken.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.bytes() >= self.settings.limit_bytes
    }

    /// Records that are not acknowledged.
    #[must_use]
    pub fn unshipped(&self) -> u64 {
        self.progress().unshipped
    }

    /// The number of the last record that was written.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.progress().committed
    }

    /// The number of the last record that survives a loss of power.
    #[must_use]
    pub fn synced(&self) -> u64 {
        self.progress().synced
    }

    /// The last record that survives a loss of power; `None` before the first.
    #[must_use]
    pub fn head(&self) -> Option<Link> {
        Some(self.progress().head).filter(|head| head.seq > 0)
    }

    /// The number of the last record that was acknowledged, with all before it.
    #[must_use]
    pub fn shipped(&self) -> u64 {
        let progress = self.progress();
        progress.committed - progress.unshipped
    }

    /// Is there a record to ship? What is not synced is not shipped: after a loss of power the
    /// store would else know of a link that the chain then gives to another record.
    #[must_use]
    pub fn has_shippable(&self) -> bool {
        let progress = self.progress();
        progress.unshipped > progress.committed - progress.synced
    }

    /// Is there anything to sync?
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        let progress = self.progress();
        progress.synced < progress.committed
    }

    /// Syncs what is written. Blocks, and nobody who writes waits for it. True if there is more to
    /// ship now.
    pub fn sync(&self) -> io::Result<bool> {
        let mut is_doubtful = self.syncing();
        let (segment, from, committed) = {
            let progress = self.progress();
            match progress.segments.back() {
                Some(segment) if progress.synced < progress.committed => {
                    (*segment, progress.synced_bytes, progress.committed)
                }
                _ => return Ok(false),
            }
        };
        let synced = self.sync_file(&mut is_doubtful, &segment.name(), from..segment.bytes);
        let mut progress = self.progress();
        if progress.synced >= committed {
            // The writer went on to the next segment, which syncs this one; it may be gone.
            return Ok(true);
        }
        synced?;
        (progress.synced, progress.head) = (committed, segment.last);
        progress.synced_bytes = segment.bytes;
        Ok(true)
    }

    /// For [`Self::sync_file`].
    pub(super) fn syncing(&self) -> MutexGuard<'_, bool> {
        self.is_doubtful.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Syncs a file that `range` of is not synced yet.
    ///
    /// A system that could not write a page may call it clean from then on: the next sync says yes,
    /// and nothing is on the disk (<https://wiki.postgresql.org/wiki/Fsync_Errors>). So after a
    /// failure what is in doubt is written again.
    pub(super) fn sync_file(
        &self,
        is_doubtful: &mut bool,
        name: &str,
        range: Range<u64>,
    ) -> io::Result<()> {
        if *is_doubtful {
            self.rewrite(name, range.start.max(HEADER_BYTES as u64)..range.end)?;
        }
        *is_doubtful = true;
        self.disk.sync(name)?;
        *is_doubtful = false;
        Ok(())
    }

    fn rewrite(&self, name: &str, range: Range<u64>) -> io::Result<()> {
        let length = range.end.saturating_sub(range.start);
        let length = usize::try_from(length).map_err(io::Error::other)?;
        let mut bytes = Vec::new();
        self.disk.read(name, range.start, length, &mut bytes)?;
        if bytes.len() != length || !segment::is_whole(&bytes) {
            return Err(io::Error::other(format!("{name} has lost what was written to it")));
        }
        self.disk.rewrite(name, range.start, &bytes)
    }
}
