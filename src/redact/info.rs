//! What a person is told of a rule.

use std::sync::Arc;

use super::RuleSet;

/// A rule, as far as it is of use to whoever reads a placeholder.
#[derive(Debug, Clone)]
pub struct RuleInfo {
    pub name: Arc<str>,
    /// 1: a known format. 2: what its context says is secret.
    pub tier: u8,
    /// What a secret of the format begins with, or the names that it is assigned to.
    pub signs: Vec<String>,
    /// The public document that describes the format; empty where there is none.
    pub source: String,
}

impl RuleInfo {
    /// Of each rule, in the order of their ids.
    pub(super) fn of(set: &RuleSet) -> Vec<Self> {
        let formats = set.rules().iter().map(|rule| Self {
            name: Arc::clone(&rule.name),
            tier: 1,
            signs: rule.prefixes.clone(),
            source: rule.source.clone(),
        });
        let contexts = set.contexts().iter().map(|context| Self {
            name: Arc::clone(&context.name),
            tier: 2,
            signs: context.names.clone(),
            source: String::new(),
        });
        formats.chain(contexts).collect()
    }
}
