//! From `[redaction]` to an engine: own rules beside the built-in ones, and what passes them.

use std::{fmt, sync::Arc};

use secrecy::ExposeSecret as _;

use super::{
    Engine, Need, PlaceholderKey, RedactorError, Rule, RuleError, RuleSet,
    allow::{AllowList, Allowed},
    rule::MAX_OWN_RULES,
};
use crate::config::{OwnRuleConfig, RedactionConfig, RuleNeed, did_you_mean};

/// What is wrong with own rules or the allow-list: everything at once, and no secret.
#[derive(Debug, PartialEq, Eq)]
pub struct SetupErrors(Vec<String>);

const RULES: &str = "redaction.rules";
const ALLOW: &str = "redaction.allow";

/// The key of what is wrong, and why.
type Fault = (String, String);

impl SetupErrors {
    fn new(faults: impl IntoIterator<Item = Fault>) -> Self {
        Self(faults.into_iter().map(|(key, message)| format!("{key}: {message}")).collect())
    }
}

/// A line each, with its key before it.
impl fmt::Display for SetupErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for SetupErrors {}

/// The engine that `config` asks for; the built-in one where it asks for nothing of its own.
///
/// # Errors
/// [`SetupErrors`], or that all rules together are too large.
pub(super) fn engine(
    config: &RedactionConfig,
    key: &PlaceholderKey,
) -> Result<Arc<Engine>, RedactorError> {
    if config.rules.is_empty() && config.allow.is_empty() {
        return Ok(Engine::built_in()?);
    }
    let own: Vec<Rule> = config.rules.iter().map(rule).collect();
    let built_in = RuleSet::built_in()?;
    let faults = faults(config, &own, &built_in);
    if !faults.is_empty() {
        return Err(SetupErrors::new(faults).into());
    }
    let engine = RuleSet::with_own(own).and_then(|set| Engine::compile(&set));
    let engine =
        engine.map_err(|error| SetupErrors::new([(RULES.to_owned(), error.to_string())]))?;
    Ok(Arc::new(engine.allowing(allow_list(config, key))))
}

/// What is wrong with own rules and with the allow-list, each by itself: keys, and why. That all
/// rules together are too large only the engine knows.
#[must_use]
pub fn rule_faults(config: &RedactionConfig) -> Vec<Fault> {
    let own: Vec<Rule> = config.rules.iter().map(rule).collect();
    // Of the built-in rules a test says that they can be read.
    RuleSet::built_in().map_or_else(|_| Vec::new(), |built_in| faults(config, &own, &built_in))
}

fn faults(config: &RedactionConfig, own: &[Rule], built_in: &RuleSet) -> Vec<Fault> {
    let mut faults = own_faults(built_in, own);
    if own.len() > MAX_OWN_RULES {
        faults.push((RULES.to_owned(), RuleError::TooMany(own.len()).to_string()));
    }
    faults.extend(allow_faults(config, built_in, own));
    faults
}

fn rule(own: &OwnRuleConfig) -> Rule {
    let need = |need: &RuleNeed| match need {
        RuleNeed::Digit => Need::Digit,
        RuleNeed::Letter => Need::Letter,
        RuleNeed::Mixed => Need::Mixed,
        RuleNeed::NoStopWord => Need::NoStopWord,
        RuleNeed::NoSample => Need::NoSample,
    };
    Rule {
        name: own.name.as_str().into(),
        prefixes: own.prefixes.clone(),
        pattern: own.pattern.clone(),
        max: own.max,
        boundary: own.boundary,
        needs: own.needs.iter().map(need).collect(),
        entropy: own.entropy,
        allow: own.allow.iter().map(|secret| secret.expose_secret().to_owned()).collect(),
        source: own.source.clone().unwrap_or_default(),
    }
}

fn own_faults(built_in: &RuleSet, own: &[Rule]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (index, rule) in own.iter().take(MAX_OWN_RULES).enumerate() {
        let taken = |other: &Rule| other.name == rule.name;
        let fault = if built_in.names().any(|name| *name == rule.name) {
            Err(RuleError::of(&rule.name, "a built-in rule has this name"))
        } else if own[..index].iter().any(taken) {
            Err(RuleError::of(&rule.name, "another rule has this name"))
        } else {
            Engine::check_own(rule)
        };
        if let Err(error) = fault {
            faults.push((format!("{RULES}[{index}]"), in_one_line(&error)));
        }
    }
    faults
}

/// What is wrong with a pattern comes with a drawing of it, and the reason in its last line.
fn in_one_line(error: &RuleError) -> String {
    let told = error.to_string();
    match (told.split_once('\n'), told.rsplit_once("\nerror: ")) {
        (Some((first, _)), Some((_, reason))) => format!("{first} {}", reason.replace('\n', " ")),
        _ => told,
    }
}

fn allow_faults(config: &RedactionConfig, built_in: &RuleSet, own: &[Rule]) -> Vec<Fault> {
    let own = own.iter().map(|rule| &*rule.name);
    let names: Vec<&str> = built_in.names().map(|name| &**name).chain(own).collect();
    let unknown = |rule: &&String| !names.contains(&rule.as_str());
    let fault = |rule: &String| {
        let hint = did_you_mean(rule, &names);
        let hint = hint.unwrap_or_else(|| "`tollgate redact --rules` lists them".to_owned());
        (ALLOW.to_owned(), format!("there is no rule {rule:?}; {hint}"))
    };
    config.allow.keys().filter(unknown).map(fault).collect()
}

fn allow_list(config: &RedactionConfig, key: &PlaceholderKey) -> AllowList {
    let allowed = config.allow.iter().flat_map(|(rule, secrets)| {
        let one = |text: &secrecy::SecretString| Allowed::parse(text.expose_secret());
        secrets.iter().map(move |text| (rule.as_str(), one(text)))
    });
    AllowList::new(allowed, key.clone())
}
