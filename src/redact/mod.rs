//! Secrets taken out of what leaves.
//!
//! | module | what |
//! | --- | --- |
//! | [`rule`] | the formats of secrets, as data |
//! | [`engine`] | the rules, compiled |
//! | `prefix` | where a secret may begin |
//! | `scan` | the machine that finds secrets in a text, wherever it is cut |
//! | [`window`] | redaction of a text that comes in pieces |
//! | `check` | what tells a secret from what looks like one |
//! | [`placeholder`] | what stands in a secret's place |
//!
//! In requests secrets are found in the text that the body's escapes stand for, also in JSON within
//! JSON strings, and replaced in the body's own bytes.

mod check;
pub mod engine;
pub mod placeholder;
mod prefix;
pub mod rule;
mod scan;
pub mod window;

use std::{borrow::Cow, collections::BTreeMap, ops::Range, sync::Arc};

use bytes::Bytes;

pub use engine::{Depth, Engine, Hit, RuleId};
pub use placeholder::{KeyError, PlaceholderKey};
pub use rule::{ContextRule, Need, Rule, RuleError, RuleSet};
pub use scan::MAX_CANDIDATE_BYTES;
pub use window::{Fed, Window};

use crate::{
    config::{RedactionConfig, RequestRedaction},
    domain::{BodyError, Denial, Kind, ModelCall, search_unescaped},
};

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
}

/// How many secrets each rule found.
pub type Counts = BTreeMap<Arc<str>, u32>;

/// A redacted call must still be a call.
#[derive(Debug, thiserror::Error)]
pub enum RedactError {
    #[error("{}", .denial.message)]
    Blocked { denial: Denial, counts: Counts },
    #[error("redaction left no valid request: {source}")]
    Broken { source: BodyError, counts: Counts },
}

impl RedactError {
    /// How many secrets each rule found before it came to this.
    #[must_use]
    pub const fn counts(&self) -> &Counts {
        match self {
            Self::Blocked { counts, .. } | Self::Broken { counts, .. } => counts,
        }
    }

    #[must_use]
    pub fn to_denial(&self) -> Denial {
        match self {
            Self::Blocked { denial, .. } => denial.clone(),
            Self::Broken { .. } => Denial::new(
                Kind::Internal,
                "The request could not be redacted, so it was not sent.",
            ),
        }
    }
}

impl Redactor {
    /// With the built-in rules and a key of its own.
    ///
    /// # Errors
    /// See [`RedactorError`].
    pub fn new(config: &RedactionConfig) -> Result<Self, RedactorError> {
        Ok(Self::from_parts(Engine::built_in()?, PlaceholderKey::random()?, config.requests))
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

    /// The call without its secrets. A call that has none is handed back as it was.
    ///
    /// # Errors
    /// In `block` mode a request with a secret; and a call that redaction broke.
    pub fn redact_call(&self, call: ModelCall) -> Result<(ModelCall, Counts), RedactError> {
        let hits = search_unescaped(call.body(), |text| self.find(text));
        if hits.is_empty() {
            return Ok((call, Counts::new()));
        }
        let mut counts = Counts::new();
        for (_, (rule, _)) in &hits {
            *counts.entry(Arc::clone(self.engine.name(*rule))).or_default() += 1;
        }
        if self.mode == RequestRedaction::Block {
            let names: Vec<&str> = counts.keys().map(|name| &**name).collect();
            let message =
                format!("The request holds secrets ({}); take them out.", names.join(", "));
            let denial = Denial::new(Kind::SecretInRequest, message);
            return Err(RedactError::Blocked { denial, counts });
        }
        match ModelCall::parse(replace(call.body(), &hits)) {
            Ok(call) => Ok((call, counts)),
            Err(source) => Err(RedactError::Broken { source, counts }),
        }
    }

    fn find(&self, text: &[u8]) -> Vec<(Range<usize>, Replaced)> {
        let with_placeholder = |Hit { at, rule }| {
            let placeholder = self.placeholder(rule, &text[at.clone()]);
            (at, (rule, placeholder))
        };
        self.engine.find(text, Depth::Formats).into_iter().map(with_placeholder).collect()
    }
}

/// The rule that a secret has the format of, and what stands in its place.
type Replaced = (RuleId, String);

fn replace(body: &[u8], hits: &[(Range<usize>, Replaced)]) -> Bytes {
    let mut out = Vec::with_capacity(body.len());
    let mut from = 0;
    for (at, (_, placeholder)) in hits {
        out.extend_from_slice(&body[from..at.start]);
        out.extend_from_slice(placeholder.as_bytes());
        from = at.end;
    }
    out.extend_from_slice(&body[from..]);
    Bytes::from(out)
}
