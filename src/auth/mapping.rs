//! From a verified token's claims to a [`Caller`].

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
};

use serde_json::{Map, Value};

use super::{AuthSetupError, ClaimPath, Reason};
use crate::{
    config::IssuerConfig,
    domain::{Caller, CapabilitySet, TrustLevel, Vocabulary},
};

/// An issuer's claim mapping, with every path read and every default checked.
#[derive(Debug)]
pub(super) struct ClaimMapping {
    issuer: String,
    subject: ClaimPath,
    tier: ClaimPath,
    capabilities: ClaimPath,
    agent: ClaimPath,
    trust: ClaimPath,
    extra: Vec<(String, ClaimPath)>,
    default_tier: String,
    default_capabilities: CapabilitySet,
    default_trust: TrustLevel,
    vocabulary: Vocabulary,
}

impl ClaimMapping {
    pub(super) fn new(
        index: usize,
        config: &IssuerConfig,
        vocabulary: &Vocabulary,
    ) -> Result<Self, AuthSetupError> {
        let problem = |key, problem| AuthSetupError::Issuer { index, key, problem };
        let path = |key, text: &str| {
            text.parse::<ClaimPath>().map_err(|error| problem(key, format!("`{text}`: {error}")))
        };
        let claims = &config.claims;
        let defaults = &config.defaults;
        let extra = claims.extra.iter();
        let default_capabilities = defaults.capabilities.iter().map(|name| {
            vocabulary.get(name).ok_or_else(|| {
                problem("defaults.capabilities", format!("`{name}` is not in the vocabulary"))
            })
        });
        let default_trust = defaults.trust.as_deref().map_or(Ok(TrustLevel::default()), |text| {
            text.parse().map_err(|error| problem("defaults.trust", format!("`{text}`: {error}")))
        });
        Ok(Self {
            issuer: config.issuer.clone(),
            subject: path("claims.subject", &claims.subject)?,
            tier: path("claims.tier", &claims.tier)?,
            capabilities: path("claims.capabilities", &claims.capabilities)?,
            agent: path("claims.agent", &claims.agent)?,
            trust: path("claims.trust", &claims.trust)?,
            extra: extra
                .map(|(name, text)| Ok((name.clone(), path("claims.extra", text)?)))
                .collect::<Result<_, AuthSetupError>>()?,
            default_tier: defaults.tier.clone().unwrap_or_default(),
            default_capabilities: default_capabilities.collect::<Result<_, _>>()?,
            default_trust: default_trust?,
            vocabulary: vocabulary.clone(),
        })
    }

    /// Adds to `unknown` the number of capability names that are not in the vocabulary.
    pub(super) fn caller(
        &self,
        claims: &Map<String, Value>,
        unknown: &AtomicU64,
    ) -> Result<Caller, Reason> {
        let subject = text(&self.subject, claims, "subject")?.ok_or(Reason::MissingSubject)?;
        Ok(Caller {
            subject: subject.to_owned(),
            issuer: self.issuer.clone(),
            tier: text(&self.tier, claims, "tier")?.unwrap_or(&self.default_tier).to_owned(),
            capabilities: self.capabilities(claims, unknown)?,
            agent: text(&self.agent, claims, "agent")?.map(str::to_owned),
            trust: self.trust(claims)?,
            extra: self.extra(claims)?,
        })
    }

    /// A list or a string that is there and empty is the caller's own "nothing": the defaults
    /// are for tokens that don't say.
    fn capabilities(
        &self,
        claims: &Map<String, Value>,
        unknown: &AtomicU64,
    ) -> Result<CapabilitySet, Reason> {
        let bad = Reason::BadClaim("capabilities");
        let names: Vec<&str> = match self.capabilities.get(claims) {
            None => return Ok(self.default_capabilities.clone()),
            Some(Value::String(names)) => names.split_ascii_whitespace().collect(),
            Some(Value::Array(names)) => {
                names.iter().map(Value::as_str).collect::<Option<_>>().ok_or(bad)?
            }
            Some(_) => return Err(bad),
        };
        let known = names.into_iter().filter_map(|name| {
            let capability = self.vocabulary.get(name);
            if capability.is_none() {
                unknown.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(issuer = self.issuer, name, "a token names an unknown capability");
            }
            capability
        });
        Ok(known.collect())
    }

    fn trust(&self, claims: &Map<String, Value>) -> Result<TrustLevel, Reason> {
        let bad = Reason::BadClaim("trust");
        match self.trust.get_non_empty(claims) {
            None => Ok(self.default_trust),
            Some(Value::String(level)) => level.parse().map_err(|_| bad),
            Some(Value::Number(level)) => level.to_string().parse().map_err(|_| bad),
            Some(_) => Err(bad),
        }
    }

    fn extra(&self, claims: &Map<String, Value>) -> Result<BTreeMap<String, String>, Reason> {
        let mut facts = BTreeMap::new();
        for (name, path) in &self.extra {
            let fact = match path.get_non_empty(claims) {
                None => continue,
                Some(Value::String(text)) => printable(text, "extra")?.to_owned(),
                Some(other) => other.to_string(),
            };
            facts.insert(name.clone(), fact);
        }
        Ok(facts)
    }
}

fn text<'a>(
    path: &ClaimPath,
    claims: &'a Map<String, Value>,
    fact: &'static str,
) -> Result<Option<&'a str>, Reason> {
    match path.get_non_empty(claims) {
        None => Ok(None),
        Some(Value::String(text)) => printable(text, fact).map(Some),
        Some(_) => Err(Reason::BadClaim(fact)),
    }
}

/// These texts go to log lines, headers and databases: a line feed could forge a line, and
/// Postgres can't store a NUL, so one such row would hold up all that are behind it.
fn printable<'a>(text: &'a str, fact: &'static str) -> Result<&'a str, Reason> {
    if text.chars().any(char::is_control) { Err(Reason::BadClaim(fact)) } else { Ok(text) }
}
