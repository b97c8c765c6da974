//! What a bucket is: whose it is, its limit, and how it stands.

use std::fmt;

use crate::domain::MicroUsd;

const MINUTE_MICROS: u64 = 60_000_000;
/// A rate may be no higher: above it a microsecond is too coarse a step.
pub const MAX_PER_MINUTE: u64 = 60_000_000;

/// Whose a bucket is: all calls of the same scope share it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    TierModel {
        tier: String,
        model: String,
    },
    /// All callers of a model.
    Model {
        model: String,
    },
    Tier {
        tier: String,
    },
    Agent {
        issuer: String,
        agent: String,
    },
    Claim {
        name: String,
        value: String,
    },
}

/// Names it as a refusal does.
impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TierModel { tier, model } => write!(f, "tier {tier} for {model}"),
            Self::Model { model } => f.write_str(model),
            Self::Tier { tier } => write!(f, "tier {tier}"),
            Self::Agent { agent, .. } => write!(f, "agent {agent}"),
            Self::Claim { name, value } => write!(f, "{name} {value}"),
        }
    }
}

/// What a bucket counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Measure {
    Requests,
    Tokens,
    MicroUsd,
}

/// A calendar window, in UTC: an hour, a day, a month.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Period {
    Hour,
    Day,
    Month,
}

impl Period {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Month => "month",
        }
    }
}

/// A limit and its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// A token bucket that holds `burst` and refills at `per_minute`, kept as GCRA.
    Rate { measure: Measure, per_minute: u64, burst: u64 },
    /// Slots that are taken while a call runs.
    Slots(u32),
    /// No more than `limit` in each calendar window. What is spent beyond it is taken off the
    /// next one.
    Window { measure: Measure, period: Period, limit: u64 },
}

impl Limit {
    /// What a reservation is counted in; slots count calls.
    #[must_use]
    pub const fn measure(&self) -> Option<Measure> {
        match self {
            Self::Rate { measure, .. } | Self::Window { measure, .. } => Some(*measure),
            Self::Slots(_) => None,
        }
    }

    /// The most that one call can ever take of it.
    #[must_use]
    pub fn most(&self) -> u64 {
        match *self {
            Self::Rate { burst, .. } => burst,
            Self::Slots(slots) => u64::from(slots),
            Self::Window { limit, .. } => limit,
        }
    }

    /// How far a rate's theoretical arrival time moves for `amount`, in microseconds. Rounded up
    /// for the whole amount, so that the rate is never above the limit.
    ///
    /// Requests come one by one, so each takes a whole interval, and a burst is that many of them.
    pub(super) fn rate_micros(&self, amount: u64) -> u64 {
        let Self::Rate { measure, per_minute, .. } = *self else { return 0 };
        let per_minute = per_minute.clamp(1, MAX_PER_MINUTE);
        if measure == Measure::Requests {
            return MINUTE_MICROS.div_ceil(per_minute).saturating_mul(amount);
        }
        // A division of 128 bits takes many times as long, and nearly no amount needs it.
        if let Some(product) = amount.checked_mul(MINUTE_MICROS) {
            return product.div_ceil(per_minute);
        }
        let micros = (u128::from(amount) * u128::from(MINUTE_MICROS)).div_ceil(per_minute.into());
        u64::try_from(micros).unwrap_or(u64::MAX)
    }

    /// What `micros` of a rate's time are worth, rounded down.
    pub(super) fn rate_amount(&self, micros: u64) -> u64 {
        let Self::Rate { measure, per_minute, .. } = *self else { return 0 };
        let per_minute = per_minute.clamp(1, MAX_PER_MINUTE);
        if measure == Measure::Requests {
            return micros / MINUTE_MICROS.div_ceil(per_minute);
        }
        if let Some(product) = micros.checked_mul(per_minute) {
            return product / MINUTE_MICROS;
        }
        let amount = u128::from(micros) * u128::from(per_minute) / u128::from(MINUTE_MICROS);
        u64::try_from(amount).unwrap_or(u64::MAX)
    }

    /// How far ahead of now a rate's bucket may be filled, in microseconds.
    pub(super) fn burst_micros(&self) -> u64 {
        let Self::Rate { burst, .. } = *self else { return 0 };
        self.rate_micros(burst)
    }
}

/// One bucket that a call must pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    pub scope: Scope,
    pub limit: Limit,
    key: String,
}

impl Bucket {
    #[must_use]
    pub fn new(scope: Scope, limit: Limit) -> Self {
        let mut key = String::with_capacity(64);
        let parts: [&str; 3] = match &scope {
            Scope::TierModel { tier, model } => ["model", tier, model],
            Scope::Model { model } => ["all", model, ""],
            Scope::Tier { tier } => ["tier", tier, ""],
            Scope::Agent { issuer, agent } => ["agent", issuer, agent],
            Scope::Claim { name, value } => ["claim", name, value],
        };
        for part in parts {
            escape(part, &mut key);
            key.push(':');
        }
        key.push_str(match limit {
            Limit::Slots(_) => "slots",
            Limit::Rate { measure: Measure::Requests, .. } => "requests-per-minute",
            Limit::Rate { .. } => "tokens-per-minute",
            Limit::Window { measure: Measure::MicroUsd, period: Period::Hour, .. } => {
                "usd-per-hour"
            }
            Limit::Window { measure: Measure::MicroUsd, period: Period::Day, .. } => "usd-per-day",
            Limit::Window { measure: Measure::MicroUsd, .. } => "usd-per-month",
            Limit::Window { period: Period::Hour, .. } => "tokens-per-hour",
            Limit::Window { period: Period::Day, .. } => "tokens-per-day",
            Limit::Window { .. } => "tokens-per-month",
        });
        Self { scope, limit, key }
    }

    /// The same bucket, of which another limit is asked.
    pub(super) fn with_limit(&self, limit: Limit) -> Self {
        Self { scope: self.scope.clone(), limit, key: self.key.clone() }
    }

    /// Its name in every store: parts that a token chooses can't reach into another's.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What it limits, as configuration and capabilities call it: `tokens-per-day`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.key.rsplit(':').next().unwrap_or_default()
    }
}

/// `:` parts a key, and braces would choose its slot in a Redis cluster.
fn escape(part: &str, key: &mut String) {
    for c in part.chars() {
        match c {
            '%' => key.push_str("%25"),
            ':' => key.push_str("%3A"),
            '{' => key.push_str("%7B"),
            '}' => key.push_str("%7D"),
            c => key.push(c),
        }
    }
}

/// What one call takes of one bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charge {
    pub bucket: std::sync::Arc<Bucket>,
    /// In the bucket's measure; 1 for slots.
    pub amount: u64,
}

/// How a bucket stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standing {
    pub limit: u64,
    /// What is spent, without what is reserved. Of a rate: what has not leaked away yet.
    pub used: u64,
    pub reserved: u64,
    pub remaining: u64,
    /// Until the bucket is full again, or the window's end.
    pub reset_micros: u64,
}

/// An amount as a person reads it.
pub(super) fn amount_text(measure: Option<Measure>, amount: u64) -> String {
    match measure {
        Some(Measure::MicroUsd) => format!("${}", MicroUsd(amount)),
        Some(Measure::Tokens) => format!("{amount} tokens"),
        Some(Measure::Requests) => format!("{amount} requests"),
        None => format!("{amount} calls"),
    }
}
