//! `[[providers]]`, `[[models]]`, `[[tools]]` and `[[tiers]]`.

use http::HeaderValue;
use secrecy::ExposeSecret;

use super::{auth::check_known, bounds, name, shown, url};
use crate::{
    config::{
        Config, LimitConfig, ModelConfig, PriceConfig, ProviderConfig, ProviderKind,
        findings::Findings,
    },
    domain::Vocabulary,
};

/// USD in some time; in millionths it stays far below what a `f64` counts one by one.
const MAX_BUDGET: f64 = 1e9;
/// USD per million tokens.
const MAX_PRICE: f64 = 1e6;

pub(super) fn check_providers(providers: &[ProviderConfig], found: &mut Findings) {
    let nowhere = "no call could go anywhere; add one [[providers]]";
    found.require(!providers.is_empty(), "providers", nowhere);
    let key_of = |i| format!("providers[{i}].name");
    name::check_unique(providers.iter().map(|provider| provider.name.as_str()), key_of, found);
    for (i, provider) in providers.iter().enumerate() {
        name::PLAIN.check(&provider.name, key_of(i), found);
        let key = format!("providers[{i}]");
        bounds(
            found,
            &key,
            &[
                ("connect_timeout_ms", provider.connect_timeout_ms, 1..=600_000),
                ("first_token_timeout_ms", provider.first_token_timeout_ms, 1..=3_600_000),
                ("answer_timeout_ms", provider.answer_timeout_ms, 1..=3_600_000),
                ("idle_timeout_ms", provider.idle_timeout_ms, 1..=3_600_000),
                ("token_interval_ms", provider.token_interval_ms, 0..=60_000),
            ],
        );
        // What else is right depends on a kind that could not be read.
        if found.in_hole(&format!("{key}.kind")) {
            continue;
        }
        match provider.kind {
            ProviderKind::Openai | ProviderKind::Anthropic => check_server(provider, &key, found),
            ProviderKind::Scripted => check_scripted(provider, &key, found),
        }
    }
}

fn check_server(provider: &ProviderConfig, key: &str, found: &mut Findings) {
    let base_url = format!("{key}.base_url");
    match provider.base_url.as_deref().map(url::parse) {
        None => {
            found.add(base_url, "is missing; give the part of the URL before /chat/completions");
        }
        Some(Err(message)) => found.add(base_url, message),
        Some(Ok(url)) => {
            found.require(url.query().is_none(), base_url, "has a query (\"?…\"); take it out");
        }
    }
    if let Some(secret) = &provider.api_key {
        let secret = secret.expose_secret();
        found.require(
            !secret.trim().is_empty() && HeaderValue::from_str(secret).is_ok(),
            format!("{key}.api_key"),
            "is empty, or can't stand in a header; give it as the provider gave it, or remove it",
        );
    }
    found.require(
        provider.token_interval_ms == 0,
        format!("{key}.token_interval_ms"),
        "is for the scripted provider; remove it",
    );
}

fn check_scripted(provider: &ProviderConfig, key: &str, found: &mut Findings) {
    let message = "is for providers on the network, and this one is scripted; remove it";
    found.require(provider.base_url.is_none(), format!("{key}.base_url"), message);
    found.require(provider.api_key.is_none(), format!("{key}.api_key"), message);
}

pub(super) fn check_models(config: &Config, found: &mut Findings) {
    let models = &config.models;
    found.require(!models.is_empty(), "models", "there is nothing to call; add one [[models]]");
    let key_of = |i| format!("models[{i}].name");
    name::check_unique(models.iter().map(|model| model.name.as_str()), key_of, found);
    let vocabulary = config.capabilities.vocabulary();
    for (i, model) in models.iter().enumerate() {
        name::MODEL.check(&model.name, key_of(i), found);
        let key = format!("models[{i}]");
        check_requires(&model.requires, &vocabulary, &format!("{key}.requires"), found);
        check_routes(model, &config.providers, &key, found);
        if let Some(price) = &model.price {
            check_price(price, &format!("{key}.price"), found);
        }
        for (name, tokens) in [
            ("max_input_tokens", model.max_input_tokens),
            ("max_output_tokens", model.max_output_tokens),
        ] {
            if let Some(tokens) = tokens {
                bounds(found, &key, &[(name, tokens, 1..=100_000_000)]);
            }
        }
        if let Some(concurrent) = model.concurrent {
            bounds(found, &key, &[("concurrent", concurrent.into(), 1..=1_000_000)]);
        }
    }
}

fn check_requires(requires: &[String], vocabulary: &Vocabulary, key: &str, found: &mut Findings) {
    check_known(requires, vocabulary, key, found);
    for (i, name) in requires.iter().enumerate() {
        found.require(
            !name.starts_with("budget:"),
            format!("{key}[{i}]"),
            "a budget is a limit and admits to nothing; name what a caller is hired to do",
        );
    }
}

fn check_routes(
    model: &ModelConfig,
    providers: &[ProviderConfig],
    key: &str,
    found: &mut Findings,
) {
    let nowhere = "is empty; give one { provider = \"…\", model = \"…\" } at least";
    found.require(!model.routes.is_empty(), format!("{key}.routes"), nowhere);
    for (j, route) in model.routes.iter().enumerate() {
        let key = format!("{key}.routes[{j}]");
        let known = providers.iter().any(|provider| provider.name == route.provider);
        if !known && found.knows_names("providers", providers.len()) {
            let message = format!(
                "there is no provider {}; add it to [[providers]], or use one that is there",
                shown(&route.provider)
            );
            found.add(format!("{key}.provider"), message);
        }
        found.require(
            !route.model.is_empty(),
            format!("{key}.model"),
            "is empty; give the provider's own name for the model",
        );
    }
}

