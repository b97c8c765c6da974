//! Secrets taken out of what leaves.
//!
//! What is here: keys and tokens with a fixed prefix, in requests. They are found in the text that
//! the body's escapes stand for, also in JSON within JSON strings, and replaced in the body's own
//! bytes. Answers, streams and contextual rules come with the redaction issue.

mod rule;

use std::{collections::BTreeMap, fmt, ops::Range};

use aho_corasick::{AhoCorasick, AhoCorasickKind, BuildError, MatchKind};
use aws_lc_rs::{hmac, rand};
use bytes::Bytes;

pub use rule::{RULES, Rule};

use crate::{
    config::{RedactionConfig, RequestRedaction},
    domain::{BodyError, Denial, Kind, ModelCall, search_unescaped},
};

/// Finds secrets and puts `[REDACTED:rule:hmac8]` in their place.
pub struct Redactor {
    prefixes: AhoCorasick,
    mode: RequestRedaction,
    /// Made at start: placeholders can be matched within a run of the gateway, never guessed.
    key: hmac::Key,
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor").field("mode", &self.mode).finish_non_exhaustive()
    }
}

/// A redactor could not be built.
#[derive(Debug, thiserror::Error)]
pub enum RedactorError {
    #[error("the redaction rules do not compile: {0}")]
    Rules(#[from] BuildError),
    #[error("no random key for the placeholders could be made")]
    Key,
}

/// How many secrets each rule found.
pub type Counts = BTreeMap<&'static str, u32>;

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

/// A secret: whose format it has, and what stands in its place.
struct Hit {
    rule: &'static Rule,
    placeholder: String,
}

impl Redactor {
    /// # Errors
    /// See [`RedactorError`].
    pub fn new(config: &RedactionConfig) -> Result<Self, RedactorError> {
        let prefixes = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .kind(Some(AhoCorasickKind::DFA))
            .build(RULES.iter().map(|rule| rule.prefix))?;
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &rand::SystemRandom::new())
            .map_err(|_| RedactorError::Key)?;
        Ok(Self { prefixes, mode: config.requests, key })
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
        for (_, hit) in &hits {
            *counts.entry(hit.rule.name).or_default() += 1;
        }
        if self.mode == RequestRedaction::Block {
            let names: Vec<_> = counts.keys().copied().collect();
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

    fn find(&self, text: &[u8]) -> Vec<(Range<usize>, Hit)> {
        let mut hits: Vec<(Range<usize>, Hit)> = Vec::new();
        for found in self.prefixes.find_iter(text) {
            let rule = &RULES[found.pattern().as_usize()];
            let overlaps = hits.last().is_some_and(|(last, _)| found.start() < last.end);
            let inside_a_word =
                found.start() > 0 && text[found.start() - 1].is_ascii_alphanumeric();
            if overlaps || inside_a_word {
                continue;
            }
            let tail = text[found.end()..].iter().take_while(|byte| rule.takes(**byte)).count();
            if tail >= rule.least {
                let start = if rule.keeps_prefix { found.end() } else { found.start() };
                let at = start..found.end() + tail;
                let placeholder = self.placeholder(rule, &text[at.clone()]);
                hits.push((at, Hit { rule, placeholder }));
            }
        }
        hits
    }

    fn placeholder(&self, rule: &Rule, secret: &[u8]) -> String {
        let tag = hmac::sign(&self.key, secret);
        let tag = tag.as_ref();
        format!("[REDACTED:{}:{:02x}{:02x}{:02x}{:02x}]", rule.name, tag[0], tag[1], tag[2], tag[3])
    }
}

fn replace(body: &[u8], hits: &[(Range<usize>, Hit)]) -> Bytes {
    let mut out = Vec::with_capacity(body.len());
    let mut from = 0;
    for (at, hit) in hits {
        out.extend_from_slice(&body[from..at.start]);
        out.extend_from_slice(hit.placeholder.as_bytes());
        from = at.end;
    }
    out.extend_from_slice(&body[from..]);
    Bytes::from(out)
}
