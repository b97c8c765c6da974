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
    /// A member's text at the top, after the hole, between its quotes: some providers fill one up
    /// anew for each chunk, so that a chunk's length does not tell a text's.
    filler: Range<usize>,
}

/// A chunk of the same shape.
pub(super) struct Fit {
    /// Where the piece stands, and of which field it is.
    pub at: Range<usize>,
    pub field: usize,
    /// A string without escapes that is another one than in the shape.
    pub other: Option<Range<usize>>,
}

impl Shape {
    pub fn forget(&mut self) {
        self.bytes.clear();
    }

    /// Takes the shape of a chunk with the piece at `at`, and its last text at the top.
    pub fn remember(
        &mut self,
        chunk: &[u8],
        at: &Range<usize>,
        field: usize,
        last: Option<&Range<usize>>,
    ) {
        if chunk.len() - at.len() > MAX_BYTES {
            return;
        }
        // Exactly so much, for as long as the stream is open.
        self.bytes.reserve_exact(chunk.len() - at.len());
        self.bytes.extend_from_slice(&chunk[..at.start]);
        self.bytes.extend_from_slice(&chunk[at.end..]);
        (self.hole, self.field) = (at.start, field);
        let filler = last.filter(|last| last.start > at.end);
        self.filler = filler.map_or(0..0, |last| last.start - at.len()..last.end - at.len());
    }

    /// Does a chunk differ in nothing but its piece, and perhaps in its filler?
    pub fn fits(&self, chunk: &[u8]) -> Option<Fit> {
        if self.bytes.is_empty() {
            return None;
        }
        let (before, after) = self.bytes.split_at(self.hole);
        let rest = chunk.strip_prefix(before)?;
        // The quotes around both strings are part of the shape.
        let end = end_of_string(chunk, self.hole);
        let at = self.hole..end;
        let field = self.field;
        if rest.get(end - self.hole..)? == after {
            return Some(Fit { at, field, other: None });
        }
        if self.filler.is_empty() {
            return None;
        }
        let start = end + (self.filler.start - self.hole);
        let between = chunk.get(end..start)? == &self.bytes[self.hole..self.filler.start];
        let length = memchr::memchr2(b'"', b'\\', chunk.get(start..)?)?;
        let same_end = chunk.get(start + length..)? == &self.bytes[self.filler.end..];
        let other = Some(start..start + length);
        (between && same_end).then_some(Fit { at, field, other })
    }
}
