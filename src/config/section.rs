//! The typed sections of `tollgate.toml`, one struct a table, with every default.
//!
//! These are shapes only. Reading is in [`super::load`], what values are allowed is in
//! [`super::validate`].

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf};

use ipnet::IpNet;
use secrecy::SecretString;
use serde::Deserialize;

/// A whole configuration: one `tollgate.toml` with the environment laid over it.
#[derive(Debug, Clone, Default, Deserialize)]
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

/// `[server]`: what is listened on and the bounds of one connection and request.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct ServerConfig {
    pub listen: SocketAddr,
    /// Health and readiness; never to be reachable by the public.
    pub admin_listen: SocketAddr,
    pub body_limit_bytes: usize,
    /// For the whole head of a request, and for a TLS handshake.
    pub header_timeout_s: u64,
    /// The longest pause between two pieces of a request's body.
    pub body_idle_timeout_s: u64,
    pub request_timeout_s: u64,
    /// What open streams get to finish in after SIGTERM.
    pub drain_s: u64,
    /// Peers whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNet>,
    pub tls: Option<TlsConfig>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            admin_listen: SocketAddr::from(([127, 0, 0, 1], 9090)),
            body_limit_bytes: 4_194_304,
            header_timeout_s: 10,
            body_idle_timeout_s: 30,
            request_timeout_s: 600,
            drain_s: 30,
            trusted_proxies: Vec::new(),
            tls: None,
        }
    }
}

/// `server.tls`: PEM files of a certificate chain and its key.
#[derive(Debug, Clone, Deserialize)]
pub struct TlsConfig {
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// `[admission]`: what is turned away before any work is done for it.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct AdmissionConfig {
    /// Connections open at once; further ones wait in the kernel's queue.
    pub max_connections: usize,
    /// Requests in flight at once (open streams count); beyond it 503 `overloaded`.
    pub max_in_flight: usize,
    /// Requests a second of one address, before authentication.
    pub address_requests_per_second: u32,
    pub address_burst: u32,
    /// Requests a second of one subject, after authentication.
    pub caller_requests_per_second: u32,
    pub caller_burst: u32,
}

impl Default for AdmissionConfig {
    fn default() -> Self {
        Self {
            max_connections: 16_384,
            max_in_flight: 8_192,
            address_requests_per_second: 500,
            address_burst: 1_000,
            caller_requests_per_second: 200,
            caller_burst: 400,
        }
    }
}

/// `[auth]`: whose tokens are believed.
#[derive(Debug, Clone, Deserialize)]
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
#[derive(Debug, Clone, Default, Deserialize)]
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

fn authorization() -> String {
    "authorization".to_owned()
}

/// `[auth.issuers.claims]`: dotted paths into the token, one for each fact.
///
/// A dot inside a claim's own name is written `\.`.
#[derive(Debug, Clone, Deserialize)]
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
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ClaimDefaults {
    pub tier: Option<String>,
    pub capabilities: Vec<String>,
    pub trust: Option<String>,
}

/// `[capabilities]`: the controlled vocabulary.
#[derive(Debug, Clone, Deserialize)]
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
            "approvals:decide",
            "tools:list",
        ];
        Self { vocabulary: names.map(str::to_owned).to_vec() }
    }
}

/// The dialect that a provider speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProviderKind {
    /// Any server that speaks OpenAI's chat completions.
    Openai,
    /// Anthropic Messages. Not in this version: refused by validation.
    Anthropic,
    /// Answers made on the spot; for trying things out and for tests.
    Scripted,
}

/// `[[providers]]`: one upstream and how long it may take.
#[derive(Debug, Clone, Deserialize)]
pub struct ProviderConfig {
    pub name: String,
    pub kind: ProviderKind,
    #[serde(default)]
    pub base_url: Option<String>,
    #[serde(default)]
    pub api_key: Option<SecretString>,
    #[serde(default = "connect_timeout_ms")]
    pub connect_timeout_ms: u64,
    /// From the request's end to the answer's first event (or its head, if not streamed).
    #[serde(default = "first_token_timeout_ms")]
    pub first_token_timeout_ms: u64,
    /// The longest pause between two pieces of an answer.
    #[serde(default = "idle_timeout_ms")]
    pub idle_timeout_ms: u64,
    /// The scripted provider's pause between two tokens.
    #[serde(default)]
    pub token_interval_ms: u64,
}

fn connect_timeout_ms() -> u64 {
    2_000
}
fn first_token_timeout_ms() -> u64 {
    30_000
}
fn idle_timeout_ms() -> u64 {
    60_000
}

/// `[[models]]`: a name that callers use, what it takes to use it, and where it leads.
#[derive(Debug, Clone, Deserialize)]
pub struct ModelConfig {
    pub name: String,
    /// Any one of these capabilities admits; empty admits nobody.
    #[serde(default)]
    pub requires: Vec<String>,
    /// Tried in order.
    pub routes: Vec<RouteConfig>,
    #[serde(default)]
    pub max_output_tokens: Option<u64>,
    #[serde(default)]
    pub price: Option<PriceConfig>,
}

