//! Putting records into segments.

use std::{io, sync::Arc};

use super::{
    Disk, SpoolSettings, SpoolState,
    segment::{self, HEADER_BYTES, Header},
    state::Segment,
};
use crate::audit::{
    Content, Entry, KeptContent,
    chain::{Chain, Link},
    record,
};

/// How much the spool will take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    ForAll,
    /// Only for what was promised to be taken: the ends of calls under way.
    ForEnds,
    None,
}

/// Writes groups of records; there is one for a spool.
#[derive(Debug)]
pub struct SpoolWriter {
    disk: Arc<dyn Disk>,
    settings: SpoolSettings,
    state: Arc<SpoolState>,
    chain: Chain,
    /// The last record that is written.
    committed: Link,
    /// The frames of the records that are not.
    group: Vec<u8>,
    active: Option<Active>,
    /// The active segment may be longer than it should be.
    is_torn: bool,
    /// A segment that could not be made may be there in part.
    leftover: Option<String>,
}

#[derive(Debug)]
struct Active {
    name: String,
    bytes: u64,
}

impl Active {
    const fn is_empty(&self) -> bool {
        self.bytes <= HEADER_BYTES as u64
    }
}

impl SpoolWriter {
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        settings: SpoolSettings,
        last: Link,
        state: Arc<SpoolState>,
    ) -> Self {
        Self {
            disk,
            settings,
            state,
            chain: Chain::after(last),
            committed: last,
            group: Vec::new(),
            active: None,
            is_torn: false,
            leftover: None,
        }
    }

    /// Adds an entry to the group.
    pub fn add(&mut self, entry: &Entry) {
        let content = entry.content.as_deref().map(Content::kept).unwrap_or_default();
        let (link, record) = self.chain.link(|to| record::encode(entry, to));
        segment::push_frame(link, record, content, &mut self.group);
    }

    /// Adds what is encoded already, and has no content.
    pub(in crate::audit) fn add_record(&mut self, record: &[u8]) {
        let (link, record) = self.chain.link(|to| to.extend(record));
        segment::push_frame(link, record, KeptContent::default(), &mut self.group);
    }

    /// The length of the group so far.
    #[must_use]
    pub const fn group_bytes(&self) -> usize {
        self.group.len()
    }

    #[must_use]
    pub fn room(&self) -> Room {
        let (bytes, limit) = (self.state.bytes(), self.settings.limit_bytes);
        if bytes < limit {
            Room::ForAll
        } else if bytes < limit + limit / 8 {
            Room::ForEnds
        } else {
            Room::None
        }
    }

    /// Writes the group, in strict durability onto the disk itself. Blocks.
    ///
    /// # Errors
    /// What the disk said. None of the group is written then, and it is empty again.
    pub fn commit(&mut self) -> io::Result<()> {
        if self.group.is_empty() {
            return Ok(());
        }
        let written = self.write();
        if written.is_err() {
            self.chain.reset(self.committed);
            // If it can't be taken back now, it is before anything else is written.
            let _ = self.mend();
        }
        self.group.clear();
        // One huge group should not keep its memory for good.
        self.group.shrink_to(segment::MAX_FRAME_BYTES);
        written
    }

    fn write(&mut self) -> io::Result<()> {
        self.mend()?;
        let length = self.group.len() as u64;
        let is_full = |active: &Active| {
            !active.is_empty() && active.bytes + length > self.settings.segment_bytes
        };
        if self.active.as_ref().is_none_or(is_full) {
            self.begin_segment()?;
        }
        // It was begun just now if it was not there.
        let Some(active) = &mut self.active else { return Ok(()) };
        self.is_torn = true;
        self.disk.append(&active.name, active.bytes, &self.group)?;
        if self.settings.is_strict {
            self.disk.sync(&active.name)?;
        }
        self.is_torn = false;
        active.bytes += length;

        let (first, bytes) = (self.committed.seq + 1, active.bytes);
        self.committed = *self.chain.last();
        let last = self.committed;
        let mut progress = self.state.progress();
        if progress.is_active
            && let Some(segment) = progress.segments.back_mut()
        {
            self.state.add_bytes(bytes - segment.bytes);
            (segment.last, segment.bytes) = (last, bytes);
        } else {
            self.state.add_bytes(bytes);
            progress.segments.push_back(Segment { first, last, bytes });
            progress.is_active = true;
            progress.synced_bytes = 0;
        }
        progress.committed = last.seq;
        progress.unshipped += last.seq + 1 - first;
        if self.settings.is_strict {
            (progress.synced, progress.synced_bytes) = (last.seq, bytes);
            progress.head = last;
        }
        Ok(())
    }

    /// Goes on in a new segment. The one before is synced first: only the last one may be torn.
    fn begin_segment(&mut self) -> io::Result<()> {
        self.end_segment()?;
        let name = segment::name(self.committed.seq + 1);
        let Link { writer, epoch, .. } = self.committed;
        let header = segment::header(Header { writer, epoch });
        self.leftover = Some(name.clone());
        self.disk.create(&name, &header)?;
        self.leftover = None;
        self.active = Some(Active { name, bytes: header.len() as u64 });
        Ok(())
    }

    fn end_segment(&mut self) -> io::Result<()> {
        let Some(active) = &self.active else { return Ok(()) };
        if active.is_empty() {
            self.leftover = self.active.take().map(|active| active.name);
            return self.mend();
        }
        let mut is_doubtful = self.state.syncing();
        let from = self.state.progress().synced_bytes;
        // Also if all of it is synced: what was cut off must not come back.
        self.state.sync_file(&mut is_doubtful, &active.name, from..active.bytes)?;
        drop(is_doubtful);
        self.active = None;
        let mut progress = self.state.progress();
        progress.is_active = false;
        progress.synced = progress.committed;
        progress.head = self.committed;
        Ok(())
    }

    /// Takes back what a failed write may have left, so that it is never taken for a record.
    fn mend(&mut self) -> io::Result<()> {
        if let Some(name) = &self.leftover {
            match self.disk.remove(name) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => self.leftover = None,
            }
        }
        if self.is_torn
            && let Some(active) = &self.active
        {
            self.disk.truncate(&active.name, active.bytes)?;
            self.is_torn = false;
        }
        Ok(())
    }

    /// Nothing more will be written: syncs all, so that the reader can ship and remove all.
    pub fn close(mut self) -> io::Result<()> {
        self.mend()?;
        self.end_segment()
    }
}
