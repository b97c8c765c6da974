//! `[redaction]`, but for the rules: what those must be is told by what compiles them.

use crate::config::{RedactionConfig, decode_redaction_key, findings::Findings};

const KEY: &str = "redaction.key";
const KEY_FILE: &str = "redaction.key_file";

/// Secrets that may pass one rule; each is compared with what the rule finds.
const MAX_ALLOWED: usize = 64;

pub(super) fn check(redaction: &RedactionConfig, found: &mut Findings) {
    if let Some(Err(message)) = redaction.key.as_ref().map(decode_redaction_key) {
        found.add(KEY, message);
    }
    if let Some(file) = &redaction.key_file {
        let is_file = file.file_name().is_some() && !file.is_dir();
        found.require(is_file, KEY_FILE, "is no path of a file; write data/redaction.key");
        found.require(redaction.key.is_none(), KEY_FILE, "is not read beside key; remove one");
    }
    for (rule, secrets) in &redaction.allow {
        let message = format!("lists more than {MAX_ALLOWED} secrets; mend the rule instead");
        found.require(secrets.len() <= MAX_ALLOWED, format!("redaction.allow.{rule}"), message);
    }
}
