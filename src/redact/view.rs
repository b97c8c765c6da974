//! A text seen as what it stands for: secrets in base64, and what is no text at all.
//!
//! Of a request each string is looked at in these views, and what is found in one is replaced
//! where it stands in the body, as a whole:
//!
//! * as it reads, once JSON has resolved its escapes; if that is JSON again (tool arguments),
//!   string by string, and so on;
//! * with JSON's escapes and percent-encoding resolved and without characters that nobody sees
//!   (zero-width ones, soft hyphens), up to [`MAX_LAYERS`](crate::domain::MAX_LAYERS) times one
//!   on top of the other, in any mixture;
//! * a whole secret in base64, standard or URL-safe, also in lines, where the base64 begins a
//!   word. The whole run is replaced.
//!
//! The work is bounded: no view is longer than its text, a run of base64 is decoded once and for
//! no more than [`MAX_RUN_BYTES`].
//!
//! Not covered: base64 that holds more than the secret before it (`user:key`, a whole file that
//! has a key in its middle), or is encoded twice; other encodings (hex, base32, HTML entities,
//! quoted-printable, rot13, reversed text) and all compressed or encrypted data, what a `data:`
//! URL holds among it; look-alike letters; `+` for a blank; a secret that is split over several
//! strings, or told in words; a number.

use std::{collections::BTreeSet, ops::Range};

use memchr::memmem;

/// Longer than the base64 of any secret but a chain of certificates, whose key comes first or in
/// these bytes: what is longer is decoded so far.
pub const MAX_RUN_BYTES: usize = 16 << 10;
/// Base64 is put in lines of 64 or 76 characters. Shorter lines are lines of something else.
const LEAST_LINE_BYTES: usize = 60;
/// What a `data:` URL has before its data: a type and parameters.
const MAX_DATA_HEAD_BYTES: usize = 256;
/// The smallest image has more. A shorter text is looked through like any other.
const LEAST_DATA_BYTES: usize = 64;
/// Without a URL around it, data is only what is longer than secrets are.
const LEAST_BARE_DATA_BYTES: usize = 4_096;
/// So much of a word says whether it may be a secret at all: it is what two bytes give, and a
/// prefix has two at least.
const HEAD_SEXTETS: usize = 3;
/// No secret is shorter in base64: it is six bytes then, and its prefix is two of them.
const LEAST_WORD_BYTES: usize = 8;
/// In place of the six bits of a byte that is not base64.
const NONE: u8 = u8::MAX;

const DATA: &[u8] = b";base64,";
const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Each byte's six bits, in the standard and in the URL-safe alphabet.
static SEXTETS: [u8; 256] = sextets();

const fn sextets() -> [u8; 256] {
    let mut table = [NONE; 256];
    let mut bits = 0;
    while bits < 64 {
        table[STANDARD[bits as usize] as usize] = bits;
        bits += 1;
    }
    table[b'-' as usize] = 62;
    table[b'_' as usize] = 63;
    table
}

/// Finds secrets in base64, and data that is to be left alone.
pub(super) struct Views {
    /// How the prefixes of secrets begin in base64, in sextets and in order.
    forms: Vec<Vec<u8>>,
    /// A bit for each three sextets that a form begins with.
    heads: Vec<u64>,
    data: memmem::Finder<'static>,
}

