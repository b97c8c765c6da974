//! Text with its escapes resolved, so that what is looked for is found however it is spelled, and
//! the way back to where it stands.
//!
//! No map of the escapes is kept: they are read once more for the few texts in which something is
//! found.

use std::{cmp::Reverse, ops::Range};

/// JSON within JSON strings within JSON strings … is looked into this deep. Each layer costs no
/// more than its text, so this bounds the work, too.
pub const MAX_LAYERS: usize = 8;

/// Which spellings are resolved. What is none of them stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Escapes {
    /// Those of JSON strings.
    Json,
    /// Those, percent-encoding, and characters that nobody sees.
    Any,
}

/// An escape in a text, and what it stands for.
struct Escape {
    at: usize,
    length: usize,
    stands_for: [u8; 4],
    /// How many bytes of `stands_for` count: none for what is left out.
    bytes: usize,
}

impl Escape {
    fn of_byte(at: usize, length: usize, byte: u8) -> Self {
        Self { at, length, stands_for: [byte, 0, 0, 0], bytes: 1 }
    }

    fn of_char(at: usize, length: usize, character: char) -> Self {
        let mut stands_for = [0; 4];
        let bytes = character.encode_utf8(&mut stands_for).len();
        Self { at, length, stands_for, bytes }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.stands_for[..self.bytes]
    }
}

/// The escapes of a text, in order.
struct Reader<'a> {
    text: &'a [u8],
    escapes: Escapes,
    from: usize,
    /// The next character that nobody sees, looked for only as often as one is passed.
    unseen: Option<Escape>,
}

impl<'a> Reader<'a> {
    fn new(text: &'a [u8], escapes: Escapes) -> Self {
        let has_unseen = escapes == Escapes::Any && !text.is_ascii();
        let unseen = has_unseen.then(|| next_unseen(text, 0)).flatten();
        Self { text, escapes, from: 0, unseen }
    }

    /// The next escape that is spelled out before `until`.
    fn spelled(&self, until: usize) -> Option<Escape> {
        let text = &self.text[..until];
        let mut from = self.from;
        loop {
            let at = from
                + match self.escapes {
                    Escapes::Json => memchr::memchr(b'\\', &text[from..]),
                    Escapes::Any => memchr::memchr2(b'\\', b'%', &text[from..]),
                }?;
            let escape = if text[at] == b'%' { percent(text, at) } else { json(text, at) };
            if escape.is_some() {
                return escape;
            }
            from = at + 1;
        }
    }

    fn take_unseen(&mut self) -> Option<Escape> {
        let unseen = self.unseen.take()?;
        self.unseen = next_unseen(self.text, unseen.at + unseen.length);
        Some(unseen)
    }
}

impl Iterator for Reader<'_> {
    type Item = Escape;

    fn next(&mut self) -> Option<Escape> {
        // What lies beyond a character that is not seen would be looked for again and again.
        let until = self.unseen.as_ref().map_or(self.text.len(), |unseen| unseen.at);
        let escape = self.spelled(until).or_else(|| self.take_unseen())?;
        self.from = escape.at + escape.length;
        Some(escape)
    }
}

fn json(text: &[u8], at: usize) -> Option<Escape> {
    let simple = match text.get(at + 1)? {
        byte @ (b'"' | b'\\' | b'/') => *byte,
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'b' => 8,
        b'f' => 12,
        b'u' => return unicode(text, at),
        _ => return None,
    };
    Some(Escape::of_byte(at, 2, simple))
}

/// `\u0041`, or two of them for a character past U+FFFF. A half of a pair alone is no character.
fn unicode(text: &[u8], at: usize) -> Option<Escape> {
    let unit = |at: usize| {
        let digits = text.get(at..at + 6)?.strip_prefix(b"\\u")?;
        digits.iter().try_fold(0, |code, digit| Some(code << 4 | hex(*digit)?))
    };
    let first: u32 = unit(at)?;
    if let Some(character) = char::from_u32(first) {
        return Some(Escape::of_char(at, 6, character));
    }
    let pair = unit(at + 6).filter(|second| first < 0xDC00 && (0xDC00..0xE000).contains(second));
    let character = pair
        .and_then(|second| char::from_u32(0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00)));
    Some(match character {
        Some(character) => Escape::of_char(at, 12, character),
        None => Escape::of_char(at, 6, char::REPLACEMENT_CHARACTER),
    })
}

fn percent(text: &[u8], at: usize) -> Option<Escape> {
    let [high, low] = text.get(at + 1..at + 3)? else { return None };
    let byte = u8::try_from(hex(*high)? << 4 | hex(*low)?).ok()?;
    Some(Escape::of_byte(at, 3, byte))
}

fn hex(digit: u8) -> Option<u32> {
    char::from(digit).to_digit(16)
}

