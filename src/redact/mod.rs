//! Secrets taken out of what leaves.
//!
//! | module | what |
//! | --- | --- |
//! | [`rule`] | the formats of secrets, as data |
//! | `fragment` | what several of them have in common |
//! | [`engine`] | the rules, compiled |
//! | `family` | rules that can match at the same place |
//! | `prefix` | where a secret may begin |
//! | `filter` | what skips to the next of these places |
//! | `scan` | the machine that finds secrets in a text, wherever it is cut |
//! | `candidate` | a place where a secret may begin |
//! | `trail` | what it need not look at twice |
//! | [`window`] | redaction of a text that comes in pieces |
//! | `context` | secrets that are known by the name that they are assigned to |
//! | `value` | what of that is no secret |
//! | `check` | what tells a secret from what looks like one |
//! | [`placeholder`] | what stands in a secret's place |
//! | `request` | whole bodies: what is redacted or refused |
//! | `search` | secrets in JSON, string by string |
//! | [`view`] | what a text stands for: base64, percent-encoding and the like |
//! | `named` | values that their names make secrets |
//! | `json`, `path` | the tokens of JSON, and the way to one |
//! | `info` | what a person is told of a rule |
//! | `key_file` | where the placeholders' key comes from |
//! | `setup` | from `[redaction]` to the rules: own ones, and in `allow` what passes |
//! | `live` | the redactor of now, for all that is written down or told outside of a call |
//! | `tally` | how many secrets were taken out since the start |

mod allow;
mod candidate;
mod check;
mod context;
pub mod engine;
mod family;
mod filter;
mod fragment;
mod info;
mod json;
mod key_file;
mod live;
mod named;
mod path;
pub mod placeholder;
mod prefix;
mod request;
pub mod rule;
mod scan;
mod search;
mod setup;
mod tally;
mod trail;
mod unseen;
mod value;
pub mod view;
pub mod window;

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

pub use candidate::MAX_CANDIDATE_BYTES;
pub use engine::{Depth, Engine, Hit, RuleId};
pub use info::RuleInfo;
pub use key_file::{KeptKey, KeySource, KeySourceError};
pub use live::LiveRedactor;
pub use placeholder::{KeyError, PlaceholderKey};
pub use request::RedactError;
pub use rule::{ContextRule, Need, Rule, RuleError, RuleSet};
pub use setup::{SetupErrors, rule_faults};
pub use tally::{Direction, Tally};
pub use window::{Fed, Window};

use crate::config::{RedactionConfig, RequestRedaction};

/// Finds secrets and puts `[REDACTED:rule:hmac8]` in their place.
#[derive(Debug)]
pub struct Redactor {
    engine: Arc<Engine>,
    key: PlaceholderKey,
    mode: RequestRedaction,
}

/// A redactor could not be built.
#[derive(Debug, thiserror::Error)]
pub enum RedactorError {
    #[error(transparent)]
    Rules(#[from] RuleError),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Setup(#[from] SetupErrors),
}

/// How many secrets each rule found.
pub type Counts = BTreeMap<Arc<str>, u32>;

impl Redactor {
    /// With a key of its own: its placeholders can be matched for as long as it lives.
    ///
    /// # Errors
    /// See [`RedactorError`].
    pub fn new(config: &RedactionConfig) -> Result<Self, RedactorError> {
        Self::with_key(config, PlaceholderKey::random()?)
    }

    /// With the key that the deployment keeps, see [`KeySource`]. Compiling the rules takes long
    /// for an async thread where `config` has rules of its own.
    ///
    /// # Errors
    /// See [`RedactorError`].
    pub fn with_key(config: &RedactionConfig, key: PlaceholderKey) -> Result<Self, RedactorError> {
        Ok(Self::from_parts(setup::engine(config, &key)?, key, config.requests))
    }

    #[must_use]
    pub const fn from_parts(
        engine: Arc<Engine>,
        key: PlaceholderKey,
        mode: RequestRedaction,
    ) -> Self {
        Self { engine, key, mode }
    }

    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// What stands in the place of a secret: equal secrets have equal ones.
    #[must_use]
    pub fn placeholder(&self, rule: RuleId, secret: &[u8]) -> String {
        self.key.placeholder(self.engine.name(rule), secret)
    }

    /// The placeholder of a secret that counts.
    fn count(&self, rule: RuleId, secret: &[u8], counts: &mut Counts) -> String {
        *counts.entry(Arc::clone(self.engine.name(rule))).or_default() += 1;
        self.placeholder(rule, secret)
    }

    /// The text without its secrets.
    #[must_use]
    pub fn redact_text<'a>(
        &self,
        text: &'a str,
        depth: Depth,
        counts: &mut Counts,
    ) -> Cow<'a, str> {
        let hits = self.engine.find(text.as_bytes(), depth);
        if hits.is_empty() {
            return Cow::Borrowed(text);
        }
        let (mut out, mut from) = (String::with_capacity(text.len()), 0);
        for Hit { at, rule } in hits {
            out.push_str(&text[from..at.start]);
            out.push_str(&self.count(rule, &text.as_bytes()[at.clone()], counts));
            from = at.end;
        }
        out.push_str(&text[from..]);
        Cow::Owned(out)
    }
}
