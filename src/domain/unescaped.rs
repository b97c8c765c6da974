//! JSON text with its escapes resolved, so that what is looked for is found however it is spelled.

use std::{cmp::Reverse, ops::Range};

/// JSON within JSON strings within JSON strings … is looked into this deep.
const MAX_LAYERS: usize = 8;

/// A text without its escapes, and where each of its bytes came from.
struct Unescaped {
    bytes: Vec<u8>,
    /// Where escapes begin and end: here, and in the text that they were resolved in. Between two
    /// of these both run in step.
    steps: Vec<(usize, usize)>,
}

impl Unescaped {
    /// `None` where there is no escape. What is no escape of JSON stays as it is.
    fn of(text: &[u8]) -> Option<Self> {
        let mut backslash = memchr::memchr(b'\\', text)?;
        let mut unescaped = Self { bytes: Vec::with_capacity(text.len()), steps: Vec::new() };
        let mut from = 0;
        loop {
            unescaped.bytes.extend_from_slice(&text[from..backslash]);
            from = backslash + unescaped.resolve(&text[backslash..], backslash);
            match memchr::memchr(b'\\', &text[from..]) {
                Some(next) => backslash = from + next,
                None => break,
            }
        }
        unescaped.bytes.extend_from_slice(&text[from..]);
        Some(unescaped)
    }

    /// Appends what the escape at the beginning of `text` stands for; says how long it is.
    fn resolve(&mut self, text: &[u8], at: usize) -> usize {
        self.steps.push((self.bytes.len(), at));
        let simple = |byte| match byte {
            b'"' | b'\\' | b'/' => Some(byte),
            b'n' => Some(b'\n'),
            b't' => Some(b'\t'),
            b'r' => Some(b'\r'),
            b'b' => Some(8),
            b'f' => Some(12),
            _ => None,
        };
        let length = if let Some(byte) = text.get(1).copied().and_then(simple) {
            self.bytes.push(byte);
            2
        } else if let Some(code) =
            text.get(1..6).and_then(|digits| digits.strip_prefix(b"u")).and_then(hex)
        {
            // Half of a pair is no matter: nothing that is looked for has such characters.
            let character = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
            self.bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            6
        } else {
            self.bytes.push(b'\\');
            1
        };
        self.steps.push((self.bytes.len(), at + length));
        length
    }

    fn origin(&self, at: usize) -> usize {
        let after = self.steps.partition_point(|(here, _)| *here <= at);
        match after.checked_sub(1).and_then(|last| self.steps.get(last)) {
            Some((here, there)) => there + (at - here),
            None => at,
        }
    }
}

fn hex(digits: &[u8]) -> Option<u32> {
    // `from_str_radix` takes a sign, too.
    let valid = digits.iter().all(u8::is_ascii_hexdigit);
    let digits = std::str::from_utf8(digits).ok().filter(|_| valid)?;
    u32::from_str_radix(digits, 16).ok()
}

/// What `find` finds in JSON (or other) text, at the places where it stands in `text`: in order,
/// and without overlaps.
///
/// `find` is shown the text with its escapes resolved, and, where that still has some, resolved
/// again: JSON is often sent in JSON strings. What is found is cut out of `text` without breaking
/// its escapes.
pub fn search_unescaped<T>(
    text: &[u8],
    mut find: impl FnMut(&[u8]) -> Vec<(Range<usize>, T)>,
) -> Vec<(Range<usize>, T)> {
    let Some(mut layer) = Unescaped::of(text) else { return find(text) };
    let mut layers: Vec<Unescaped> = Vec::new();
    let mut found = Vec::new();
    loop {
        let next = Unescaped::of(&layer.bytes).filter(|_| layers.len() + 1 < MAX_LAYERS);
        let hits = find(&layer.bytes);
        layers.push(layer);
        let origin = |at| layers.iter().rev().fold(at, |at, layer| layer.origin(at));
        found.extend(hits.into_iter().map(|(at, what)| (origin(at.start)..origin(at.end), what)));
        let Some(next) = next else { break };
        layer = next;
    }
    without_overlaps(found)
}

fn without_overlaps<T>(mut found: Vec<(Range<usize>, T)>) -> Vec<(Range<usize>, T)> {
    found.sort_by_key(|(at, _)| (at.start, Reverse(at.end)));
    let mut apart: Vec<(Range<usize>, T)> = Vec::with_capacity(found.len());
    for (at, what) in found {
        match apart.last_mut() {
            Some((last, _)) if at.start < last.end => last.end = last.end.max(at.end),
            _ => apart.push((at, what)),
        }
    }
    apart
}
