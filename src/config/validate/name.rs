//! The shapes of names.

use std::collections::BTreeMap;

use super::shown;
use crate::config::findings::Findings;

/// A set of names' rule: how long, and which characters beside ASCII letters and digits.
pub(super) struct Shape {
    max_len: usize,
    others: &'static [u8],
    words: &'static str,
}

/// Providers and tiers: they become labels and log fields.
pub(super) const PLAIN: Shape =
    Shape { max_len: 64, others: b"_-.", words: "1 to 64 letters, digits, \"_\", \"-\" or \".\"" };

/// Models: as providers call them, `meta-llama/Llama-3.3-70B` or `gpt-oss:20b`. Never `*`.
pub(super) const MODEL: Shape = Shape {
    max_len: 128,
    others: b"_-.:/@+",
    words: "1 to 128 letters, digits or any of \"_-.:/@+\"",
};

/// Tools: what every client lets through (DESIGN §11).
pub(super) const TOOL: Shape =
    Shape { max_len: 64, others: b"_-", words: "1 to 64 letters, digits, \"_\" or \"-\"" };

impl Shape {
    pub(super) fn fits(&self, name: &str) -> bool {
        let is_allowed = |b: u8| b.is_ascii_alphanumeric() || self.others.contains(&b);
        (1..=self.max_len).contains(&name.len()) && name.bytes().all(is_allowed)
    }

    pub(super) fn check(&self, name: &str, key: String, found: &mut Findings) {
        let message = format!("{} is no name; use {}", shown(name), self.words);
        found.require(self.fits(name), key, message);
    }
}

/// Notes each of `names` that an earlier one equals; `key_of` gives the key of the nth.
pub(super) fn check_unique<'a>(
    names: impl Iterator<Item = &'a str>,
    key_of: impl Fn(usize) -> String,
    found: &mut Findings,
) {
    let mut first = BTreeMap::new();
    for (index, name) in names.enumerate() {
        // What could not be read stands here as "", as often as it is wrong.
        if found.in_hole(&key_of(index)) {
            continue;
        }
        match first.get(name) {
            Some(earlier) => {
                let message =
                    format!("{} is taken by {}; names are unique", shown(name), key_of(*earlier));
                found.add(key_of(index), message);
            }
            None => {
                first.insert(name, index);
            }
        }
    }
}
