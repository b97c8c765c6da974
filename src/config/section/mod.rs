//! The typed sections of `tollgate.toml`, one struct a table, with every default.
//!
//! These are shapes only. Reading is in [`super::load()`], what values are allowed is in
//! [`super::validate()`]. They compare with `==` so that a reload can tell what changed.

mod audit;
mod auth;
mod budget;
mod catalog;
mod redaction;
mod secret;
mod server;
mod stream;
mod telemetry;

pub use audit::{AuditConfig, AuditContent, AuditStore, CheckpointTarget, Durability};
pub use auth::{
    AuthConfig, CapabilitiesConfig, ClaimDefaults, ClaimsConfig, DenyConfig, IssuerConfig,
};
pub use budget::{
    BudgetConfig, ClaimBudgetConfig, LedgerKind, OnStoreFailure, decode_notify_secret,
};
pub use catalog::{
    LimitConfig, ModelConfig, PriceConfig, ProviderConfig, ProviderKind, RouteConfig, TierConfig,
    ToolConfig, micro_usd,
};
pub use redaction::{
    OwnRuleConfig, RedactionConfig, RequestRedaction, ResponseRedaction, RuleNeed,
    decode_redaction_key,
};
pub use server::{AdmissionConfig, ServerConfig, TlsConfig};
pub use stream::{ReplayStore, StreamConfig};
pub use telemetry::{LogFormat, TelemetryConfig};

use serde::Deserialize;

/// A whole configuration: one `tollgate.toml` with the environment laid over it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Config {
    pub server: ServerConfig,
    pub admission: AdmissionConfig,
    pub auth: AuthConfig,
    pub capabilities: CapabilitiesConfig,
    pub providers: Vec<ProviderConfig>,
    pub models: Vec<ModelConfig>,
    pub tools: Vec<ToolConfig>,
    pub tiers: Vec<TierConfig>,
    pub budget: BudgetConfig,
    pub audit: AuditConfig,
    pub redaction: RedactionConfig,
    pub stream: StreamConfig,
    pub telemetry: TelemetryConfig,
}
