//! The tokens of a JSON text that is known to be valid: no value is made, no byte is copied.

use std::ops::Range;

use serde::de::IgnoredAny;

/// What a walk through a JSON text meets. Numbers, `true`, `false` and `null` are passed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    OpenObject,
    OpenArray,
    Close,
    Comma,
    String(StringToken),
}

/// A string between its quotes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StringToken {
    pub at: Range<usize>,
    pub has_escapes: bool,
    /// Is it a member's name?
    pub is_name: bool,
}

/// The tokens of a text. Of one that is not JSON they are of no use, but do no harm.
#[derive(Debug)]
pub(super) struct Tokens<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Tokens<'a> {
    pub fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// The string whose opening quote was just passed.
    fn string(&mut self) -> StringToken {
        let start = self.at;
        let mut has_escapes = false;
        let mut from = start;
        let end = loop {
            let rest = self.text.get(from..).unwrap_or_default();
            match memchr::memchr2(b'"', b'\\', rest) {
                Some(found) if rest[found] == b'"' => break from + found,
                Some(found) => {
                    has_escapes = true;
                    from += found + 2;
                }
                None => break self.text.len(),
            }
        };
        self.at = (end + 1).min(self.text.len());
        let is_blank = |byte: &u8| matches!(byte, b' ' | b'\n' | b'\r' | b'\t');
        let next = self.text[self.at..].iter().find(|byte| !is_blank(byte));
        StringToken { at: start..end, has_escapes, is_name: next == Some(&b':') }
    }
}

impl Iterator for Tokens<'_> {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        loop {
            let byte = *self.text.get(self.at)?;
            self.at += 1;
            match byte {
                b'"' => return Some(Token::String(self.string())),
                b'{' => return Some(Token::OpenObject),
                b'[' => return Some(Token::OpenArray),
                b'}' | b']' => return Some(Token::Close),
                b',' => return Some(Token::Comma),
                _ => {}
            }
        }
    }
}

/// Is this whole text JSON that has strings in it?
pub(super) fn is_json(text: &[u8]) -> bool {
    let trimmed = text.trim_ascii();
    let encloses = matches!(trimmed, [b'{', .., b'}'] | [b'[', .., b']'] | [b'"', .., b'"']);
    encloses && serde_json::from_slice::<IgnoredAny>(trimmed).is_ok()
}
