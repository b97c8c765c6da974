//! Values that their names make secrets, where JSON holds both apart: `{"password": "…"}`.

use super::{
    engine::{Depth, Engine, Hit},
    prefix::Prefixes,
    scan::Scan,
};

/// A longer name is a text.
const MAX_NAME_BYTES: usize = 128;
/// A longer value is a text; tier 2 takes no longer ones, and formats that have a name in them
/// none either.
const MAX_VALUE_BYTES: usize = 1024;

const BETWEEN: &[u8] = b"\": \"";

/// What most members of calls and answers are named. Whether such a name makes a secret of its value is
/// found out once.
pub(super) const COMMON: [&[u8]; 22] = [
    b"arguments",
    b"content",
    b"description",
    b"detail",
    b"finish_reason",
    b"function",
    b"id",
    b"model",
    b"name",
    b"object",
    b"reasoning",
    b"reasoning_content",
    b"refusal",
    b"role",
    b"service_tier",
    b"stop",
    b"system_fingerprint",
    b"text",
    b"tool_call_id",
    b"type",
    b"url",
    b"user",
];

impl Engine {
    /// The secrets in `value`, in order and apart, that are some because of its name: those that
    /// would be found in the text `"name": "value"`.
    #[must_use]
    pub fn find_named(&self, name: &[u8], value: &[u8]) -> Vec<Hit> {
        if name.len() > MAX_NAME_BYTES || value.len() > MAX_VALUE_BYTES {
            return Vec::new();
        }
        if self.plain_names.contains(name) || !self.may_name_secrets(name) {
            return Vec::new();
        }
        let mut text = Vec::with_capacity(name.len() + value.len() + BETWEEN.len() + 2);
        text.push(b'"');
        text.extend_from_slice(name);
        text.extend_from_slice(BETWEEN);
        let start = text.len();
        // The value ends where it ends, whatever is in it.
        text.extend(
            value.iter().map(|byte| if matches!(byte, b'"' | b'\\') { b'\'' } else { *byte }),
        );
        let end = text.len();
        text.push(b'"');
        let mut hits = self.find(&text, Depth::Complete);
        hits.retain(|hit| start < hit.at.end && hit.at.start < end);
        for hit in &mut hits {
            hit.at = hit.at.start.max(start) - start..hit.at.end.min(end) - start;
        }
        hits
    }

    /// Is it a name of tier 2, or how a format may begin?
    pub(super) fn may_name_secrets(&self, name: &[u8]) -> bool {
        self.contexts.is_name(name) || self.has_prefix(name) && self.is_opening(name)
    }

    /// Does a prefix end in `"name": "`? In few names one does, and this is asked of all of them.
    fn has_prefix(&self, name: &[u8]) -> bool {
        let mut state = Prefixes::START;
        [b"\"", name, BETWEEN].iter().any(|part| {
            let reached = self.prefixes.first_ending(state, part, 0);
            (state, _) = reached.unwrap_or_else(|at_end| at_end);
            reached.is_ok()
        })
    }

    /// May what has begun in `"name": "` go on after it?
    fn is_opening(&self, name: &[u8]) -> bool {
        let opening = [b"\"", name, BETWEEN].concat();
        let mut scan = Scan::default();
        while scan.next(self, &opening, false).is_some() {}
        !scan.is_idle()
    }
}
