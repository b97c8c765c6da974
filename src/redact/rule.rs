//! The rules as data: the built-in ones, from `rules.toml`, and own ones from the configuration.

use std::{fmt, sync::Arc};

use serde::Deserialize;

use super::fragment::{Fragments, expand};

/// Own rules are compiled while a request may wait for a reload, and share one automaton.
pub const MAX_OWN_RULES: usize = 64;
/// Longer than any format that is known; what is longer is most likely no format.
pub const MAX_PATTERN_BYTES: usize = 1024;
/// What may be held back of a stream while nothing is known yet.
pub const MAX_PREFIX_BYTES: usize = 40;
/// One character begins too many words: each is a candidate that costs time.
pub const MIN_PREFIX_BYTES: usize = 2;
/// Other spellings of one prefix, not a dictionary.
pub const MAX_PREFIXES: usize = 32;
/// A rule's name is part of each placeholder.
pub const MAX_NAME_BYTES: usize = 48;
/// Each is compared with what was found, one after the other.
pub const MAX_ALLOWED: usize = 64;

const BUILT_IN: &str = include_str!("rules.toml");

/// A format of tier 1: what begins with a known prefix.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// `[a-z0-9-]{1,48}`, unique; placeholders, counts and metrics show it.
    pub name: Arc<str>,
    /// Each match begins with one of these: 2 to 40 bytes of visible ASCII or blanks.
    pub prefixes: Vec<String>,
    /// A regular expression of bytes and ASCII classes, anchored where the prefix begins. If it
    /// has a group `(?<secret>…)`, only that is the secret. In a file `{{name}}` stands for a
    /// fragment.
    pub pattern: String,
    /// The longest secret in bytes. None: there is none.
    #[serde(default)]
    pub max: Option<usize>,
    /// Must the prefix begin a word? No byte of `[A-Za-z0-9_]` may stand before it then.
    #[serde(default = "yes")]
    pub boundary: bool,
    /// What the secret must have beside its shape.
    #[serde(default)]
    pub needs: Vec<Need>,
    /// The least entropy of the secret, in bits a byte.
    #[serde(default)]
    pub entropy: Option<f64>,
    /// These secrets pass.
    #[serde(default)]
    pub allow: Vec<String>,
    /// The public document that describes the format.
    #[serde(default)]
    pub source: String,
}

/// Nobody should log what may be secret: `allow` is left out.
impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule")
            .field("name", &self.name)
            .field("prefixes", &self.prefixes)
            .field("pattern", &self.pattern)
            .finish_non_exhaustive()
    }
}

const fn yes() -> bool {
    true
}

/// What a secret must have beside its shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    /// A digit.
    Digit,
    /// A letter.
    Letter,
    /// Characters of two kinds at least, of capitals, small letters and digits.
    Mixed,
    /// No word of the shared list, in whatever case.
    NoStopWord,
    /// None of the shared list of what stands for a password, in whatever case.
    NoSample,
}

/// A rule of tier 2: a value that is assigned to one of these names.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContextRule {
    pub name: Arc<str>,
    /// In lower case; `_` stands for `_`, `-` or nothing. A longer name that ends with one counts.
    pub names: Vec<String>,
    /// The shortest and the longest value, in bytes.
    pub min: usize,
    pub max: usize,
    /// The least entropy of the value, in bits a byte.
    pub entropy: f64,
}

/// Rules that can be compiled.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleSet {
    /// Only until the patterns are written out.
    #[serde(default)]
    fragments: Fragments,
    #[serde(default)]
    pub(super) stop_words: Vec<String>,
    #[serde(default)]
    pub(super) samples: Vec<String>,
    #[serde(default, rename = "rule")]
    pub(super) rules: Vec<Rule>,
    #[serde(default, rename = "context")]
    pub(super) contexts: Vec<ContextRule>,
    /// How many of `rules`, the last ones, are own ones.
    #[serde(skip)]
    pub(super) own: usize,
}

/// A rule is refused.
#[derive(Debug, thiserror::Error)]
pub enum RuleError {
    #[error("the rules can't be read: {0}")]
    File(#[from] toml::de::Error),
    #[error("rule `{name}`: {reason}")]
    Rule { name: String, reason: String },
    #[error("there are {0} own rules, and {MAX_OWN_RULES} is the most")]
    TooMany(usize),
    #[error("the rules together need too large an automaton: {0}")]
    TooLarge(String),
}

impl RuleError {
    pub(super) fn of(name: &str, reason: impl fmt::Display) -> Self {
        // A name that is not one might be anything.
        let name = name.chars().take(MAX_NAME_BYTES).collect();
        Self::Rule { name, reason: reason.to_string() }
    }
}

impl RuleSet {
    /// The rules that everyone has.
    ///
    /// # Errors
    /// None, as a test holds.
    pub fn built_in() -> Result<Self, RuleError> {
        Self::parse(BUILT_IN)
    }

