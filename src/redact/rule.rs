//! The formats that are known, as data.

/// A secret of a fixed prefix followed by at least `least` characters of an alphabet.
///
/// No alphabet may hold a quote or a backslash: a secret must end where its JSON string does.
#[derive(Debug)]
pub struct Rule {
    pub name: &'static str,
    pub prefix: &'static str,
    /// Characters beside letters and digits.
    pub also: &'static [u8],
    pub least: usize,
    /// Is the prefix a word that may stay (`Bearer `)?
    pub keeps_prefix: bool,
}

impl Rule {
    #[must_use]
    pub fn takes(&self, byte: u8) -> bool {
        byte.is_ascii_alphanumeric() || self.also.contains(&byte)
    }
}

const fn key(name: &'static str, prefix: &'static str, least: usize) -> Rule {
    Rule { name, prefix, also: b"_-", least, keeps_prefix: false }
}

const fn scheme(name: &'static str, prefix: &'static str) -> Rule {
    Rule { name, prefix, also: b"-._~+/=", least: 16, keeps_prefix: true }
}

/// Each from its maker's public documentation.
pub const RULES: &[Rule] = &[
    key("openai-key", "sk-", 20),
    key("anthropic-key", "sk-ant-", 20),
    key("cerebras-key", "csk-", 20),
    key("groq-key", "gsk_", 20),
    key("huggingface-token", "hf_", 20),
    key("stripe-live-key", "sk_live_", 10),
    key("stripe-restricted-key", "rk_live_", 10),
    key("github-token", "ghp_", 36),
    key("github-oauth-token", "gho_", 36),
    key("github-server-token", "ghs_", 36),
    key("github-fine-grained-token", "github_pat_", 40),
    key("gitlab-token", "glpat-", 20),
    key("npm-token", "npm_", 36),
    key("slack-bot-token", "xoxb-", 20),
    key("slack-user-token", "xoxp-", 20),
    key("google-api-key", "AIza", 35),
    key("aws-access-key-id", "AKIA", 16),
    key("azure-aks-token", "aks-", 20),
    scheme("bearer-token", "Bearer "),
    scheme("bearer-token", "bearer "),
    Rule { name: "jwt", prefix: "eyJ", also: b"_-.", least: 40, keeps_prefix: false },
];
