//! The key that a provider knows us by: sent to it, and shown to nobody else.

use std::ops::Range;

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use memchr::memmem;
use secrecy::{ExposeSecret, SecretString};

use crate::{domain::search_unescaped, provider::sse::Event};

const HIDDEN: &[u8] = b"[REDACTED:provider-key]";
/// What is shorter is no secret but a word that is given to a server which wants no key, such as
/// `EMPTY`: it may stand in an answer.
const LEAST_SECRET_BYTES: usize = 16;
/// In a refusal, where nobody would miss the word, less will do.
const LEAST_BYTES: usize = 8;
/// What keys are masked with, and how many in a row are a mask.
const MASKS: [(char, usize); 7] =
    [('*', 3), ('.', 3), ('…', 1), ('•', 2), ('x', 4), ('X', 4), ('#', 4)];

pub(super) struct Key {
    secret: SecretString,
    /// `Bearer <key>`, marked sensitive.
    pub header: HeaderValue,
    finder: memmem::Finder<'static>,
    /// Has it characters that some servers write with escapes (`\/`, `\u002b`)?
    may_be_escaped: bool,
}

impl Key {
    /// # Errors
    /// A sentence on what is wrong with it, without it.
    pub fn new(secret: SecretString) -> Result<Self, String> {
        let text = secret.expose_secret();
        let mut header = HeaderValue::try_from(format!("Bearer {text}"))
            .map_err(|_| "api_key has characters that no header can carry")?;
        header.set_sensitive(true);
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let may_be_escaped = !text.bytes().all(is_plain);
        let finder = memmem::Finder::new(text.as_bytes()).into_owned();
        Ok(Self { secret, header, finder, may_be_escaped })
    }

    /// Takes the key out of a whole answer.
    pub fn hide_in_answer(&self, body: Bytes, status: StatusCode) -> Bytes {
        if !status.is_success() {
            let denied = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
            return self.hide_in_refusal(&body, denied).unwrap_or(body);
        }
        if self.is_in(&body) { self.hide_whole(&body) } else { body }
    }

    /// Takes the key out of a stream's event.
    pub fn hide_in_event(&self, event: &mut Event) {
        let hidden = if event.is_refusal() {
            self.hide_in_refusal(&event.data, false)
        } else {
            self.is_in(&event.data).then(|| self.hide_whole(&event.data))
        };
        if let Some(hidden) = hidden {
            event.set_data(hidden);
        }
    }

    /// Is the key in an answer's text?
    pub fn is_in(&self, text: &[u8]) -> bool {
        if self.finder.needle().len() < LEAST_SECRET_BYTES {
            return false;
        }
        self.finder.find(text).is_some()
            || (self.may_be_escaped
                && memchr::memchr(b'\\', text).is_some()
                && !search_unescaped(text, |text| self.whole(text)).is_empty())
    }

    fn hide_whole(&self, text: &[u8]) -> Bytes {
        replace(text, &search_unescaped(text, |text| self.whole(text)))
    }

    /// Providers like to quote a key back where they refuse it: whole, or with stars in its
    /// middle, of which even the visible ends are nobody's business. Where it was `denied`, every
    /// word with stars is taken for a key.
    fn hide_in_refusal(&self, body: &[u8], denied: bool) -> Option<Bytes> {
        let found = search_unescaped(body, |text| {
            let mut found = Vec::new();
            if self.finder.needle().len() >= LEAST_BYTES {
                found = self.whole(text);
                found.extend(self.masked(text, denied));
                found.sort_by_key(|(at, ())| at.start);
            }
            found
        });
        (!found.is_empty()).then(|| replace(body, &found))
    }

    fn whole(&self, text: &[u8]) -> Vec<(Range<usize>, ())> {
        let length = self.finder.needle().len();
        self.finder.find_iter(text).map(|start| (start..start + length, ())).collect()
    }

    fn masked(&self, text: &[u8], denied: bool) -> Vec<(Range<usize>, ())> {
        let Ok(text) = std::str::from_utf8(text) else { return Vec::new() };
        let is_word = |c: char| c.is_ascii_alphanumeric() || "*_-.#…•".contains(c);
        let words = text.split(|c| !is_word(c)).filter_map(|word| {
            // A sentence's end is no part of it, unless it is the mask.
            let ended = word.trim_end_matches('.');
            [ended, word].into_iter().find(|word| self.masks(word, denied))
        });
        let start = |word: &str| word.as_ptr() as usize - text.as_ptr() as usize;
        words.map(|word| (start(word)..start(word) + word.len(), ())).collect()
    }

    /// Is this word the key with its middle masked?
    fn masks(&self, word: &str, denied: bool) -> bool {
        if denied && word.len() > 6 && word.contains("***") {
            return true;
        }
        let key = self.secret.expose_secret();
        MASKS.iter().any(|(mask, least)| {
            let run: String = std::iter::repeat_n(*mask, *least).collect();
            let Some((head, _)) = word.split_once(&run) else { return false };
            let tail =
                word.rsplit_once(&run).map_or("", |(_, tail)| tail.trim_start_matches(*mask));
            (head.len() >= 2 && key.starts_with(head)) || (tail.len() >= 2 && key.ends_with(tail))
        })
    }
}

fn replace(text: &[u8], found: &[(Range<usize>, ())]) -> Bytes {
    let mut out = Vec::with_capacity(text.len());
    let mut from = 0;
    for (at, ()) in found {
        // One that lies within the one before it is gone already.
        if at.start >= from {
            out.extend_from_slice(&text[from..at.start]);
            out.extend_from_slice(HIDDEN);
        }
        from = from.max(at.end);
    }
    out.extend_from_slice(&text[from..]);
    Bytes::from(out)
}
