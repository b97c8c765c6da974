//! Capabilities: names from a controlled vocabulary, and sets of them.

use std::{collections::BTreeSet, fmt, sync::Arc};

/// The name of something a caller was hired to do, such as `model:reasoning`.
///
/// Either a word of the [`Vocabulary`] or a parameterised `budget:` one. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Capability(Arc<str>);

impl Capability {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The capability names that exist (DESIGN §6).
#[derive(Debug, Clone, Default)]
pub struct Vocabulary(BTreeSet<Arc<str>>);

impl Vocabulary {
    #[must_use]
    pub fn new<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Self {
        Self(names.into_iter().map(|name| Arc::from(name.as_ref())).collect())
    }

    /// The capability of this name, or `None` if there is no such word.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Capability> {
        if let Some(known) = self.0.get(name) {
            return Some(Capability(Arc::clone(known)));
        }
        is_budget(name).then(|| Capability(Arc::from(name)))
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(AsRef::as_ref)
    }
}

/// `budget:{tokens,usd}-per-{minute,hour,day,month}:N`; N may have underscores.
fn is_budget(name: &str) -> bool {
    let Some((window, amount)) = name.strip_prefix("budget:").and_then(|rest| rest.split_once(':'))
    else {
        return false;
    };
    let windows =
        ["tokens-per-minute", "tokens-per-hour", "tokens-per-day", "usd-per-day", "usd-per-month"];
    windows.contains(&window)
        && amount.starts_with(|c: char| c.is_ascii_digit())
        && amount.bytes().all(|b| b.is_ascii_digit() || b == b'_' || b == b'.')
        && amount.len() <= 32
}

/// A set of capabilities. Empty admits to nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CapabilitySet(BTreeSet<Capability>);

impl CapabilitySet {
    /// Does any capability stand in both sets?
    #[must_use]
    pub fn intersects(&self, other: &Self) -> bool {
        let (small, large) =
            if self.0.len() <= other.0.len() { (self, other) } else { (other, self) };
        small.0.iter().any(|capability| large.0.contains(capability))
    }

    /// The first one that stands in both sets.
    #[must_use]
    pub fn first_common(&self, other: &Self) -> Option<&Capability> {
        self.0.iter().find(|capability| other.0.contains(*capability))
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Capability> {
        self.0.iter()
    }
}

impl FromIterator<Capability> for CapabilitySet {
    fn from_iter<I: IntoIterator<Item = Capability>>(capabilities: I) -> Self {
        Self(capabilities.into_iter().collect())
    }
}

/// The names, separated by spaces.
impl fmt::Display for CapabilitySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, capability) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(" ")?;
            }
            write!(f, "{capability}")?;
        }
        Ok(())
    }
}
