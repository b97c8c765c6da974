//! Secrets in a whole JSON text, string by string, and where they stand in its bytes.

use std::{borrow::Cow, ops::Range};

use super::{
    Depth, Hit, Redactor, RuleId,
    json::{Token, Tokens, is_json},
    view::Views,
};
use crate::domain::{Escapes, MAX_LAYERS, apart, search_layers, trace_back, unescape};

/// A secret that was found: its rule, and what stands in its place.
#[derive(Debug)]
pub(super) struct Secret {
    pub rule: RuleId,
    pub placeholder: String,
}

/// Secrets where they stand in a text.
pub(super) type Found = Vec<(Range<usize>, Secret)>;

/// Names that give a name to the `value` beside them, as in `{"name": "PASSWORD", "value": "…"}`.
const NAMING: [&[u8]; 2] = [b"name", b"key"];
const NAMED: &[u8] = b"value";

/// The secrets of a whole text, in order and apart: of each string if it is JSON, else of all.
pub(super) fn search(redactor: &Redactor, text: &[u8], depth: Depth) -> Found {
    let mut search = Search { redactor, depth, spare: Vec::new() };
    let found = if is_json(text) { search.json(text, 0) } else { search.text(text, None, 0) };
    whole_characters(text, found)
}

/// The secrets of a text that is known to be JSON.
pub(super) fn search_json(redactor: &Redactor, text: &[u8], depth: Depth) -> Found {
    let found = Search { redactor, depth, spare: Vec::new() }.json(text, 0);
    whole_characters(text, found)
}

/// What is found is bytes: no half of a character may be left.
fn whole_characters(text: &[u8], mut found: Found) -> Found {
    let is_inside = |at: usize| text.get(at).is_some_and(|byte| *byte & 0xC0 == 0x80);
    for (at, _) in &mut found {
        while is_inside(at.start) {
            at.start -= 1;
        }
        while is_inside(at.end) {
            at.end += 1;
        }
    }
    apart(found)
}

fn shifted(found: Found, by: usize) -> impl Iterator<Item = (Range<usize>, Secret)> {
    found.into_iter().map(move |(at, what)| (at.start + by..at.end + by, what))
}

struct Search<'a> {
    redactor: &'a Redactor,
    depth: Depth,
    /// Room for strings without their escapes, used again and again.
    spare: Vec<Vec<u8>>,
}

impl Search<'_> {
    /// Of JSON, string by string: a secret ends where its string does.
    fn json(&mut self, text: &[u8], layer: usize) -> Found {
        let mut found = Found::new();
        // A member's name is context for its value, and for those of an array under it.
        let (mut name, mut naming): (Option<Range<usize>>, Option<Range<usize>>) = (None, None);
        for token in Tokens::new(text) {
            let string = match token {
                Token::String(string) => string,
                Token::OpenObject | Token::Close => {
                    (name, naming) = (None, None);
                    continue;
                }
                Token::OpenArray | Token::Comma => continue,
            };
            let raw = &text[string.at.clone()];
            let context = name.clone().filter(|_| !string.is_name).map(|at| &text[at]);
            if string.is_name {
                name = Some(string.at.clone());
            } else if context.is_some_and(|name| NAMING.contains(&name)) {
                naming = Some(string.at.clone());
            }
            let context = match (&naming, context) {
                (Some(naming), Some(NAMED)) => Some(&text[naming.clone()]),
                (_, context) => context,
            };
            let hits = self.string(raw, string.has_escapes, context, layer);
            found.extend(shifted(hits, string.at.start));
        }
        found
    }

    /// Of a string between its quotes.
    fn string(
        &mut self,
        raw: &[u8],
        has_escapes: bool,
        name: Option<&[u8]>,
        layer: usize,
    ) -> Found {
        if !has_escapes {
            return self.text(raw, name, layer);
        }
        let mut decoded = self.spare.pop().unwrap_or_default();
        decoded.clear();
        // False for what is no escape of JSON, which JSON has not.
        if !unescape(raw, Escapes::Json, &mut decoded) {
            decoded.extend_from_slice(raw);
        }
        let mut found = self.text(&decoded, name, layer);
        trace_back(raw, Escapes::Json, &mut found);
        self.spare.push(decoded);
        found
    }

    /// Of a text as it reads.
    fn text(&mut self, text: &[u8], name: Option<&[u8]>, layer: usize) -> Found {
        if self.depth == Depth::Formats {
            return self.plain(text, Depth::Formats);
        }
        if self.redactor.engine().is_short(text) {
            // No view of it is longer. Its name may still make it a secret.
            return name.map_or_else(Found::new, |name| self.named(name, text));
        }
        if layer < MAX_LAYERS && is_json(text) {
            return self.json(text, layer + 1);
        }
        if Views::is_data(text) {
            return self.base64(text);
        }
        if let Some(parts) = self.redactor.engine().views.beside_data(text) {
            let hits = |part: Range<usize>| shifted(self.layers(&text[part.clone()]), part.start);
            return parts.into_iter().flat_map(hits).collect();
        }
        let found = self.layers(text);
        match name {
            // What has a format of its own has the better name.
            Some(name) if found.is_empty() => self.named(name, text),
            _ => found,
        }
    }

    fn layers(&self, text: &[u8]) -> Found {
        search_layers(text, Escapes::Any, |text| self.views(text))
    }

    /// A layer of a text in all views.
    fn views(&self, text: &[u8]) -> Found {
        let mut found = self.plain(text, self.depth);
        found.extend(self.base64(text));
        found
    }

    /// What stands in a text as base64.
    fn base64(&self, text: &[u8]) -> Found {
        let engine = self.redactor.engine();
        engine.views.search_base64(text, |decoded| {
            let Hit { at, rule } = engine.find(decoded, Depth::Formats).into_iter().next()?;
            Some(self.secret(rule, &decoded[at]))
        })
    }

    /// Of a value that its name may make a secret: `{"password": "…"}`.
    fn named(&self, name: &[u8], value: &[u8]) -> Found {
        let name = if name.contains(&b'\\') {
            let mut decoded = Vec::new();
            unescape(name, Escapes::Json, &mut decoded);
            Cow::Owned(decoded)
        } else {
            Cow::Borrowed(name)
        };
        let hits = self.redactor.engine().find_named(&name, value).into_iter();
        hits.map(|Hit { at, rule }| (at.clone(), self.secret(rule, &value[at]))).collect()
    }

    fn plain(&self, text: &[u8], depth: Depth) -> Found {
        let hits = self.redactor.engine().find(text, depth).into_iter();
        hits.map(|Hit { at, rule }| (at.clone(), self.secret(rule, &text[at]))).collect()
    }

    fn secret(&self, rule: RuleId, secret: &[u8]) -> Secret {
        Secret { rule, placeholder: self.redactor.placeholder(rule, secret) }
    }
}
