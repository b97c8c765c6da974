//! What was asked and what was answered: kept beside an entry, so that it can be deleted by itself.
//!
//! The entry has the hash and the length of the whole; this has its beginning.

use std::fmt;

use aws_lc_rs::digest::{Context, SHA256, digest};

use super::Hash;

/// The most that is kept of a side, with the marker that says how much there was.
pub const MAX_CONTENT_BYTES: usize = 64 << 10;
/// Room for that marker.
const MARKER_BYTES: usize = 80;
/// What is kept of a text that is too long.
const CUT_BYTES: usize = MAX_CONTENT_BYTES - MARKER_BYTES;
/// Begins what is not the text's own: it is taken out of texts, so that none can pass for it.
const SEPARATOR: char = '\u{1e}';

/// What a row proves of a content, which is kept apart from it and can be deleted alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentDigest {
    /// SHA-256 of the whole content, its secrets taken out.
    pub hash: Hash,
    /// The whole content's length, however much of it is kept.
    pub bytes: u64,
}

impl ContentDigest {
    #[must_use]
    pub fn of(content: &[u8]) -> Self {
        Self { hash: finished(&digest(&SHA256, content)), bytes: content.len() as u64 }
    }
}

fn finished(digest: &aws_lc_rs::digest::Digest) -> Hash {
    let mut hash = Hash::default();
    hash.copy_from_slice(digest.as_ref());
    hash
}

/// What is kept of a call's content. It says nothing of it where it is logged.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Content {
    pub input: Option<Box<str>>,
    pub output: Option<Box<str>>,
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = |text: &Option<Box<str>>| text.as_ref().map(|text| text.len());
        f.debug_struct("Content")
            .field("input_bytes", &bytes(&self.input))
            .field("output_bytes", &bytes(&self.output))
            .finish()
    }
}

impl Content {
    #[must_use]
    pub fn kept(&self) -> KeptContent<'_> {
        KeptContent { input: self.input.as_deref(), output: self.output.as_deref() }
    }
}

/// [`Content`], borrowed from where it was read.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct KeptContent<'a> {
    pub input: Option<&'a str>,
    pub output: Option<&'a str>,
}

impl fmt::Debug for KeptContent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = |text: Option<&str>| text.map(str::len);
        f.debug_struct("KeptContent")
            .field("input_bytes", &bytes(self.input))
            .field("output_bytes", &bytes(self.output))
            .finish()
    }
}

impl<'a> KeptContent<'a> {
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.input.is_none() && self.output.is_none()
    }

    /// Adds its encoding: for each side its length and 1 (4 bytes, little-endian), or 0 where there
    /// is none, and the text.
    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        for side in [self.input, self.output] {
            let length = side.map_or(0, |text| u32::try_from(text.len() + 1).unwrap_or(u32::MAX));
            to.extend(length.to_le_bytes());
            to.extend(side.unwrap_or_default().as_bytes());
        }
    }

    /// Reads just what [`KeptContent::encode`] writes.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (input, rest) = decode_side(bytes)?;
        let (output, rest) = decode_side(rest)?;
        rest.is_empty().then_some(Self { input, output })
    }
}

fn decode_side(bytes: &[u8]) -> Option<(Option<&str>, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let Some(length) = length.checked_sub(1) else { return Some((None, rest)) };
    let (text, rest) = rest.split_at_checked(length)?;
    let is_short = length <= MAX_CONTENT_BYTES;
    Some((Some(str::from_utf8(text).ok().filter(|_| is_short)?), rest))
}

/// The beginning of a text that is there in whole.
#[must_use]
pub fn keep(text: &str) -> Box<str> {
    if memchr::memchr(0, text.as_bytes()).is_some() {
        return keep(&text.replace('\0', "\u{fffd}"));
    }
    if text.len() <= MAX_CONTENT_BYTES {
        return text.into();
    }
    let kept = &text[..text.floor_char_boundary(CUT_BYTES)];
    with_marker(kept.to_owned(), text.len() as u64)
}

fn with_marker(mut kept: String, bytes: u64) -> Box<str> {
    let marker = format!("{SEPARATOR}truncated: the first {} of {bytes} bytes", kept.len());
    kept.push_str(&marker);
    kept.into()
}

