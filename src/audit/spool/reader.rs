//! Taking records out of segments, and removing those that are done with.

use std::{io, ops::Range, sync::Arc};

use super::{
    Disk, SpoolState, keep_aside,
    recovery::HEAD,
    segment::{self, FrameError, HEADER_BYTES, Header, MAX_FRAME_BYTES},
    state::{Progress, Segment},
};
use crate::audit::{
    chain::{Link, Linked},
    record::{Record, RecordError},
};

/// The most records that are taken at once.
pub const BATCH_RECORDS: usize = 512;
/// What is read at once, which one record fits into.
const BATCH_BYTES: usize = MAX_FRAME_BYTES;

/// Why no records come out.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("the audit spool can't be read: {0}")]
    Disk(#[from] io::Error),
    #[error("record {seq} of the audit spool can't be read: {source}")]
    Record { seq: u64, source: RecordError },
}

/// Reads records in their order; there is one for a spool.
#[derive(Debug)]
pub struct SpoolReader {
    disk: Arc<dyn Disk>,
    state: Arc<SpoolState>,
    /// Up to where the oldest segment is done with.
    offset: u64,
    /// Who wrote it, once it has been looked at.
    header: Option<Header>,
    /// What was read last, and where the frames in it are.
    bytes: Vec<u8>,
    batch: Vec<(Link, Range<usize>)>,
    batch_bytes: u64,
}

impl SpoolReader {
    pub(super) const fn new(disk: Arc<dyn Disk>, state: Arc<SpoolState>) -> Self {
        Self {
            disk,
            state,
            offset: 0,
            header: None,
            bytes: Vec::new(),
            batch: Vec::new(),
            batch_bytes: 0,
        }
    }

