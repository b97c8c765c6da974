//! `[budget]`.

use super::url;
use crate::config::{BudgetConfig, decode_notify_secret, findings::Findings};

const NOTIFY_URL: &str = "budget.notify_url";
const NOTIFY_SECRET: &str = "budget.notify_secret";

pub(super) fn check(budget: &BudgetConfig, found: &mut Findings) {
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