/// How long the whole was of which `kept` is the beginning; `None` where it is the whole.
///
/// No text of ours that is kept in whole ends like that: an answer has no U+001E of its own, and a
/// request is JSON, which has none.
pub(super) fn full_bytes(kept: &str) -> Option<u64> {
    let (text, marker) = kept.rsplit_once(SEPARATOR)?;
    let rest = marker.strip_prefix("truncated: the first ")?.strip_suffix(" bytes")?;
    let (first, whole) = rest.split_once(" of ")?;
    // As much as there is room for, up to a character that has none.
    let is_cut_there = (CUT_BYTES - 3..=CUT_BYTES).contains(&text.len());
    let is_so_long = is_cut_there && first.parse() == Ok(text.len());
    whole.parse().ok().filter(|whole| is_so_long && *whole > text.len() as u64)
}

/// What a piece of an answer is a part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part<'a> {
    Text,
    Reasoning,
    Refusal,
    /// The number of the call in its choice, and its name where this piece says it.
    ToolCall(u64, Option<&'a str>),
}

/// An answer as it goes by: its hash, and its beginning where that is kept.
///
/// It is one text, in the order in which its pieces came. Where another part begins than the first
/// choice's text, there is a line that says which, behind a U+001E: `tool_call 0 get_weather`, or
/// `choice 1 text`. Where a text has a U+001E or a NUL itself, U+FFFD stands for it.
#[derive(Default)]
pub struct Transcript {
    context: Option<Context>,
    bytes: u64,
    kept: Option<String>,
    /// The choice and the part that the last piece was of, by its name's first letter and number.
    last: (u64, u8, u64),
}

impl fmt::Debug for Transcript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transcript").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Transcript {
    /// Is its beginning to be kept, too?
    #[must_use]
    pub fn new(is_kept: bool) -> Self {
        Self { kept: is_kept.then(String::new), ..Self::default() }
    }

    /// Takes in a piece.
    pub fn push(&mut self, choice: u64, part: Part<'_>, text: &str) {
        let place = match part {
            Part::Text => (choice, 0, 0),
            Part::Reasoning => (choice, 1, 0),
            Part::Refusal => (choice, 2, 0),
            Part::ToolCall(number, _) => (choice, 3, number),
        };
        if place != self.last {
            self.last = place;
            self.add(&heading(choice, part));
        }
        if memchr::memchr2(0, SEPARATOR as u8, text.as_bytes()).is_some() {
            self.add(&text.replace(['\0', SEPARATOR], "\u{fffd}"));
        } else {
            self.add(text);
        }
    }

    fn add(&mut self, text: &str) {
        self.context.get_or_insert_with(|| Context::new(&SHA256)).update(text.as_bytes());
        if let Some(kept) = &mut self.kept {
            // Up to the first piece that has no room: what is kept has no holes.
            let room = CUT_BYTES - kept.len();
            if kept.len() as u64 == self.bytes {
                kept.push_str(&text[..text.floor_char_boundary(room)]);
            }
        }
        self.bytes += text.len() as u64;
    }

    /// `None` where nothing was answered.
    #[must_use]
    pub fn finish(self) -> Option<(ContentDigest, Option<Box<str>>)> {
        let Self { context, bytes, kept, .. } = self;
        let hash = finished(&context?.finish());
        let kept = kept.map(|kept| {
            if kept.len() as u64 == bytes { kept.into() } else { with_marker(kept, bytes) }
        });
        Some((ContentDigest { hash, bytes }, kept))
    }
}

fn heading(choice: u64, part: Part<'_>) -> String {
    let choice = if choice == 0 { String::new() } else { format!("choice {choice} ") };
    let part = match part {
        Part::Text => "text".to_owned(),
        Part::Reasoning => "reasoning".to_owned(),
        Part::Refusal => "refusal".to_owned(),
        Part::ToolCall(number, None) => format!("tool_call {number}"),
        Part::ToolCall(number, Some(name)) => {
            let name = name.replace(['\0', SEPARATOR, '\n'], "\u{fffd}");
            format!("tool_call {number} {name}")
        }
    };
    format!("{SEPARATOR}{choice}{part}\n")
}