    /// Reads the next records that are synced and not acknowledged; returns how many. Blocks.
    ///
    /// Without [`SpoolReader::acknowledge`] in between they are the same ones again.
    pub fn read(&mut self) -> io::Result<usize> {
        self.batch_bytes = 0;
        self.batch.clear();
        while self.batch.is_empty() {
            self.remove_finished()?;
            let Some((segment, end)) = self.oldest() else { break };
            if end <= self.offset.max(HEADER_BYTES as u64) {
                break;
            }
            match self.read_oldest(&segment, end) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && self.is_behind() => {
                    self.give_up(&segment);
                }
                read => read?,
            }
        }
        Ok(self.batch.len())
    }

    fn read_oldest(&mut self, segment: &Segment, end: u64) -> io::Result<()> {
        let Some(header) = self.header(segment)? else { return self.skip(segment, 0, end) };
        self.offset = self.offset.max(HEADER_BYTES as u64);
        self.bytes.clear();
        let most = usize::try_from(end - self.offset).unwrap_or(BATCH_BYTES);
        self.disk.read(&segment.name(), self.offset, most.min(BATCH_BYTES), &mut self.bytes)?;
        self.take_frames(header);
        if self.batch.is_empty() {
            self.skip(segment, self.offset, end)?;
        }
        Ok(())
    }

    /// Is the oldest segment one that nothing is written to any more?
    fn is_behind(&self) -> bool {
        !is_active(&self.state.progress())
    }

    /// Goes on behind a segment that somebody has deleted: those behind it must not wait for what is
    /// lost. Its rows are a gap that verifying names.
    fn give_up(&mut self, segment: &Segment) {
        let (name, from, to) = (segment.name(), segment.first, segment.last.seq);
        tracing::error!(
            segment = name,
            from,
            to,
            "a segment of the audit spool was deleted: what of it is not in the store is lost"
        );
        (self.offset, self.header) = (0, None);
        let mut progress = self.state.progress();
        if let Some(gone) = progress.segments.pop_front() {
            self.state.take_bytes(gone.bytes);
        }
        progress.unshipped = progress.segments.iter().map(Segment::records).sum();
    }

    /// The oldest segment and up to where it may be read.
    fn oldest(&self) -> Option<(Segment, u64)> {
        let progress = self.state.progress();
        let segment = progress.segments.front()?;
        let end = if is_active(&progress) { progress.synced_bytes } else { segment.bytes };
        Some((*segment, end))
    }

    fn header(&mut self, segment: &Segment) -> io::Result<Option<Header>> {
        if self.header.is_none() {
            self.bytes.clear();
            self.disk.read(&segment.name(), 0, HEADER_BYTES, &mut self.bytes)?;
            self.header = segment::read_header(&self.bytes);
        }
        Ok(self.header)
    }

    fn take_frames(&mut self, header: Header) {
        let mut at = 0;
        while self.batch.len() < BATCH_RECORDS {
            let frame = match segment::read_frame(&self.bytes[at..]) {
                Ok(frame) => frame,
                // The next batch begins there, and says so if it is bad.
                Err(FrameError::Short | FrameError::Bad) => break,
            };
            let Header { writer, epoch } = header;
            let end = at + frame.length;
            let link = Link { writer, epoch, seq: frame.seq, hash: frame.hash };
            self.batch.push((link, at..end));
            at = end;
        }
        self.batch_bytes = at as u64;
    }

    /// Goes on behind what has become unreadable since the start, which is kept aside.
    fn skip(&mut self, segment: &Segment, from: u64, to: u64) -> io::Result<()> {
        let mut bytes = Vec::new();
        let most = usize::try_from(to - from).map_err(io::Error::other)?;
        self.disk.read(&segment.name(), from, most, &mut bytes)?;
        keep_aside(&*self.disk, &segment.name(), &bytes)?;
        self.offset = to;
        let mut progress = self.state.progress();
        // What is left of this segment is at most what is not synced yet.
        let others: u64 = progress.segments.iter().skip(1).map(Segment::records).sum();
        let unsynced = if is_active(&progress) { progress.committed - progress.synced } else { 0 };
        progress.unshipped = others + unsynced;
        Ok(())
    }

    /// What was read, as a sink takes it.
    ///
    /// # Errors
    /// [`ReadError::Record`] where another version wrote what this one can't read.
    pub fn batch(&self) -> Result<Vec<Linked<'_>>, ReadError> {
        let linked = |(link, range): &(Link, Range<usize>)| {
            let frame = segment::read_frame(&self.bytes[range.clone()]);
            let frame = frame.map_err(|_| RecordError::Malformed);
            let decoded = frame.and_then(|frame| {
                Ok(Linked {
                    link: *link,
                    record: Record::decode(frame.record)?,
                    content: frame.content,
                })
            });
            decoded.map_err(|source| ReadError::Record { seq: link.seq, source })
        };
        self.batch.iter().map(linked).collect()
    }

    /// What was read is in the store. True if there is something to remove.
    pub fn acknowledge(&mut self) -> bool {
        self.offset += std::mem::take(&mut self.batch_bytes);
        let mut progress = self.state.progress();
        progress.unshipped = progress.unshipped.saturating_sub(self.batch.len() as u64);
        self.batch.clear();
        is_finished(&progress, self.offset)
    }

    /// Removes the segments that are wholly acknowledged. Blocks.
    pub fn remove_finished(&mut self) -> io::Result<()> {
        loop {
            let (oldest, is_needed) = {
                let progress = self.state.progress();
                match progress.segments.front() {
                    Some(segment) if is_finished(&progress, self.offset) => {
                        (*segment, progress.synced <= segment.last.seq)
                    }
                    _ => return Ok(()),
                }
            };
            // First of all, so that the chain can go on from there when no record is left. While one
            // is, a disk without room for this must not keep us from making room.
            let said = self.disk.replace(HEAD, &segment::head(&oldest.last));
            if is_needed {
                said?;
            }
            match self.disk.remove(&oldest.name()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            (self.offset, self.header) = (0, None);
            let mut progress = self.state.progress();
            if let Some(segment) = progress.segments.pop_front() {
                self.state.take_bytes(segment.bytes);
            }
        }
    }
}

/// Is the oldest segment the one that is being written to?
fn is_active(progress: &Progress) -> bool {
    progress.is_active && progress.segments.len() == 1
}

/// Is all of the oldest segment done with?
fn is_finished(progress: &Progress, offset: u64) -> bool {
    let oldest = progress.segments.front();
    oldest.is_some_and(|segment| segment.bytes <= offset) && !is_active(progress)
}
