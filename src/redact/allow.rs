//! Secrets that may pass a rule: `[redaction.allow]`.

use std::{collections::HashMap, fmt};

use super::PlaceholderKey;

/// The digits of a placeholder that tell its secret from others.
const TAG_DIGITS: usize = 8;

/// A secret that may pass.
pub(super) enum Allowed {
    Secret(String),
    /// By the `hmac8` of its placeholder: who lets it pass need not have it.
    Tag(String),
}

impl Allowed {
    /// Eight hexadecimal digits are a tag.
    pub fn parse(text: &str) -> Self {
        let is_tag = text.len() == TAG_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_tag { Self::Tag(text.to_ascii_lowercase()) } else { Self::Secret(text.to_owned()) }
    }
}

/// What may pass which rule, by the rule's name.
#[derive(Default)]
pub(super) struct AllowList {
    rules: HashMap<String, Vec<Allowed>>,
    /// `None` where nothing is allowed.
    key: Option<PlaceholderKey>,
}

/// What may pass is a secret all the same.
impl fmt::Debug for AllowList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllowList").field("rules", &self.rules.len()).finish_non_exhaustive()
    }
}

impl AllowList {
    pub fn new<'a>(allowed: impl Iterator<Item = (&'a str, Allowed)>, key: PlaceholderKey) -> Self {
        let mut rules = HashMap::<String, Vec<Allowed>>::new();
        for (rule, allowed) in allowed {
            rules.entry(rule.to_owned()).or_default().push(allowed);
        }
        Self { rules, key: Some(key) }
    }

    /// May this pass the rule? `secret` is without the characters that are not seen.
    pub fn has(&self, rule: &str, secret: &[u8]) -> bool {
        let (Some(list), Some(key)) = (self.rules.get(rule), &self.key) else { return false };
        list.iter().any(|allowed| match allowed {
            Allowed::Secret(text) => text.as_bytes() == secret,
            Allowed::Tag(tag) => *tag == key.tag(secret),
        })
    }
}
