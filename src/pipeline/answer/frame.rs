//! Chunks of our own, and changes in a provider's.

use std::ops::Range;

use bytes::Bytes;

use super::walk::{Found, Step, is_member, walk};
use crate::provider::sse::Event;

/// Pieces of a JSON text that get another one in their place.
#[derive(Debug, Default)]
pub(super) struct Edits(Vec<(Range<usize>, String)>);

impl Edits {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Is there none but of the string at `at`?
    pub fn is_only(&self, at: &Range<usize>) -> bool {
        self.0.iter().all(|(edit, _)| edit.start + 1 == at.start)
    }

    /// The string between the quotes at `at` becomes `text`.
    pub fn string(&mut self, at: &Range<usize>, text: &str) {
        self.0.push((at.start.saturating_sub(1)..at.end + 1, quote(text)));
    }

    /// The value at `at` becomes `null`, with everything in it.
    pub fn null(&mut self, at: Range<usize>) {
        self.0.push((at, "null".to_owned()));
    }

    /// All other bytes stay as they are. Of two edits, one within the other, the outer one counts.
    pub fn apply(mut self, json: &[u8]) -> Bytes {
        self.0.sort_by_key(|(at, _)| at.start);
        let mut out = Vec::with_capacity(json.len() + 64);
        let mut from = 0;
        for (at, text) in &self.0 {
            if at.start >= from {
                out.extend_from_slice(&json[from..at.start]);
                out.extend_from_slice(text.as_bytes());
                from = at.end.min(json.len());
            }
        }
        out.extend_from_slice(&json[from..]);
        Bytes::from(out)
    }
}

/// What is around the choices of an answer's chunks, for chunks of our own of the same shape.
#[derive(Debug)]
pub(super) struct Frame {
    before: String,
    after: String,
}

impl Frame {
    /// From a chunk that nothing is to be taken out of any more. Members of the top that are
    /// objects or arrays are that chunk's own and left out; its usage is null.
    pub fn of(chunk: &[u8]) -> Self {
        let (mut before, mut after) = (String::from("{"), String::new());
        let mut is_past = false;
        walk(chunk, |kind, at, way| {
            let [Step::Member(name)] = way else { return };
            if kind == Found::Name {
                return;
            }
            if is_member(chunk, way.first(), "choices") {
                is_past = true;
                return;
            }
            let value = match kind {
                _ if is_member(chunk, way.first(), "usage") => "null".into(),
                _ if is_member(chunk, way.first(), "error") => return,
                Found::Text => String::from_utf8_lossy(&chunk[at.start - 1..=at.end]),
                Found::Scalar => String::from_utf8_lossy(&chunk[at]),
                Found::Name | Found::Container => return,
            };
            let name = String::from_utf8_lossy(&chunk[name.start - 1..=name.end]);
            if is_past {
                after.extend([",", &name, ":", &value]);
            } else {
                before.extend([&name, ":", &value, ","]);
            }
        });
        after.push('}');
        Self { before, after }
    }

    /// A chunk of this choice's delta and nothing else.
    pub fn chunk(&self, choice: u64, delta: &str) -> Event {
        let Self { before, after } = self;
        let data = format!(
            "{before}\"choices\":[{{\"index\":{choice},\"delta\":{delta},\"logprobs\":null,\
             \"finish_reason\":null}}]{after}"
        );
        event(Bytes::from(data))
    }
}

/// An event of our own.
pub(super) fn event(data: Bytes) -> Event {
    Event { raw: Bytes::new(), data, name: None, has_data: true, plain: false }
}

/// As a JSON string.
pub(super) fn quote(text: &str) -> String {
    // A string can always be written.
    serde_json::to_string(text).unwrap_or_else(|_| "\"\"".to_owned())
}