impl Views {
    pub fn new<'a>(prefixes: impl IntoIterator<Item = &'a str>) -> Self {
        let forms: BTreeSet<Vec<u8>> =
            prefixes.into_iter().flat_map(|prefix| forms(prefix.as_bytes())).collect();
        let mut heads = vec![0; (1 << (6 * HEAD_SEXTETS)) / 64];
        for form in &forms {
            let head = head(form);
            heads[head / 64] |= 1 << (head % 64);
        }
        Self { forms: forms.into_iter().collect(), heads, data: memmem::Finder::new(DATA) }
    }

    pub fn memory_usage(&self) -> usize {
        size_of_val(&*self.heads) + self.forms.iter().map(|form| 24 + form.len()).sum::<usize>()
    }

    /// What `find` finds in the runs of base64 that begin like a secret: the whole run.
    pub fn search_base64<T>(
        &self,
        text: &[u8],
        mut find: impl FnMut(&[u8]) -> Option<T>,
    ) -> Vec<(Range<usize>, T)> {
        let mut found = Vec::new();
        let (mut lines_until, mut done) = (0, 0);
        for word in words(text) {
            // A `/` stands in paths, too: what follows it may be a word.
            let mut begins = true;
            for start in word.clone() {
                let is_first = std::mem::replace(&mut begins, text[start] == b'/');
                if !is_first || start < done || !self.begins_secret(&text[start..]) {
                    continue;
                }
                let run = if start < lines_until {
                    // The lines were decoded as one. That this is a run of its own is the other
                    // way to read them.
                    start..line_end(text, start)
                } else {
                    start..run_end(text, start)
                };
                lines_until = lines_until.max(run.end);
                let decoded = decode(&text[run.start..run.end.min(start + MAX_RUN_BYTES)]);
                if let Some(what) = find(&decoded) {
                    done = run.end;
                    found.push((run, what));
                }
            }
        }
        found
    }

    fn begins_secret(&self, word: &[u8]) -> bool {
        let Some(first) = word.get(..HEAD_SEXTETS) else { return false };
        let sextets: [u8; HEAD_SEXTETS] = [0, 1, 2].map(|at| SEXTETS[usize::from(first[at])]);
        if sextets.contains(&NONE) {
            return false;
        }
        let head = head(&sextets);
        if self.heads[head / 64] & 1 << (head % 64) == 0 {
            return false;
        }
        let from = self.forms.partition_point(|form| form[..HEAD_SEXTETS] < sextets[..]);
        let alike = self.forms[from..].iter().take_while(|form| form.starts_with(&sextets));
        let is_form = |form: &[u8]| {
            let sextets = word.iter().map(|byte| &SEXTETS[usize::from(*byte)]);
            sextets.take(form.len()).eq(form)
        };
        alike.map(Vec::as_slice).any(is_form)
    }

    /// Is a text data in base64 and nothing else, as sound and images come (`input_audio.data`)? In
    /// so many letters what looks like a secret is chance.
    pub fn is_data(text: &[u8]) -> bool {
        let data = text.strip_suffix(b"=").unwrap_or(text);
        let data = data.strip_suffix(b"=").unwrap_or(data);
        text.len() >= LEAST_BARE_DATA_BYTES
            && text.len().is_multiple_of(4)
            && data.iter().all(|byte| is_base64(*byte) && !matches!(byte, b'-' | b'_'))
    }

    /// The parts of a text beside the data of its `data:` URLs (`data:image/png;base64,…`); `None`
    /// if it has no such data.
    pub fn beside_data(&self, text: &[u8]) -> Option<Vec<Range<usize>>> {
        let mut parts = Vec::new();
        let mut from = 0;
        for at in self.data.find_iter(text) {
            let start = at + DATA.len();
            // Only the standard alphabet: many secrets have a `-` or `_`, and end it.
            let is_data = |byte: &u8| is_base64(*byte) && !matches!(byte, b'-' | b'_');
            if at < from || !ends_data_head(&text[from..at]) {
                continue;
            }
            let length = text[start..].iter().take_while(|byte| is_data(byte)).count();
            if length >= LEAST_DATA_BYTES {
                parts.push(from..start);
                from = start + length;
            }
        }
        if parts.is_empty() {
            return None;
        }
        parts.push(from..text.len());
        Some(parts)
    }
}

