//! Secrets in requests and answers.

use serde::Deserialize;

/// `[redaction]`: secrets in requests and answers.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub struct RedactionConfig {
    pub requests: RequestRedaction,
    pub responses: ResponseRedaction,
    pub rules: Vec<toml::Value>,
}

impl Default for RedactionConfig {
    fn default() -> Self {
        Self {
            requests: RequestRedaction::Redact,
            responses: ResponseRedaction::Redact,
            rules: Vec::new(),
        }
    }
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
