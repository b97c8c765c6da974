//! Where budgets are kept.

use base64::{Engine, engine::general_purpose::STANDARD};
use secrecy::{ExposeSecret, SecretSlice, SecretString};
use serde::Deserialize;

use super::secret;

/// `[budget]`: where budgets are kept.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct BudgetConfig {
    pub store: LedgerKind,
    pub redis_url: Option<SecretString>,
    pub on_store_failure: OnStoreFailure,
    /// How many gateways share the limits when the store fails (`static-share`).
    pub replicas: u32,
    /// How much of a hot key's rate each gateway takes from the store at once; 0 takes none.
    pub lease_ms: u64,
    /// Where a busted budget is told of, in a POST signed with `notify_secret`.
    pub notify_url: Option<String>,
    pub notify_secret: Option<SecretString>,
    /// Calls that may wait for a free slot, for each model.
    pub queue_limit: usize,
    /// How long each may; 0 refuses it at once.
    pub queue_wait_ms: u64,
    pub claims: Vec<ClaimBudgetConfig>,
}

/// `[[budget.claims]]`: what all callers with the same value of a mapped claim may spend.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ClaimBudgetConfig {
    /// A name of `auth.issuers.claims.extra`, such as `cost_center`.
    pub claim: String,
    /// One value, or `*` for each other one by itself.
    pub value: String,
    #[serde(default)]
    pub usd_per_day: Option<f64>,
    #[serde(default)]
    pub usd_per_month: Option<f64>,
}

/// Written out because of the secret; taken apart so that no new field is forgotten.
impl PartialEq for BudgetConfig {
    fn eq(&self, other: &Self) -> bool {
        let Self {
            store,
            redis_url,
            on_store_failure,
            replicas,
            lease_ms,
            notify_url,
            notify_secret,
            queue_limit,
            queue_wait_ms,
            claims,
        } = self;
        *store == other.store
            && *on_store_failure == other.on_store_failure
            && *replicas == other.replicas
            && *lease_ms == other.lease_ms
            && *notify_url == other.notify_url
            && *queue_limit == other.queue_limit
            && *queue_wait_ms == other.queue_wait_ms
            && *claims == other.claims
            && secret::same(redis_url.as_ref(), other.redis_url.as_ref())
            && secret::same(notify_secret.as_ref(), other.notify_secret.as_ref())
    }
}

impl Default for BudgetConfig {
    fn default() -> Self {
        Self {
            store: LedgerKind::Memory,
            redis_url: None,
            on_store_failure: OnStoreFailure::Deny,
            replicas: 1,
            lease_ms: 0,
            notify_url: None,
            queue_limit: 1_000,
            queue_wait_ms: 5_000,
            claims: Vec::new(),
            notify_secret: None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LedgerKind {
    Memory,
    Redis,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnStoreFailure {
    Deny,
    StaticShare,
}

/// Standard Webhooks 1.0.0 has 24 to 64 bytes; what is written as it is may be longer.
const NOTIFY_SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// The bytes of a `notify_secret`: what the base64 after `whsec_` stands for, else its own.
///
/// # Errors
/// What is wrong with it and what to do.
pub fn decode_notify_secret(secret: &SecretString) -> Result<SecretSlice<u8>, &'static str> {
    let text = secret.expose_secret();
    let Some(encoded) = text.strip_prefix("whsec_") else {
        if text.trim() != text {
            return Err("begins or ends with a space or a line's end; take it out");
        }
        if text.len() < *NOTIFY_SECRET_BYTES.start() {
            return Err("is too short; give 24 random bytes or more");
        }
        return Ok(SecretSlice::from(text.as_bytes().to_vec()));
    };
    let decoded = STANDARD.decode(encoded).map(SecretSlice::from);
    let decoded = decoded.map_err(|_| "is no base64 after whsec_; give it as it was made")?;
    if NOTIFY_SECRET_BYTES.contains(&decoded.expose_secret().len()) {
        Ok(decoded)
    } else {
        Err("must stand for 24 to 64 bytes after whsec_; make it of 32 random ones")
    }
}
