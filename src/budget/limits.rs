//! Which buckets a call meets: its tier's, its agent's, its claims'.

use std::{collections::HashMap, sync::Arc};

use quick_cache::sync::Cache;

use super::{Bucket, Charge, Forecast, Limit, Measure, Period, Scope};
use crate::{
    config::{ClaimBudgetConfig, Config, LimitConfig, TierConfig, micro_usd},
    domain::{Caller, Capability, Denial, Kind},
};

/// Agents whose buckets are kept at hand.
const KNOWN_AGENTS: usize = 4_096;

/// Every limit of the configuration.
#[derive(Debug, Clone)]
pub struct LimitTable {
    tiers: HashMap<String, Tier>,
    /// By model: the slots that all its callers share.
    slots: HashMap<String, Arc<Bucket>>,
    /// By claim, then by its value; `*` is any other value, each with buckets of its own.
    claims: HashMap<String, HashMap<String, Vec<Limit>>>,
    /// Of agents that have called, so that their buckets are not made for each call.
    agents: Arc<Cache<String, Arc<Known>>>,
}

/// An agent's budgets, and the buckets that they make.
#[derive(Debug)]
struct Known {
    capabilities: Vec<Capability>,
    buckets: Vec<Arc<Bucket>>,
}

#[derive(Debug, Clone)]
struct Tier {
    weight: u32,
    by_model: HashMap<String, Vec<Arc<Bucket>>>,
    money: Vec<Arc<Bucket>>,
}

impl LimitTable {
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let models: Vec<&str> = config.models.iter().map(|model| model.name.as_str()).collect();
        let tiers = config.tiers.iter();
        let mut claims = HashMap::<String, HashMap<String, Vec<Limit>>>::new();
        for budget in &config.budget.claims {
            let limits = claim_limits(budget);
            let values = claims.entry(budget.claim.clone()).or_default();
            values.entry(budget.value.clone()).or_default().extend(limits);
        }
        let tiers = tiers.map(|tier| (tier.name.clone(), Tier::new(tier, &models))).collect();
        let slots = config.models.iter().filter_map(|model| {
            let limit = Limit::Slots(model.concurrent?);
            let scope = Scope::Model { model: model.name.clone() };
            Some((model.name.clone(), Arc::new(Bucket::new(scope, limit))))
        });
        let agents = Arc::new(Cache::new(KNOWN_AGENTS));
        Self { tiers, slots: slots.collect(), claims, agents }
    }

    /// How much of a model's free slots the tier's callers get beside others (DESIGN §8).
    #[must_use]
    pub fn weight(&self, tier: &str) -> u32 {
        self.tiers.get(tier).map_or(1, |tier| tier.weight)
    }

    /// What a call takes of every bucket that applies to it.
    ///
    /// # Errors
    /// A tier that the configuration doesn't know is refused: deny by default. So is a call whose
    /// cost can't be bounded, where money applies.
    pub fn charges(
        &self,
        caller: &Caller,
        model: &str,
        forecast: &Forecast<'_>,
    ) -> Result<Vec<Charge>, Denial> {
        let buckets = self.buckets(caller, Some(model))?;
        buckets.into_iter().map(|bucket| charge(bucket, model, forecast)).collect()
    }

    /// The buckets of a caller: for one model, or for all.
    ///
    /// # Errors
    /// A tier that the configuration doesn't know.
    pub fn buckets(
        &self,
        caller: &Caller,
        model: Option<&str>,
    ) -> Result<Vec<Arc<Bucket>>, Denial> {
        let tier = self.tiers.get(&caller.tier).ok_or_else(|| unknown_tier(&caller.tier))?;
        let mut buckets = Vec::with_capacity(8);
        if let Some(model) = model {
            buckets.extend(tier.by_model.get(model).into_iter().flatten().cloned());
            buckets.extend(self.slots.get(model).cloned());
        } else {
            buckets.extend(tier.by_model.values().flatten().cloned());
            buckets.extend(self.slots.values().cloned());
        }
        buckets.extend(tier.money.iter().cloned());
        self.push_agents(caller, &mut buckets);
        for (name, values) in &self.claims {
            let Some(value) = caller.extra.get(name) else { continue };
            let limits = values.get(value).or_else(|| values.get("*"));
            let scope = || Scope::Claim { name: name.clone(), value: value.clone() };
            buckets.extend(
                limits.into_iter().flatten().map(|limit| Arc::new(Bucket::new(scope(), *limit))),
            );
        }
        Ok(buckets)
    }

    fn push_agents(&self, caller: &Caller, buckets: &mut Vec<Arc<Bucket>>) {
        let budgets = || caller.capabilities.iter().filter(|it| it.as_str().starts_with("budget:"));
        if budgets().next().is_none() {
            return;
        }
        let agent = caller.agent.as_ref().unwrap_or(&caller.subject);
        let key = format!("{}\0{agent}", caller.issuer);
        let known = self.agents.get(&key).filter(|known| known.capabilities.iter().eq(budgets()));
        let known = known.unwrap_or_else(|| {
            let capabilities = budgets().cloned().collect();
            let known = Arc::new(Known { capabilities, buckets: agent_buckets(caller) });
            self.agents.insert(key, Arc::clone(&known));
            known
        });
        buckets.extend(known.buckets.iter().cloned());
    }
}

