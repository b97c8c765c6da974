//! The rules that a configuration must keep. No network; of files, only those it refers to.
//!
//! One submodule a section. A rule notes its key, what is wrong and what to do, and goes on.

mod auth;
mod budget;
mod catalog;
mod name;
mod redaction;
mod server;
mod service;
mod url;

use std::ops::RangeInclusive;

use super::{Config, ConfigErrors, findings::Findings, unavailable};

/// Checks a configuration that was put together in code, by the same rules as a file.
///
/// # Errors
/// Every rule that is broken.
pub fn validate(config: &Config) -> Result<(), ConfigErrors> {
    let mut found = Findings::default();
    check(config, &mut found);
    let errors = found.into_errors();
    if errors.is_empty() { Ok(()) } else { Err(ConfigErrors::new(errors)) }
}

pub(super) fn check(config: &Config, found: &mut Findings) {
    unavailable::refuse(config, found);
    server::check(&config.server, found);
    server::check_admission(&config.admission, found);
    auth::check(config, found);
    catalog::check_providers(&config.providers, found);
    catalog::check_models(config, found);
    catalog::check_tools(config, found);
    catalog::check_tiers(config, found);
    catalog::check_claims(config, found);
    budget::check(&config.budget, found);
    redaction::check(&config.redaction, found);
    service::check_audit(config, found);
    service::check_stream(&config.stream, found);
    service::check_telemetry(&config.telemetry, found);
}

/// Notes each of `numbers` that is out of its bounds. `table` is their table's key.
fn bounds(found: &mut Findings, table: &str, numbers: &[(&str, u64, RangeInclusive<u64>)]) {
    for (name, number, allowed) in numbers {
        if !allowed.contains(number) {
            let (min, max) = (allowed.start(), allowed.end());
            let message = format!("must be from {min} to {max}, not {number}");
            found.add(format!("{table}.{name}"), message);
        }
    }
}

/// A `usize` for [`bounds`].
fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// A value for a message, quoted and cut. Not for secrets.
fn shown(text: &str) -> String {
    let cut: String = text.chars().take(64).collect();
    format!("{cut:?}")
}
