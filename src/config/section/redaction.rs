//! Secrets in requests and answers.

use std::{collections::BTreeMap, path::PathBuf};

use base64::{Engine, engine::general_purpose::STANDARD};
use secrecy::{ExposeSecret, SecretSlice, SecretString};
use serde::Deserialize;

use super::secret;

/// `[redaction]`: secrets in requests and answers.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct RedactionConfig {
    pub requests: RequestRedaction,
    pub responses: ResponseRedaction,
    /// What placeholders are keyed with; without it `key_file` holds one.
    pub key: Option<SecretString>,
    /// Made at the first start. None: `redaction.key` beside the audit database.
    pub key_file: Option<PathBuf>,
    pub rules: Vec<OwnRuleConfig>,
    /// A rule's name → secrets that pass it, each written out or as the `hmac8` of its placeholder.
    pub allow: BTreeMap<String, Vec<SecretString>>,
}

/// `[[redaction.rules]]`: a format beside the built-in ones, with the fields that those have in
/// `src/redact/rules.toml`.
#[derive(Debug, Clone, Deserialize)]
pub struct OwnRuleConfig {
    /// What a placeholder of the rule shows.
    pub name: String,
    /// Every match begins with one of these.
    pub prefixes: Vec<String>,
    /// A regular expression of bytes, from the prefix on. `(?<secret>…)` where only a part is secret.
    pub pattern: String,
    /// The longest match in bytes; without it a match may be of any length.
    #[serde(default)]
    pub max: Option<usize>,
    /// May no letter, digit or `_` stand before the prefix?
    #[serde(default = "boundary")]
    pub boundary: bool,
    /// What the secret must have beside its shape.
    #[serde(default)]
    pub needs: Vec<RuleNeed>,
    /// The least entropy of the secret, in bits a byte.
    #[serde(default)]
    pub entropy: Option<f64>,
    /// These secrets pass.
    #[serde(default)]
    pub allow: Vec<SecretString>,
    /// Where the format is described.
    #[serde(default)]
    pub source: Option<String>,
}

fn boundary() -> bool {
    true
}

/// What a secret must have beside its shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuleNeed {
    /// A digit.
    Digit,
    /// A letter.
    Letter,
    /// Characters of two kinds at least, of capitals, small letters and digits.
    Mixed,
    /// No word that made-up secrets have, such as `example`.
    NoStopWord,
    /// Not what stands for a password in documents, such as `secret`.
    NoSample,
}

impl Default for RedactionConfig {
    fn default() -> Self {
        Self {
            requests: RequestRedaction::Redact,
            responses: ResponseRedaction::Redact,
            key: None,
            key_file: None,
            rules: Vec::new(),
            allow: BTreeMap::new(),
        }
    }
}

/// Written out because of the secrets; taken apart so that no new field is forgotten.
impl PartialEq for RedactionConfig {
    fn eq(&self, other: &Self) -> bool {
        let Self { requests, responses, key, key_file, rules, allow } = self;
        *requests == other.requests
            && *responses == other.responses
            && *key_file == other.key_file
            && *rules == other.rules
            && allow.keys().eq(other.allow.keys())
            && allow.values().zip(other.allow.values()).all(|(one, other)| same_all(one, other))
            && secret::same(key.as_ref(), other.key.as_ref())
    }
}

/// As above.
impl PartialEq for OwnRuleConfig {
    fn eq(&self, other: &Self) -> bool {
        let Self { name, prefixes, pattern, max, boundary, needs, entropy, allow, source } = self;
        *name == other.name
            && *prefixes == other.prefixes
            && *pattern == other.pattern
            && *max == other.max
            && *boundary == other.boundary
            && *needs == other.needs
            && *entropy == other.entropy
            && *source == other.source
            && same_all(allow, &other.allow)
    }
}

fn same_all(one: &[SecretString], other: &[SecretString]) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).all(|(one, other)| secret::same(Some(one), Some(other)))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RequestRedaction {
    Redact,
    Block,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResponseRedaction {
    Redact,
    Off,
}

/// As many as an HMAC-SHA256 can make use of (RFC 2104 §3).
const MIN_KEY_BYTES: usize = 32;
/// Nobody's key is longer; a file of that size is another file.
const MAX_KEY_BYTES: usize = 1_024;

/// The bytes of a `redaction.key`, or of a `key_file`'s content: what it stands for as hexadecimal
/// digits or as base64, else its own. Space around it does not count.
///
/// # Errors
/// What is wrong with it and what to do, without it.
pub fn decode_redaction_key(key: &SecretString) -> Result<SecretSlice<u8>, &'static str> {
    let text = key.expose_secret().trim();
    if text.len() > MAX_KEY_BYTES {
        return Err("is too long for a key; make one with: openssl rand -hex 32");
    }
    let decoded = hex(text).or_else(|| STANDARD.decode(text).ok());
    let bytes = decoded
        .filter(|bytes| bytes.len() >= MIN_KEY_BYTES)
        .unwrap_or_else(|| text.as_bytes().to_vec());
    if bytes.len() < MIN_KEY_BYTES {
        return Err("is too short; it must stand for 32 bytes: openssl rand -hex 32");
    }
    Ok(SecretSlice::from(bytes))
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}
