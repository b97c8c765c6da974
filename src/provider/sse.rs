//! The decoder of `text/event-stream` (WHATWG HTML §9.2.6), for what providers send.
//!
//! An event that lies within one chunk is never copied: what it yields are slices of the chunk,
//! which stays in memory as long as any of them does.

use std::{mem, sync::LazyLock};

use bytes::{Bytes, BytesMut};
use memchr::{memchr2, memmem};

const BOM: &[u8] = b"\xEF\xBB\xBF";

/// Splits a byte stream, cut anywhere, into events.
///
/// It doesn't decode UTF-8, so a character cut in two is no matter to it. The bytes of all `raw`s,
/// followed by [`Decoder::partial`], are the bytes that were fed.
#[derive(Debug)]
pub struct Decoder {
    max_event_bytes: usize,
    /// The beginning of an event whose end has not come yet.
    held: BytesMut,
    /// Where in its lines `held` ends. While nothing is held it says nothing: a block begins with a
    /// byte that is no line end, and before such a byte all states are alike.
    state: LineState,
    /// Nothing was yielded yet: a byte order mark may lead the next block.
    at_start: bool,
}

/// What the end of an unfinished block leaves open.
#[derive(Debug, Clone, Copy)]
enum LineState {
    /// Within a line that has content.
    Within,
    /// After a CR: an LF would still be part of the same line end.
    AfterCr,
    /// At the start of a line.
    AtStart,
}

/// One block of lines up to and with the blank line that ends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The block exactly as it came. Where a chunk ended between the CR and the LF of the last
    /// line end, the LF is the next event's `raw`.
    pub raw: Bytes,
    /// The values of the `data` fields, joined by LF.
    pub data: Bytes,
    /// The value of the last `event` field, if it is not empty.
    pub name: Option<Bytes>,
    /// Has it a `data` field? Without one it dispatches nothing: it is comments, blank lines, or
    /// other fields alone. (`data:` with an empty value does dispatch.)
    pub has_data: bool,
    /// It is `data` fields and nothing else, so that `raw` may be forwarded where `id:`, `retry:`
    /// and comments may not.
    pub plain: bool,
}

/// An event is longer than the decoder's bound. The stream is of no further use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an SSE event is longer than {max_event_bytes} bytes")]
pub struct TooLarge {
    pub max_event_bytes: usize,
}

impl Decoder {
    #[must_use]
    pub fn new(max_event_bytes: usize) -> Self {
        Self { max_event_bytes, held: BytesMut::new(), state: LineState::Within, at_start: true }
    }

