//! Tokens that are refused though they verify.

use std::collections::HashSet;

use crate::config::DenyConfig;

/// What a token can be denied by.
#[derive(Debug)]
pub(super) struct TokenIds {
    pub jti: Option<String>,
    /// `sub` as the token has it, which need not be what the subject is mapped from.
    pub sub: Option<String>,
    pub kid: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct DenyList {
    jti: HashSet<String>,
    sub: HashSet<String>,
    kid: HashSet<String>,
}

impl DenyList {
    pub(super) fn new(config: &DenyConfig) -> Self {
        let set = |names: &[String]| names.iter().cloned().collect();
        Self { jti: set(&config.jti), sub: set(&config.sub), kid: set(&config.kid) }
    }

    pub(super) fn denies(&self, ids: &TokenIds, subject: &str) -> bool {
        let holds = |set: &HashSet<String>, id: &Option<String>| {
            id.as_ref().is_some_and(|id| set.contains(id))
        };
        holds(&self.jti, &ids.jti)
            || holds(&self.sub, &ids.sub)
            || self.sub.contains(subject)
            || holds(&self.kid, &ids.kid)
    }
}
