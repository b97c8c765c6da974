//! What an answer's chunks have in common.

use std::ops::Range;

use super::walk::end_of_string;

/// A longer one is not worth its room for as long as the stream is open.
const MAX_BYTES: usize = 1024;

/// A chunk with a hole in it, where a piece of one text stood.
#[derive(Debug, Default)]
pub(super) struct Shape {
    bytes: Vec<u8>,
    hole: usize,
    field: usize,
}

impl Shape {
    pub fn forget(&mut self) {
        self.bytes.clear();
    }

    pub fn remember(&mut self, chunk: &[u8], at: &Range<usize>, field: usize) {
        if chunk.len() - at.len() <= MAX_BYTES {
            self.bytes.extend_from_slice(&chunk[..at.start]);
            self.bytes.extend_from_slice(&chunk[at.end..]);
            (self.hole, self.field) = (at.start, field);
        }
    }

    /// Where the piece stands in a chunk that differs in nothing else, and of which field it is.
    pub fn fits(&self, chunk: &[u8]) -> Option<(Range<usize>, usize)> {
        let (before, after) = self.bytes.split_at(self.hole.min(self.bytes.len()));
        let rest = chunk.strip_prefix(before)?.strip_suffix(after)?;
        let at = self.hole..self.hole + rest.len();
        // The quotes around it are part of the shape.
        let is_piece = !before.is_empty() && end_of_string(chunk, at.start) == at.end;
        is_piece.then_some((at, self.field))
    }
}