fn check_price(price: &PriceConfig, key: &str, found: &mut Findings) {
    let prices = [
        ("input", Some(price.input)),
        ("cached_input", price.cached_input),
        ("output", Some(price.output)),
    ];
    for (name, usd) in prices {
        found.require(
            usd.is_none_or(|usd| (0.0..=MAX_PRICE).contains(&usd)),
            format!("{key}.{name}"),
            "must be from 0 to 1000000 USD per million tokens",
        );
    }
}

/// Amounts in USD that may be spent in some time.
fn check_money(amounts: &[(&str, Option<f64>)], key: &str, found: &mut Findings) {
    for (name, usd) in amounts {
        found.require(
            usd.is_none_or(|usd| (0.0..=MAX_BUDGET).contains(&usd)),
            format!("{key}.{name}"),
            "must be from 0 to 1000000000 USD",
        );
    }
}

/// Budgets of mapped claims: each claim must be one that some issuer's tokens bring.
pub(super) fn check_claims(config: &Config, found: &mut Findings) {
    for (i, budget) in config.budget.claims.iter().enumerate() {
        let key = format!("budget.claims[{i}]");
        let is_mapped =
            config.auth.issuers.iter().any(|it| it.claims.extra.contains_key(&budget.claim));
        let message = "is mapped by no issuer; add it to auth.issuers.claims.extra";
        found.require(is_mapped, format!("{key}.claim"), message);
        found.require(
            !budget.value.is_empty(),
            format!("{key}.value"),
            "is empty; use \"*\" for all",
        );
        let money = [("usd_per_day", budget.usd_per_day), ("usd_per_month", budget.usd_per_month)];
        check_money(&money, &key, found);
        let message = "sets no limit; give usd_per_day, usd_per_month or both";
        found.require(money.iter().any(|(_, usd)| usd.is_some()), key, message);
    }
}

pub(super) fn check_tools(config: &Config, found: &mut Findings) {
    let key_of = |i| format!("tools[{i}].name");
    name::check_unique(config.tools.iter().map(|tool| tool.name.as_str()), key_of, found);
    let vocabulary = config.capabilities.vocabulary();
    for (i, tool) in config.tools.iter().enumerate() {
        name::TOOL.check(&tool.name, key_of(i), found);
        check_requires(&tool.requires, &vocabulary, &format!("tools[{i}].requires"), found);
    }
}

pub(super) fn check_tiers(config: &Config, found: &mut Findings) {
    let key_of = |i| format!("tiers[{i}].name");
    name::check_unique(config.tiers.iter().map(|tier| tier.name.as_str()), key_of, found);
    for (i, tier) in config.tiers.iter().enumerate() {
        name::PLAIN.check(&tier.name, key_of(i), found);
        bounds(found, &format!("tiers[{i}]"), &[("weight", tier.weight.into(), 1..=1_000)]);
        let money = [("usd_per_day", tier.usd_per_day), ("usd_per_month", tier.usd_per_month)];
        check_money(&money, &format!("tiers[{i}]"), found);
        let key_of = |j| format!("tiers[{i}].limits[{j}].model");
        name::check_unique(tier.limits.iter().map(|limit| limit.model.as_str()), key_of, found);
        for (j, limit) in tier.limits.iter().enumerate() {
            check_limit(limit, &config.models, &format!("tiers[{i}].limits[{j}]"), found);
        }
    }
}

fn check_limit(limit: &LimitConfig, models: &[ModelConfig], key: &str, found: &mut Findings) {
    let known = limit.model == "*" || models.iter().any(|model| model.name == limit.model);
    if !known && found.knows_names("models", models.len()) {
        let message =
            format!("there is no model {}; name one, or \"*\" for all others", shown(&limit.model));
        found.add(format!("{key}.model"), message);
    }
    // A rate's step is a microsecond, at least.
    let rates = [
        ("requests_per_minute", limit.requests_per_minute, 60_000_000),
        ("requests_burst", limit.requests_burst, 60_000_000),
        ("tokens_per_minute", limit.tokens_per_minute, 60_000_000),
        ("tokens_burst", limit.tokens_burst, 1_000_000_000),
    ];
    for (name, value, most) in rates {
        if let Some(value) = value {
            bounds(found, key, &[(name, value, 1..=most)]);
        }
    }
    let bursts = [
        ("requests_burst", limit.requests_burst.is_some(), limit.requests_per_minute.is_some()),
        ("tokens_burst", limit.tokens_burst.is_some(), limit.tokens_per_minute.is_some()),
    ];
    for (name, is_there, has_rate) in bursts {
        let message = "is the burst of a rate that is not there; give the rate, per minute, too";
        found.require(!is_there || has_rate, format!("{key}.{name}"), message);
    }
    if let Some(concurrent) = limit.concurrent {
        bounds(found, key, &[("concurrent", concurrent.into(), 1..=1_000_000)]);
    }
}