/// How the base64 of whatever begins with `prefix` begins.
fn forms(prefix: &[u8]) -> Vec<Vec<u8>> {
    let sextet = |index: usize| {
        let (byte, shift) = (index * 6 / 8, index * 6 % 8);
        let pair = [prefix[byte], prefix.get(byte + 1).copied().unwrap_or(0)];
        (u16::from_be_bytes(pair) << shift >> 10).to_le_bytes()[0]
    };
    let whole = prefix.len() * 8 / 6;
    let known: Vec<u8> = (0..whole).map(sextet).collect();
    if whole >= HEAD_SEXTETS {
        return vec![known];
    }
    // Two bytes are two sextets and four bits of a third.
    (0..4).map(|low| [known.as_slice(), &[sextet(whole) | low]].concat()).collect()
}

/// The first three sextets as one number.
fn head(form: &[u8]) -> usize {
    form.iter().take(HEAD_SEXTETS).fold(0, |head, sextet| head << 6 | usize::from(*sextet))
}

/// The runs of base64's letters that are long enough. Of shorter ones only one byte in as many is
/// looked at, or few more: most words of a text are such.
fn words(text: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            // What is before `from` is no letter.
            let probe = from + LEAST_WORD_BYTES - 1;
            if !is_base64(*text.get(probe)?) {
                from = probe + 1;
                continue;
            }
            let before = text[from..probe].iter().rev().take_while(|byte| is_base64(**byte));
            let start = probe - before.count();
            let behind = text[probe..].iter().take_while(|byte| is_base64(**byte));
            let end = probe + behind.count();
            from = end + 1;
            if end - start >= LEAST_WORD_BYTES {
                return Some(start..end);
            }
        }
    })
}

fn is_base64(byte: u8) -> bool {
    SEXTETS[usize::from(byte)] != NONE
}

/// Where a run of base64 on one line ends, its padding included.
fn line_end(text: &[u8], start: usize) -> usize {
    // In a path the words are URL-safe. No byte is part of two runs so, however many `/` there are.
    let in_path = start > 0 && text[start - 1] == b'/';
    let takes = |byte: u8| is_base64(byte) && !(in_path && byte == b'/');
    let mut end = start + text[start..].iter().take_while(|byte| takes(**byte)).count();
    let padding = text[end..].iter().take(2).take_while(|byte| **byte == b'=').count();
    end += padding;
    end
}

/// Where a run of base64 ends that may go on over lines of one length.
fn run_end(text: &[u8], start: usize) -> usize {
    let mut end = line_end(text, start);
    let length = end - start;
    while length >= LEAST_LINE_BYTES && text[end - 1] != b'=' {
        let blank = match text[end..] {
            [b'\n', ..] => 1,
            [b'\r', b'\n', ..] => 2,
            _ => break,
        };
        let next = end + blank;
        let next_end = line_end(text, next);
        if next_end == next || next_end - next > length {
            break;
        }
        end = next_end;
        if next_end - next < length {
            break;
        }
    }
    end
}

/// What a run stands for. Bits beyond the last whole byte are none.
fn decode(run: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(run.len() * 3 / 4);
    let (mut bits, mut count) = (0_u32, 0);
    for sextet in run.iter().map(|byte| SEXTETS[usize::from(*byte)]) {
        if sextet == NONE {
            continue;
        }
        bits = bits << 6 | u32::from(sextet);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count).to_le_bytes()[0]);
        }
    }
    out
}

/// Does a text end with the beginning of a `data:` URL: `data:`, a type and parameters?
fn ends_data_head(text: &[u8]) -> bool {
    let text = &text[text.len().saturating_sub(MAX_DATA_HEAD_BYTES)..];
    let is_type = |byte: &u8| byte.is_ascii_alphanumeric() || b"/;=.+-_!#$&^".contains(byte);
    let length = text.iter().rev().take_while(|byte| is_type(byte)).count();
    let before = &text[..text.len() - length];
    before.last_chunk().is_some_and(|scheme: &[u8; 5]| scheme.eq_ignore_ascii_case(b"data:"))
}
