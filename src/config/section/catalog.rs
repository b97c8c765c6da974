//! What callers spend: providers, models, tools; and tiers, the classes of callers.

use secrecy::SecretString;
use serde::Deserialize;

use super::secret;
use crate::domain::Price;

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
    /// From the request's end to a stream's first event.
    #[serde(default = "first_token_timeout_ms")]
    pub first_token_timeout_ms: u64,
    /// From the request's end to the head of an answer that is not streamed, which comes when the
    /// model is done.
    #[serde(default = "answer_timeout_ms")]
    pub answer_timeout_ms: u64,
    /// The longest pause between two pieces of an answer.
    #[serde(default = "idle_timeout_ms")]
    pub idle_timeout_ms: u64,
    /// The scripted provider's pause between two tokens.
    #[serde(default)]
    pub token_interval_ms: u64,
}

/// Written out because of the secret; taken apart so that no new field is forgotten.
impl PartialEq for ProviderConfig {
    fn eq(&self, other: &Self) -> bool {
        let Self {
            name,
            kind,
            base_url,
            api_key,
            connect_timeout_ms,
            first_token_timeout_ms,
            answer_timeout_ms,
            idle_timeout_ms,
            token_interval_ms,
        } = self;
        *name == other.name
            && *kind == other.kind
            && *base_url == other.base_url
            && *connect_timeout_ms == other.connect_timeout_ms
            && *first_token_timeout_ms == other.first_token_timeout_ms
            && *answer_timeout_ms == other.answer_timeout_ms
            && *idle_timeout_ms == other.idle_timeout_ms
            && *token_interval_ms == other.token_interval_ms
            && secret::same(api_key.as_ref(), other.api_key.as_ref())
    }
}

fn connect_timeout_ms() -> u64 {
    2_000
}
fn first_token_timeout_ms() -> u64 {
    30_000
}
fn answer_timeout_ms() -> u64 {
    300_000
}
fn idle_timeout_ms() -> u64 {
    60_000
}

/// `[[models]]`: a name that callers use, what it takes to use it, and where it leads.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ModelConfig {
    pub name: String,
    /// Any one of these capabilities admits; empty admits nobody.
    #[serde(default)]
    pub requires: Vec<String>,
    /// Tried in order.
    pub routes: Vec<RouteConfig>,
    /// Its context window: what bounds the cost of images and files.
    #[serde(default)]
    pub max_input_tokens: Option<u64>,
    #[serde(default)]
    pub max_output_tokens: Option<u64>,
    /// Calls at once, of all callers together.
    #[serde(default)]
    pub concurrent: Option<u32>,
    #[serde(default)]
    pub price: Option<PriceConfig>,
}

impl ModelConfig {
    /// The price as the ledger counts it; `None` where none is configured.
    ///
    /// Dollars per million tokens become whole micro-dollars per million tokens, rounded to the
    /// nearest (half away from zero), so that 0.35 is exactly 350,000. Cached input costs what
    /// input does where it has no price of its own.
    #[must_use]
    pub fn price(&self) -> Option<Price> {
        let price = self.price?;
        Some(Price {
            input: micro_usd(price.input),
            cached_input: micro_usd(price.cached_input.unwrap_or(price.input)),
            output: micro_usd(price.output),
        })
    }
}

/// US dollars in millionths, rounded to the nearest.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "validated to be no less than 0; `as` saturates and makes 0 of NaN"
)]
pub fn micro_usd(usd: f64) -> u64 {
    (usd * 1e6).round() as u64
}

/// One entry of `models.routes`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct RouteConfig {
    pub provider: String,
    /// What the provider calls the model.
    pub model: String,
}

/// `models.price`, in USD per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct PriceConfig {
    pub input: f64,
    #[serde(default)]
    pub cached_input: Option<f64>,
    pub output: f64,
}

/// `[[tools]]`: a tool's name and what it takes to pass it in a chat request's `tools`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ToolConfig {
    pub name: String,
    /// Any one of these capabilities admits; empty admits nobody.
    #[serde(default)]
    pub requires: Vec<String>,
}

/// `[[tiers]]`: a class of callers and its limits.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct TierConfig {
    pub name: String,
    /// How much of a model's free places its callers get beside those of other tiers.
    #[serde(default = "weight")]
    pub weight: u32,
    /// What all callers of the tier may spend in a UTC day and month.
    #[serde(default)]
    pub usd_per_day: Option<f64>,
    #[serde(default)]
    pub usd_per_month: Option<f64>,
    #[serde(default)]
    pub limits: Vec<LimitConfig>,
}

fn weight() -> u32 {
    1
}

/// `[[tiers.limits]]`: shared by all callers of the tier, for each model apart.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct LimitConfig {
    /// A model's name, or `*` for those that no other entry names.
    pub model: String,
    #[serde(default)]
    pub requests_per_minute: Option<u64>,
    /// How many may come at once; without it a minute's.
    #[serde(default)]
    pub requests_burst: Option<u64>,
    #[serde(default)]
    pub tokens_per_minute: Option<u64>,
    #[serde(default)]
    pub tokens_burst: Option<u64>,
    #[serde(default)]
    pub concurrent: Option<u32>,
}
