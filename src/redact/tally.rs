//! How many secrets were taken out since the start.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use super::Counts;

/// Rules that are counted by their names. There are fewer at a time; reloads may bring others.
const MAX_NAMES: usize = 1_024;
/// What the secrets of further rules are counted as. No rule's name has a `_`.
const OTHER: &str = "other_rules";

/// On which way a secret was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// From the caller to the provider.
    Request,
    /// From the provider to the caller.
    Response,
}

impl Direction {
    /// The metric's label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Response => "response",
        }
    }
}

/// Counts by rule and direction, over all configurations of this process.
#[derive(Debug, Default)]
pub struct Tally(Mutex<BTreeMap<(Arc<str>, Direction), u64>>);

impl Tally {
    /// Adds what one call's redaction found. Free where it found nothing.
    pub fn add(&self, direction: Direction, counts: &Counts) {
        if counts.is_empty() {
            return;
        }
        let mut tally = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (rule, count) in counts {
            let mut key = (Arc::clone(rule), direction);
            if tally.len() >= MAX_NAMES && !tally.contains_key(&key) {
                key.0 = OTHER.into();
            }
            *tally.entry(key).or_default() += u64::from(*count);
        }
    }

    /// Each count so far, by the rule's name.
    #[must_use]
    pub fn counts(&self) -> Vec<(Arc<str>, Direction, u64)> {
        let tally = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tally.iter().map(|((rule, way), count)| (Arc::clone(rule), *way, *count)).collect()
    }
}
