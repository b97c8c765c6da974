//! Paths into a token's claims.

use std::{mem, str::FromStr};

use serde_json::{Map, Value};

/// Where a fact is in a token: names joined by dots, alternatives joined by `|`, each of `.`,
/// `|` and `\` inside a name escaped by `\`.
///
/// `realm_access.roles` (Keycloak), `sub|common_name` (Cloudflare Access),
/// `https://example\.com/tier` (Auth0).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimPath(Vec<Vec<String>>);

/// The text is no path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidClaimPath {
    #[error("a name in the path is empty")]
    EmptyName,
    #[error("`\\` stands before a character other than `.`, `|` and `\\`")]
    Escape,
}

impl FromStr for ClaimPath {
    type Err = InvalidClaimPath;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (mut alternatives, mut path, mut name) = (Vec::new(), Vec::new(), String::new());
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            match c {
                '.' => path.push(mem::take(&mut name)),
                '|' => {
                    path.push(mem::take(&mut name));
                    alternatives.push(mem::take(&mut path));
                }
                '\\' => {
                    let escaped = chars.next().filter(|c| matches!(c, '.' | '|' | '\\'));
                    name.push(escaped.ok_or(InvalidClaimPath::Escape)?);
                }
                other => name.push(other),
            }
        }
        path.push(name);
        alternatives.push(path);
        if alternatives.iter().flatten().any(String::is_empty) {
            return Err(InvalidClaimPath::EmptyName);
        }
        Ok(Self(alternatives))
    }
}

impl ClaimPath {
    /// The first alternative that is there. `null` is not there.
    pub(super) fn get<'a>(&self, claims: &'a Map<String, Value>) -> Option<&'a Value> {
        self.present(claims).next()
    }

    /// The first alternative that is there and is not the empty string.
    pub(super) fn get_non_empty<'a>(&self, claims: &'a Map<String, Value>) -> Option<&'a Value> {
        self.present(claims).find(|value| value.as_str() != Some(""))
    }

    fn present<'a>(&self, claims: &'a Map<String, Value>) -> impl Iterator<Item = &'a Value> {
        self.0.iter().filter_map(|path| walk(claims, path)).filter(|value| !value.is_null())
    }
}

fn walk<'a>(claims: &'a Map<String, Value>, path: &[String]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(claims.get(first)?, |value, name| value.as_object()?.get(name))
}
