//! What validation has found so far.

use std::collections::BTreeSet;

use super::error::ConfigError;

/// Collects errors, and keeps quiet about what follows from earlier ones.
#[derive(Default)]
pub(super) struct Findings {
    errors: Vec<ConfigError>,
    /// Keys whose value is a stand-in for one that could not be read.
    holes: BTreeSet<String>,
}

impl Findings {
    pub(super) fn new(errors: Vec<ConfigError>, holes: BTreeSet<String>) -> Self {
        Self { errors, holes }
    }

    /// Notes that `message` is wrong with `key`.
    pub(super) fn add(&mut self, key: impl Into<String>, message: impl Into<String>) {
        let key = key.into();
        if !self.in_hole(&key) {
            self.errors.push(ConfigError { key, place: None, message: message.into() });
        }
    }

    pub(super) fn require(
        &mut self,
        holds: bool,
        key: impl Into<String>,
        message: impl Into<String>,
    ) {
        if !holds {
            self.add(key, message);
        }
    }

    /// Is `key`, or something that it is part of, a stand-in?
    pub(super) fn in_hole(&self, key: &str) -> bool {
        self.holes.iter().any(|hole| is_within(key, hole))
    }

    /// Is `key`, with all that is part of it, what was written?
    pub(super) fn is_whole(&self, key: &str) -> bool {
        !self.in_hole(key) && !self.holes.iter().any(|hole| is_within(hole, key))
    }

    /// Is each of the `count` names in `list` what was written? Else what names one of them may
    /// be right.
    pub(super) fn knows_names(&self, list: &str, count: usize) -> bool {
        let holds = |i| !self.in_hole(&format!("{list}[{i}].name"));
        !self.in_hole(list) && (0..count).all(holds)
    }

    pub(super) fn into_errors(self) -> Vec<ConfigError> {
        self.errors
    }
}

fn is_within(key: &str, outer: &str) -> bool {
    key.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}