impl Tier {
    fn new(tier: &TierConfig, models: &[&str]) -> Self {
        let of = |model: &str| tier.limits.iter().find(|entry| entry.model == model);
        // The entry that names the model wins over `*`, whole: it is not merged with it.
        let by_model = models.iter().map(|model| {
            let entry = of(model).or_else(|| of("*"));
            let scope = || Scope::TierModel { tier: tier.name.clone(), model: (*model).to_owned() };
            let limits = entry.map(limits_of).unwrap_or_default();
            let buckets = limits.into_iter().map(|limit| Arc::new(Bucket::new(scope(), limit)));
            ((*model).to_owned(), buckets.collect())
        });
        let scope = || Scope::Tier { tier: tier.name.clone() };
        let money = money(tier.usd_per_day, tier.usd_per_month);
        Self {
            weight: tier.weight,
            by_model: by_model.collect(),
            money: money.map(|limit| Arc::new(Bucket::new(scope(), limit))).collect(),
        }
    }
}

fn limits_of(entry: &LimitConfig) -> Vec<Limit> {
    let rate = |measure, per_minute: Option<u64>, burst: Option<u64>| {
        per_minute.map(|per_minute| Limit::Rate {
            measure,
            per_minute,
            burst: burst.unwrap_or(per_minute),
        })
    };
    let requests = rate(Measure::Requests, entry.requests_per_minute, entry.requests_burst);
    let tokens = rate(Measure::Tokens, entry.tokens_per_minute, entry.tokens_burst);
    [requests, tokens, entry.concurrent.map(Limit::Slots)].into_iter().flatten().collect()
}

fn claim_limits(budget: &ClaimBudgetConfig) -> impl Iterator<Item = Limit> {
    money(budget.usd_per_day, budget.usd_per_month)
}

fn money(per_day: Option<f64>, per_month: Option<f64>) -> impl Iterator<Item = Limit> {
    let window = |period, usd: Option<f64>| {
        usd.map(|usd| Limit::Window { measure: Measure::MicroUsd, period, limit: micro_usd(usd) })
    };
    [window(Period::Day, per_day), window(Period::Month, per_month)].into_iter().flatten()
}

/// The budgets that a token's capabilities set. Of two of a kind the smaller one counts.
fn agent_buckets(caller: &Caller) -> Vec<Arc<Bucket>> {
    let mut limits: Vec<Limit> = Vec::new();
    for limit in caller.capabilities.iter().filter_map(limit_of) {
        let same = |other: &&mut Limit| match (&**other, &limit) {
            (
                Limit::Window { measure, period, .. },
                Limit::Window { measure: m, period: p, .. },
            ) => measure == m && period == p,
            (Limit::Rate { .. }, Limit::Rate { .. }) => true,
            _ => false,
        };
        match limits.iter_mut().find(same) {
            Some(other) if limit.most() < other.most() => *other = limit,
            Some(_) => {}
            None => limits.push(limit),
        }
    }
    let agent = caller.agent.as_ref().unwrap_or(&caller.subject);
    let scope = || Scope::Agent { issuer: caller.issuer.clone(), agent: agent.clone() };
    limits.into_iter().map(|limit| Arc::new(Bucket::new(scope(), limit))).collect()
}

/// What `budget:…` sets. A number that can't be read allows nothing.
fn limit_of(capability: &Capability) -> Option<Limit> {
    let (name, amount) = capability.as_str().strip_prefix("budget:")?.split_once(':')?;
    let digits = amount.replace('_', "");
    let tokens = || digits.parse().unwrap_or(0);
    let usd = || micro_usd(digits.parse().unwrap_or(0.0));
    let window = |measure, period, limit| Limit::Window { measure, period, limit };
    Some(match name {
        "tokens-per-minute" => {
            let burst = tokens();
            let per_minute = burst.clamp(1, super::MAX_PER_MINUTE);
            Limit::Rate { measure: Measure::Tokens, per_minute, burst }
        }
        "tokens-per-hour" => window(Measure::Tokens, Period::Hour, tokens()),
        "tokens-per-day" => window(Measure::Tokens, Period::Day, tokens()),
        "usd-per-day" => window(Measure::MicroUsd, Period::Day, usd()),
        "usd-per-month" => window(Measure::MicroUsd, Period::Month, usd()),
        _ => return None,
    })
}

fn charge(bucket: Arc<Bucket>, model: &str, forecast: &Forecast<'_>) -> Result<Charge, Denial> {
    let amount = match bucket.limit.measure() {
        None | Some(Measure::Requests) => 1,
        Some(Measure::Tokens) => forecast.tokens_of(bucket.limit.most()),
        Some(Measure::MicroUsd) => forecast.micro_usd(model)?,
    };
    Ok(Charge { bucket, amount })
}

fn unknown_tier(tier: &str) -> Denial {
    let message = if tier.is_empty() {
        "The token names no tier; ask its issuer to map one.".to_owned()
    } else {
        let tier: String = tier.chars().filter(|c| !c.is_control()).take(64).collect();
        format!("The tier `{tier}` is not known here; ask an operator to add it to [[tiers]].")
    };
    Denial::new(Kind::UnknownTier, message)
}
