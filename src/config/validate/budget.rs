//! `[budget]`.

use http::Uri;
use secrecy::{ExposeSecret, SecretString};

use super::{bounds, url, wide};
use crate::config::{BudgetConfig, LedgerKind, decode_notify_secret, findings::Findings};

const REDIS_URL: &str = "budget.redis_url";
/// More gateways than anybody has.
const MAX_REPLICAS: u64 = 1_000;

const NOTIFY_URL: &str = "budget.notify_url";
const NOTIFY_SECRET: &str = "budget.notify_secret";

/// A lease is of 50 ms at most: it bounds what several gateways let in beyond a rate.
const MAX_LEASE_MS: u64 = 50;

pub(super) fn check(budget: &BudgetConfig, found: &mut Findings) {
    check_store(budget, found);
    check_lease(budget, found);
    check_notice(budget, found);
}

fn check_store(budget: &BudgetConfig, found: &mut Findings) {
    let numbers = [
        ("replicas", budget.replicas.into(), 1..=MAX_REPLICAS),
        ("queue_limit", wide(budget.queue_limit), 1..=100_000),
        // A call that waits longer than any client does holds a place for nobody.
        ("queue_wait_ms", budget.queue_wait_ms, 0..=600_000),
    ];
    bounds(found, "budget", &numbers);
    match &budget.redis_url {
        Some(url) => {
            if let Err(message) = check_redis_url(url) {
                found.add(REDIS_URL, message);
            }
        }
        None => found.require(
            budget.store == LedgerKind::Memory,
            REDIS_URL,
            "is missing; write redis://host:6379/0, or rediss:// for TLS, or use store = \"memory\"",
        ),
    }
}

/// What is wrong with it, without showing it: it holds a password.
fn check_redis_url(url: &SecretString) -> Result<(), &'static str> {
    let text = url.expose_secret();
    if !(text.starts_with("redis://") || text.starts_with("rediss://")) {
        return Err("must begin with redis:// or rediss:// (TLS)");
    }
    if text.contains('#') {
        return Err("has no fragment (\"#…\"); remove it (in a password, write %23)");
    }
    let malformed = "is not a URL; write redis://:password@host:6379/0";
    let url: Uri = text.parse().map_err(|_| malformed)?;
    if url.host().is_none_or(str::is_empty) {
        return Err(malformed);
    }
    let database = url.path().trim_start_matches('/');
    if !database.is_empty() && database.parse::<u16>().is_err() {
        return Err("has a path that is none; write the database's number, as in redis://host/0");
    }
    Ok(())
}

fn check_notice(budget: &BudgetConfig, found: &mut Findings) {
    match budget.notify_url.as_deref().map(url::parse) {
        None => {}
        Some(Ok(url)) => found.require(
            url.scheme_str() == Some("https") || url::is_loopback(&url),
            NOTIFY_URL,
            "must be https; a notice says who spent what (plain http only on loopback)",
        ),
        Some(Err(message)) => found.add(NOTIFY_URL, message),
    }
    match &budget.notify_secret {
        Some(secret) => {
            if let Err(message) = decode_notify_secret(secret) {
                found.add(NOTIFY_SECRET, message);
            }
            // An URL that could not be read is there all the same.
            let is_used = budget.notify_url.is_some() || found.in_hole(NOTIFY_URL);
            found.require(is_used, NOTIFY_SECRET, "signs nothing; set notify_url, or remove it");
        }
        None => found.require(
            budget.notify_url.is_none(),
            NOTIFY_SECRET,
            "is missing; the receiver of notify_url knows our notices by it: \
             openssl rand -base64 32, with whsec_ before it",
        ),
    }
}

fn check_lease(budget: &BudgetConfig, found: &mut Findings) {
    bounds(found, "budget", &[("lease_ms", budget.lease_ms, 0..=MAX_LEASE_MS)]);
    found.require(
        budget.lease_ms == 0 || budget.store != LedgerKind::Memory,
        "budget.lease_ms",
        "saves round trips to a shared store, and store = \"memory\" has none; use 0, or \"redis\"",
    );
}