    /// Takes bytes as they came and appends the events that they complete.
    ///
    /// # Errors
    /// [`TooLarge`], after the events before the one at fault were appended.
    pub fn feed(&mut self, mut chunk: Bytes, out: &mut Vec<Event>) -> Result<(), TooLarge> {
        while !chunk.is_empty() {
            if self.held.is_empty() {
                let blank = chunk.iter().take_while(|byte| is_line_end(**byte)).count();
                if blank > 0 {
                    self.at_start = false;
                    out.push(Event::without_fields(chunk.split_to(blank)));
                    continue;
                }
            }
            match scan(&chunk, self.state) {
                Scan::End { line, block } => {
                    self.check(block)?;
                    let event = self.complete(chunk.split_to(block), line);
                    out.push(event);
                }
                Scan::Open(state) => {
                    self.check(chunk.len())?;
                    self.held.extend_from_slice(&chunk);
                    self.state = state;
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The bytes of an event whose end has not come. If the stream ends here, it was cut: the
    /// specification drops them.
    #[must_use]
    pub fn partial(&self) -> &[u8] {
        &self.held
    }

    #[must_use]
    pub fn has_partial(&self) -> bool {
        !self.held.is_empty()
    }

    fn check(&self, more: usize) -> Result<(), TooLarge> {
        let max_event_bytes = self.max_event_bytes;
        if self.held.len() + more > max_event_bytes {
            return Err(TooLarge { max_event_bytes });
        }
        Ok(())
    }

    /// Makes an event of what is held and `tail`, the rest of its block.
    fn complete(&mut self, tail: Bytes, line: Option<usize>) -> Event {
        let may_have_bom = mem::take(&mut self.at_start);
        if self.held.is_empty() {
            // Nearly every event: one line, within one chunk.
            if let Some(value) = line.and_then(|end| data_value(&tail[..end])) {
                return Event::of_data(tail, value);
            }
            return parse(tail, may_have_bom);
        }
        let mut block = mem::take(&mut self.held);
        block.extend_from_slice(&tail);
        parse(block.freeze(), may_have_bom)
    }
}

impl Event {
    /// Gives it other data. Nothing of what came as such is left in it.
    pub fn set_data(&mut self, data: Bytes) {
        (self.raw, self.data, self.plain) = (Bytes::new(), data, false);
    }

    /// Is it the end of a stream of `OpenAI`'s?
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.data.trim_ascii() == b"[DONE]"
    }

    /// Might it say that the provider failed? Not to be taken for certain.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        static ERROR: LazyLock<memmem::Finder<'_>> =
            LazyLock::new(|| memmem::Finder::new("\"error\""));
        self.is_named_error() || ERROR.find(&self.data).is_some()
    }

    #[must_use]
    pub fn is_named_error(&self) -> bool {
        self.name.as_deref() == Some(b"error")
    }

    fn without_fields(raw: Bytes) -> Self {
        Self { raw, data: Bytes::new(), name: None, has_data: false, plain: false }
    }

    /// Of a block whose one line is a `data` field with the value at `value`.
    fn of_data(raw: Bytes, value: std::ops::Range<usize>) -> Self {
        Self { data: raw.slice(value), raw, name: None, has_data: true, plain: true }
    }
}

enum Scan {
    /// The block ends at `block`. `line` is the end of its first line, if it has but one and
    /// began here.
    End { line: Option<usize>, block: usize },
    /// It does not end here.
    Open(LineState),
}

/// Looks for the blank line that ends the block which `bytes` begin or go on with.
fn scan(bytes: &[u8], state: LineState) -> Scan {
    let mut at = 0;
    let mut state = state;
    let mut line = None;
    let mut lines = 0;
    loop {
        let Some(&byte) = bytes.get(at) else { return Scan::Open(state) };
        state = match (state, byte) {
            (LineState::AfterCr, b'\n') => {
                at += 1;
                LineState::AtStart
            }
            (LineState::AfterCr | LineState::AtStart, b'\n' | b'\r') => {
                let crlf = byte == b'\r' && bytes.get(at + 1) == Some(&b'\n');
                let line = if lines == 1 { line } else { None };
                return Scan::End { line, block: at + 1 + usize::from(crlf) };
            }
            _ => {
                let Some(length) = memchr2(b'\n', b'\r', &bytes[at..]) else {
                    return Scan::Open(LineState::Within);
                };
                let end = at + length;
                (line, lines) = (Some(end), lines + 1);
                at = end + 1;
                if bytes[end] == b'\r' { LineState::AfterCr } else { LineState::AtStart }
            }
        };
    }
}

/// Reads the fields of a block.
fn parse(raw: Bytes, may_have_bom: bool) -> Event {
    let body = if may_have_bom && raw.starts_with(BOM) { BOM.len() } else { 0 };
    let mut data = Data::None;
    let mut name = None;
    let mut plain = body == 0;
    let mut at = body;
    while let Some(length) = memchr2(b'\n', b'\r', &raw[at..]) {
        let line = &raw[at..at + length];
        if let Some(value) = data_value(line) {
            data = data.and(&raw, at + value.start..at + value.end);
        } else if !line.is_empty() {
            plain = false;
            if let Some(value) = value_of(line, b"event") {
                name = Some(raw.slice(at + value.start..at + value.end));
            }
        }
        at += length + 1;
    }
    let has_data = !matches!(data, Data::None);
    Event {
        data: data.into_bytes(&raw),
        name: name.filter(|name| !name.is_empty()),
        has_data,
        plain: plain && has_data,
        raw,
    }
}

/// The `data` fields of a block so far: copied only if there are several.
enum Data {
    None,
    One(std::ops::Range<usize>),
    Joined(BytesMut),
}

impl Data {
    fn and(self, raw: &Bytes, value: std::ops::Range<usize>) -> Self {
        let mut joined = match self {
            Self::None => return Self::One(value),
            Self::One(first) => BytesMut::from(&raw[first]),
            Self::Joined(joined) => joined,
        };
        joined.extend_from_slice(b"\n");
        joined.extend_from_slice(&raw[value]);
        Self::Joined(joined)
    }

    fn into_bytes(self, raw: &Bytes) -> Bytes {
        match self {
            Self::None => Bytes::new(),
            Self::One(value) => raw.slice(value),
            Self::Joined(joined) => joined.freeze(),
        }
    }
}

fn data_value(line: &[u8]) -> Option<std::ops::Range<usize>> {
    value_of(line, b"data")
}

/// Where the value of a line stands in it, if the line's field is called `name`.
fn value_of(line: &[u8], name: &[u8]) -> Option<std::ops::Range<usize>> {
    match line.strip_prefix(name)? {
        [] => Some(line.len()..line.len()),
        [b':', b' ', ..] => Some(name.len() + 2..line.len()),
        [b':', ..] => Some(name.len() + 1..line.len()),
        _ => None,
    }
}

fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}
