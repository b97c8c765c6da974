//! A JSON object's members, in order, with their values raw.

use std::{borrow::Cow, collections::HashSet, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// The longest name that can look like one of ours.
const MAX_LOOK_ALIKE: usize = 64;

/// An object's members in order, names decoded, values raw.
pub(super) struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Members<'a> {
    pub(super) fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| *value)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A name that stands twice.
    pub(super) fn twice(&self) -> Option<&str> {
        let mut seen = HashSet::with_capacity(self.0.len());
        self.0.iter().map(|(name, _)| name.as_ref()).find(|name| !seen.insert(*name))
    }

    /// A name that is one of `read` but for its letters' case. (Go's JSON goes by Unicode's
    /// simple folding, in which `ſ` is an `s` too.)
    pub(super) fn look_alike(&self, read: &[&str]) -> Option<&str> {
        let fold = |name: &str| -> String {
            name.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
        };
        let is_plain = |name: &str| name.bytes().all(|b| b.is_ascii() && !b.is_ascii_uppercase());
        self.0.iter().map(|(name, _)| name.as_ref()).find(|name| {
            !is_plain(name) && name.len() <= MAX_LOOK_ALIKE && read.contains(&fold(name).as_str())
        })
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;

        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::with_capacity(16);
                while let Some((Name(name), value)) = map.next_entry()? {
                    members.push((name, value));
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(MembersVisitor)
    }
}

/// A member's name, borrowed where it has no escapes (`Cow` alone never borrows in a map).
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);
