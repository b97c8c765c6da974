//! Whose tokens are believed, and what they may say.

use std::{collections::BTreeMap, path::PathBuf};

use secrecy::SecretString;
use serde::Deserialize;

use super::secret;
use crate::domain::Vocabulary;

/// `[auth]`: whose tokens are believed.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub struct AuthConfig {
    pub leeway_s: u64,
    /// `exp − iat` may be no more than this.
    pub max_token_lifetime_s: u64,
    /// How long the last good JWKS is used while its URL does not answer.
    pub jwks_max_stale_s: u64,
    /// How often a JWKS URL or file is read again in the background.
    pub jwks_refresh_s: u64,
    pub issuers: Vec<IssuerConfig>,
    pub deny: DenyConfig,
}

impl Default for AuthConfig {
    fn default() -> Self {
        Self {
            leeway_s: 30,
            max_token_lifetime_s: 86_400,
            jwks_max_stale_s: 86_400,
            jwks_refresh_s: 300,
            issuers: Vec::new(),
            deny: DenyConfig::default(),
        }
    }
}

/// `[auth.deny]`: tokens refused though they verify. Checked on every call, reloadable.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct DenyConfig {
    pub jti: Vec<String>,
    pub sub: Vec<String>,
    pub kid: Vec<String>,
}

/// `[[auth.issuers]]`: one issuer, its keys and where its tokens carry each fact.
#[derive(Debug, Clone, Deserialize)]
pub struct IssuerConfig {
    /// `iss`, compared exactly.
    pub issuer: String,
    /// `aud` must hold one of these.
    pub audience: Vec<String>,
    /// JWS algorithm names (RFC 7518 §3.1, RFC 8037).
    pub algorithms: Vec<String>,
    #[serde(default)]
    pub jwks_url: Option<String>,
    #[serde(default)]
    pub jwks_file: Option<PathBuf>,
    /// A shared secret for HS256/384/512: development only, never from a JWKS.
    #[serde(default)]
    pub hmac_secret: Option<SecretString>,
    /// The request header that carries the token.
    #[serde(default = "authorization")]
    pub header: String,
    #[serde(default)]
    pub claims: ClaimsConfig,
    /// Given to every caller of this issuer, for tokens that carry none of their own
    /// (Cloudflare Access).
    #[serde(default)]
    pub defaults: ClaimDefaults,
}

/// Written out because of the secret; taken apart so that no new field is forgotten.
impl PartialEq for IssuerConfig {
    fn eq(&self, other: &Self) -> bool {
        let Self {
            issuer,
            audience,
            algorithms,
            jwks_url,
            jwks_file,
            hmac_secret,
            header,
            claims,
            defaults,
        } = self;
        *issuer == other.issuer
            && *audience == other.audience
            && *algorithms == other.algorithms
            && *jwks_url == other.jwks_url
            && *jwks_file == other.jwks_file
            && *header == other.header
            && *claims == other.claims
            && *defaults == other.defaults
            && secret::same(hmac_secret.as_ref(), other.hmac_secret.as_ref())
    }
}

fn authorization() -> String {
    "authorization".to_owned()
}

/// `[auth.issuers.claims]`: dotted paths into the token, one for each fact.
///
/// A dot inside a claim's own name is written `\.`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub struct ClaimsConfig {
    pub subject: String,
    pub tier: String,
    /// A list of strings, or one string separated by spaces (OAuth `scope`).
    pub capabilities: String,
    pub agent: String,
    /// `L0` to `L3`, or 0 to 3.
    pub trust: String,
    /// Further facts kept for audit and policy: name in the audit row → path.
    pub extra: BTreeMap<String, String>,
}

impl Default for ClaimsConfig {
    fn default() -> Self {
        Self {
            subject: "sub".to_owned(),
            tier: "tier".to_owned(),
            capabilities: "capabilities".to_owned(),
            agent: "agent".to_owned(),
            trust: "trust".to_owned(),
            extra: BTreeMap::new(),
        }
    }
}

/// `[auth.issuers.defaults]`: what a caller gets whose token does not say.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ClaimDefaults {
    pub tier: Option<String>,
    pub capabilities: Vec<String>,
    pub trust: Option<String>,
}

/// `[capabilities]`: the controlled vocabulary.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub struct CapabilitiesConfig {
    pub vocabulary: Vec<String>,
}

impl Default for CapabilitiesConfig {
    fn default() -> Self {
        let names = [
            "model:reasoning",
            "model:embedding",
            "code:read",
            "fleet:read",
            "fleet:write",
            "audit:read",
            "audit:content",
            "approvals:decide",
            "tools:list",
        ];
        Self { vocabulary: names.map(str::to_owned).to_vec() }
    }
}

impl CapabilitiesConfig {
    #[must_use]
    pub fn vocabulary(&self) -> Vocabulary {
        Vocabulary::new(&self.vocabulary)
    }
}
