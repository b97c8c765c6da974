//! What a native stream has said so far, for those who come back.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// Frames as they were written, bounded in number and bytes: the oldest go first.
///
/// Frames that were written together are kept, and read, together: one piece of memory.
#[derive(Debug)]
pub struct Log {
    batches: VecDeque<Batch>,
    limits: LogLimits,
    last_seq: u64,
    frames: usize,
    bytes: usize,
    ended: bool,
}

/// About how much a reader is given at once: one who is far behind must not be handed a copy of
/// the whole log.
const SLICE_BYTES: usize = 64 << 10;

/// How much a [`Log`] keeps.
#[derive(Debug, Clone, Copy)]
pub struct LogLimits {
    pub frames: usize,
    pub bytes: usize,
}

#[derive(Debug)]
struct Batch {
    first_seq: u64,
    /// Where each frame ends in `bytes`.
    ends: Vec<usize>,
    bytes: Bytes,
}

/// The frames asked for are no longer kept, or never were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missing;

/// Frames to send, and the last one's number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    pub bytes: Bytes,
    pub last_seq: u64,
}

impl Log {
    #[must_use]
    pub const fn new(limits: LogLimits) -> Self {
        Self { batches: VecDeque::new(), limits, last_seq: 0, frames: 0, bytes: 0, ended: false }
    }

    /// The number that the next frame bears.
    #[must_use]
    pub const fn next_seq(&self) -> u64 {
        self.last_seq + 1
    }

    /// Adds frames numbered from [`Log::next_seq`] on; `ends` says where each ends in `bytes`.
    pub fn append(&mut self, bytes: Bytes, ends: Vec<usize>) {
        if ends.is_empty() || self.ended {
            return;
        }
        self.frames += ends.len();
        self.bytes += bytes.len();
        let first_seq = self.next_seq();
        self.last_seq += ends.len() as u64;
        self.batches.push_back(Batch { first_seq, ends, bytes });
        // The newest batch stays, whatever its size: a reader that keeps up loses nothing.
        while self.batches.len() > 1 && self.is_over() {
            if let Some(oldest) = self.batches.pop_front() {
                self.frames -= oldest.ends.len();
                self.bytes -= oldest.bytes.len();
            }
        }
    }

    fn is_over(&self) -> bool {
        self.frames > self.limits.frames || self.bytes > self.limits.bytes
    }

    /// No frame follows.
    pub const fn end(&mut self) {
        self.ended = true;
    }

    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.ended
    }

    /// The number of the last frame; 0 before the first.
    #[must_use]
    pub const fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// The next frames after `seq`, as many as are given at once; `None` if there are none yet.
    ///
    /// # Errors
    /// `Missing` if the frame after `seq` is gone already, or `seq` was never written.
    pub fn after(&self, seq: u64) -> Result<Option<Slice>, Missing> {
        if seq > self.last_seq {
            return Err(Missing);
        }
        if seq == self.last_seq {
            return Ok(None);
        }
        let index = self.batches.partition_point(|batch| batch.last_seq() <= seq);
        let first = self.batches.get(index).filter(|batch| batch.first_seq <= seq + 1);
        let first = first.ok_or(Missing)?;
        let mut slice = Slice { bytes: first.after(seq), last_seq: first.last_seq() };
        let mut size = slice.bytes.len();
        let mut rest = self.batches.range(index + 1..).take_while(|batch| {
            size += batch.bytes.len();
            size <= SLICE_BYTES
        });
        // Most readers keep up, and take the one newest batch without a copy.
        if let Some(second) = rest.next() {
            let mut joined = BytesMut::from(slice.bytes.as_ref());
            for batch in std::iter::once(second).chain(rest) {
                joined.extend_from_slice(&batch.bytes);
                slice.last_seq = batch.last_seq();
            }
            slice.bytes = joined.freeze();
        }
        Ok(Some(slice))
    }
}

impl Batch {
    fn last_seq(&self) -> u64 {
        self.first_seq + self.ends.len() as u64 - 1
    }

    fn after(&self, seq: u64) -> Bytes {
        let skipped =
            usize::try_from((seq + 1).saturating_sub(self.first_seq)).unwrap_or(usize::MAX);
        match skipped.checked_sub(1).and_then(|last| self.ends.get(last)) {
            Some(start) => self.bytes.slice(*start..),
            None => self.bytes.clone(),
        }
    }
}