/// One entry of `models.routes`.
#[derive(Debug, Clone, Deserialize)]
pub struct RouteConfig {
    pub provider: String,
    /// What the provider calls the model.
    pub model: String,
}

/// `models.price`, in USD per million tokens.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct PriceConfig {
    pub input: f64,
    #[serde(default)]
    pub cached_input: Option<f64>,
    pub output: f64,
}

/// `[[tools]]`: a tool's name and what it takes to pass it in a chat request's `tools`.
#[derive(Debug, Clone, Deserialize)]
pub struct ToolConfig {
    pub name: String,
    /// Any one of these capabilities admits; empty admits nobody.
    #[serde(default)]
    pub requires: Vec<String>,
}

/// `[[tiers]]`: a class of callers and its limits.
#[derive(Debug, Clone, Deserialize)]
pub struct TierConfig {
    pub name: String,
    #[serde(default)]
    pub limits: Vec<LimitConfig>,
}

/// `[[tiers.limits]]`: shared by all callers of the tier, for each model apart.
#[derive(Debug, Clone, Deserialize)]
pub struct LimitConfig {
    /// A model's name, or `*` for those that no other entry names.
    pub model: String,
    #[serde(default)]
    pub requests_per_minute: Option<u64>,
    #[serde(default)]
    pub tokens_per_minute: Option<u64>,
    #[serde(default)]
    pub concurrent: Option<u32>,
}

/// `[budget]`: where budgets are kept.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct BudgetConfig {
    pub store: LedgerKind,
    pub redis_url: Option<SecretString>,
    pub on_store_failure: OnStoreFailure,
    pub notify_url: Option<String>,
}

impl Default for BudgetConfig {
    fn default() -> Self {
        Self {
            store: LedgerKind::Memory,
            redis_url: None,
            on_store_failure: OnStoreFailure::Deny,
            notify_url: None,
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

/// `[audit]`: where the record of every call goes.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct AuditConfig {
    pub store: AuditStore,
    /// The SQLite file.
    pub path: PathBuf,
    pub url: Option<SecretString>,
    pub spool: Option<PathBuf>,
    pub spool_limit_bytes: Option<u64>,
    pub durability: Durability,
    pub retention_days: Option<u32>,
    pub content: AuditContent,
}

impl Default for AuditConfig {
    fn default() -> Self {
        Self {
            store: AuditStore::Sqlite,
            path: PathBuf::from("data/tollgate.db"),
            url: None,
            spool: None,
            spool_limit_bytes: None,
            durability: Durability::Spool,
            retention_days: None,
            content: AuditContent::None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditStore {
    Sqlite,
    Postgres,
}

/// What an intent row has gone through before its call may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Written and committed: survives a kill -9 of the gateway.
    Spool,
    /// Synced to the disk as well: survives a loss of power.
    Strict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditContent {
    Redacted,
    None,
}

/// `[redaction]`: secrets in requests and answers.
#[derive(Debug, Clone, Deserialize)]
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
            responses: ResponseRedaction::Off,
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

/// `[stream]`: native streams.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct StreamConfig {
    pub replay_store: ReplayStore,
    /// How long a finished stream can still be read.
    pub replay_ttl_s: u64,
    /// How long a stream goes on with nobody reading it.
    pub orphan_timeout_s: u64,
    pub keepalive_s: u64,
    /// What one stream's replay log holds at most; its oldest frames go first.
    pub replay_limit_frames: usize,
    pub replay_limit_bytes: usize,
    /// Streams kept at once, live and finished ones; the oldest finished go first.
    pub max_streams: usize,
}

impl Default for StreamConfig {
    fn default() -> Self {
        Self {
            replay_store: ReplayStore::Memory,
            replay_ttl_s: 300,
            orphan_timeout_s: 30,
            keepalive_s: 15,
            replay_limit_frames: 65_536,
            replay_limit_bytes: 8_388_608,
            max_streams: 10_000,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReplayStore {
    Memory,
    Redis,
}

/// `[telemetry]`: where spans go and what the log says.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct TelemetryConfig {
    /// OTLP over gRPC. None: no spans are exported.
    pub otlp_endpoint: Option<String>,
    pub service_name: String,
    pub capture_content: bool,
    /// A `tracing` filter, such as `info` or `tollgate=debug`.
    pub log: String,
    pub log_format: LogFormat,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self {
            otlp_endpoint: None,
            service_name: "tollgate".to_owned(),
            capture_content: false,
            log: "info".to_owned(),
            log_format: LogFormat::Json,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Json,
    Text,
}

impl ModelConfig {
    /// The price as integers; what is cached costs the same where nothing else is said.
    #[must_use]
    pub fn price(&self) -> Option<crate::domain::Price> {
        let price = self.price?;
        let micros = |usd: f64| (usd * 1e6).round() as u64;
        Some(crate::domain::Price {
            input: micros(price.input),
            cached_input: micros(price.cached_input.unwrap_or(price.input)),
            output: micros(price.output),
        })
    }
}
