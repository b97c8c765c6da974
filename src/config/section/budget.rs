//! Where budgets are kept.

use secrecy::SecretString;
use serde::Deserialize;

use super::secret;

/// `[budget]`: where budgets are kept.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct BudgetConfig {
    pub store: LedgerKind,
    pub redis_url: Option<SecretString>,
    pub on_store_failure: OnStoreFailure,
    pub notify_url: Option<String>,
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
        let Self { store, redis_url, on_store_failure, notify_url, claims } = self;
        *store == other.store
            && *on_store_failure == other.on_store_failure
            && *notify_url == other.notify_url
            && *claims == other.claims
            && secret::same(redis_url.as_ref(), other.redis_url.as_ref())
    }
}

impl Default for BudgetConfig {
    fn default() -> Self {
        Self {
            store: LedgerKind::Memory,
            redis_url: None,
            on_store_failure: OnStoreFailure::Deny,
            notify_url: None,
            claims: Vec::new(),
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
