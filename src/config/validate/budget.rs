//! `[budget]`.

use super::{bounds, url, wide};
use crate::config::{BudgetConfig, LedgerKind, decode_notify_secret, findings::Findings};

const NOTIFY_URL: &str = "budget.notify_url";
const NOTIFY_SECRET: &str = "budget.notify_secret";

/// A lease is of 50 ms at most: it bounds what several gateways let in beyond a rate.
const MAX_LEASE_MS: u64 = 50;

pub(super) fn check(budget: &BudgetConfig, found: &mut Findings) {
    check_lease(budget, found);
    let queue = [
        ("queue_limit", wide(budget.queue_limit), 1..=100_000),
        // A call that waits longer than any client does holds a place for nobody.
        ("queue_wait_ms", budget.queue_wait_ms, 0..=600_000),
    ];
    bounds(found, "budget", &queue);
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