    /// The built-in rules and these. Of equally long matches a built-in one wins.
    ///
    /// # Errors
    /// The rule at fault, and why.
    pub fn with_own(own: Vec<Rule>) -> Result<Self, RuleError> {
        if own.len() > MAX_OWN_RULES {
            return Err(RuleError::TooMany(own.len()));
        }
        let mut set = Self::built_in()?;
        set.own = own.len();
        set.rules.extend(own);
        set.check()?;
        Ok(set)
    }

    /// Rules from a text like `rules.toml`.
    ///
    /// # Errors
    /// What can't be read, or the rule at fault, and why.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        let mut set: Self = toml::from_str(text)?;
        let fragments = std::mem::take(&mut set.fragments);
        for rule in &mut set.rules {
            rule.pattern = expand(&rule.name, &rule.pattern, &fragments)?;
        }
        set.check()?;
        Ok(set)
    }

    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    #[must_use]
    pub fn contexts(&self) -> &[ContextRule] {
        &self.contexts
    }

    /// Of all rules, of both tiers.
    pub(super) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        let contexts = self.contexts.iter().map(|context| &context.name);
        self.rules.iter().map(|rule| &rule.name).chain(contexts)
    }

    fn check(&self) -> Result<(), RuleError> {
        let mut names = std::collections::BTreeSet::new();
        let contexts = self.contexts.iter().map(|context| (&context.name, context.fault()));
        let rules = self.rules.iter().map(|rule| (&rule.name, rule.fault()));
        for (name, fault) in rules.chain(contexts) {
            if let Some(fault) = name_fault(name).or(fault) {
                return Err(RuleError::of(name, fault));
            }
            if !names.insert(name) {
                return Err(RuleError::of(name, "another rule has this name"));
            }
        }
        Ok(())
    }
}

fn name_fault(name: &str) -> Option<String> {
    let valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let fits = (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(valid);
    (!fits).then(|| format!("a name has 1 to {MAX_NAME_BYTES} characters of a-z, 0-9 and `-`"))
}

impl Rule {
    /// # Errors
    /// Why this can be no rule, as far as one sees without compiling it.
    pub(super) fn check(&self) -> Result<(), RuleError> {
        let fault = name_fault(&self.name).or_else(|| self.fault());
        fault.map_or(Ok(()), |fault| Err(RuleError::of(&self.name, fault)))
    }

    /// Why this can be no rule, as far as one sees without compiling it.
    fn fault(&self) -> Option<String> {
        if !(1..=MAX_PREFIXES).contains(&self.prefixes.len()) {
            return Some(format!("a rule has 1 to {MAX_PREFIXES} prefixes"));
        }
        if let Some(prefix) = self.prefixes.iter().find(|prefix| !is_prefix(prefix)) {
            return Some(format!(
                "the prefix {prefix:?} must have {MIN_PREFIX_BYTES} to {MAX_PREFIX_BYTES} ASCII \
                 characters, no control character and no backslash"
            ));
        }
        if self.pattern.len() > MAX_PATTERN_BYTES {
            return Some(format!("the pattern is longer than {MAX_PATTERN_BYTES} bytes"));
        }
        if self.allow.len() > MAX_ALLOWED {
            return Some(format!("more than {MAX_ALLOWED} secrets are allowed"));
        }
        let possible = |entropy: &f64| (0.0..=8.0).contains(entropy);
        (!self.entropy.as_ref().is_none_or(possible)).then(|| ENTROPY.to_owned())
    }
}

const ENTROPY: &str = "an entropy has 0 to 8 bits a byte";

fn is_prefix(prefix: &str) -> bool {
    (MIN_PREFIX_BYTES..=MAX_PREFIX_BYTES).contains(&prefix.len())
        && prefix.bytes().all(|byte| (byte == b' ' || byte.is_ascii_graphic()) && byte != b'\\')
}

impl ContextRule {
    fn fault(&self) -> Option<String> {
        if self.names.is_empty() || self.names.iter().any(|name| !is_prefix(name)) {
            return Some("a context rule has names of 2 to 40 characters".to_owned());
        }
        if self.min == 0 || self.min > self.max {
            return Some("`min` is at least 1 and at most `max`".to_owned());
        }
        (!(0.0..=8.0).contains(&self.entropy)).then(|| ENTROPY.to_owned())
    }
}