/// A character that takes no room: soft hyphen, zero-width spaces and joiners, marks of direction,
/// variation selectors, the byte order mark.
fn next_unseen(text: &[u8], from: usize) -> Option<Escape> {
    let mut at = from;
    loop {
        at += memchr::memchr3(0xC2, 0xE2, 0xEF, text.get(at..)?)?;
        let length = match text[at..] {
            [0xC2, 0xAD, ..] => 2,
            [0xE2, 0x80, 0x8B..=0x8F | 0xAA..=0xAE, ..]
            | [0xE2, 0x81, 0xA0..=0xAF, ..]
            | [0xEF, 0xB8, 0x80..=0x8F, ..]
            | [0xEF, 0xBB, 0xBF, ..] => 3,
            _ => 0,
        };
        if length > 0 {
            return Some(Escape { at, length, stands_for: [0; 4], bytes: 0 });
        }
        at += 1;
    }
}

/// Has it nothing that an escape begins with? Most texts have not.
fn is_plain(text: &[u8], escapes: Escapes) -> bool {
    match escapes {
        Escapes::Json => memchr::memchr(b'\\', text).is_none(),
        Escapes::Any => memchr::memchr2(b'\\', b'%', text).is_none() && text.is_ascii(),
    }
}

/// Writes `text` without its escapes to `out`. False, and nothing written, if it has none.
pub fn unescape(text: &[u8], escapes: Escapes, out: &mut Vec<u8>) -> bool {
    if is_plain(text, escapes) {
        return false;
    }
    let mut reader = Reader::new(text, escapes).peekable();
    if reader.peek().is_none() {
        return false;
    }
    out.reserve(text.len());
    let mut from = 0;
    for escape in reader {
        out.extend_from_slice(&text[from..escape.at]);
        out.extend_from_slice(escape.as_bytes());
        from = escape.at + escape.length;
    }
    out.extend_from_slice(&text[from..]);
    true
}

/// What was found in the unescaped text is put where it stands in `text`, escapes whole.
/// `found` must be [`apart`].
pub fn trace_back<T>(text: &[u8], escapes: Escapes, found: &mut [(Range<usize>, T)]) {
    if found.is_empty() {
        return;
    }
    let mut reader = Reader::new(text, escapes);
    let mut tracer = Tracer { here: 0, there: 0, next: reader.next(), reader };
    for (at, _) in found {
        let start = tracer.origin(at.start).start;
        *at = start..tracer.origin(at.end.saturating_sub(1)).end.max(start);
    }
}

/// Runs through a text and its unescaped form side by side.
struct Tracer<'a> {
    reader: Reader<'a>,
    next: Option<Escape>,
    /// From here to the next escape both run in step.
    here: usize,
    there: usize,
}

impl Tracer<'_> {
    /// Where the byte `at` of the unescaped text came from. Must not be asked for one before the
    /// last one.
    fn origin(&mut self, at: usize) -> Range<usize> {
        while let Some(escape) = &self.next {
            let begins = self.here + (escape.at - self.there);
            if at < begins {
                break;
            }
            let end = escape.at + escape.length;
            if at < begins + escape.bytes {
                return escape.at..end;
            }
            (self.here, self.there) = (begins + escape.bytes, end);
            self.next = self.reader.next();
        }
        let origin = self.there + (at - self.here);
        origin..origin + 1
    }
}

/// What is found in `text` with its escapes resolved, and, where it still has some, resolved
/// again: JSON is often sent in JSON strings. In order, apart, and where it stands in `text`, so
/// that it can be cut out without breaking an escape.
///
/// `find` is shown each layer, and `text` itself first.
pub fn search_layers<T>(
    text: &[u8],
    escapes: Escapes,
    mut find: impl FnMut(&[u8]) -> Vec<(Range<usize>, T)>,
) -> Vec<(Range<usize>, T)> {
    let mut found = find(text);
    let mut layers: Vec<Vec<u8>> = Vec::new();
    while layers.len() < MAX_LAYERS {
        let outer = layers.last().map_or(text, Vec::as_slice);
        let mut layer = Vec::new();
        if !unescape(outer, escapes, &mut layer) {
            break;
        }
        let mut hits = apart(find(&layer));
        for outer in layers.iter().rev().map(Vec::as_slice).chain([text]) {
            trace_back(outer, escapes, &mut hits);
        }
        found.extend(hits);
        layers.push(layer);
    }
    apart(found)
}

/// As [`search_layers`], of JSON text: its own escapes are no text, so `find` is shown it only as
/// it reads.
pub fn search_unescaped<T>(
    text: &[u8],
    mut find: impl FnMut(&[u8]) -> Vec<(Range<usize>, T)>,
) -> Vec<(Range<usize>, T)> {
    let mut layer = Vec::new();
    if !unescape(text, Escapes::Json, &mut layer) {
        return find(text);
    }
    let mut found = search_layers(&layer, Escapes::Json, find);
    trace_back(text, Escapes::Json, &mut found);
    found
}

/// In order, and those that overlap made one: the longest of the first.
#[must_use]
pub fn apart<T>(mut found: Vec<(Range<usize>, T)>) -> Vec<(Range<usize>, T)> {
    if found.len() < 2 {
        return found;
    }
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
