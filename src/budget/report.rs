//! How a call's buckets stand, as its answer's headers say.

use std::sync::Arc;

use super::{Bucket, Charge, Limit, Measure, Standing, window};

/// The tightest bucket of a kind, and all that have a window.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    pub requests: Option<Standing>,
    pub tokens: Option<Standing>,
    /// Money is no part of it: what a call cost is the caller's to see, not each proxy's.
    pub policies: Vec<Policy>,
}

/// One bucket of requests or tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Of several with one name, the tightest.
    pub bucket: Arc<Bucket>,
    pub window_s: u64,
    pub standing: Standing,
}

impl Report {
    #[must_use]
    pub fn new(charges: &[Charge], standings: &[Standing]) -> Self {
        let mut report = Self::default();
        for (Charge { bucket, .. }, standing) in charges.iter().zip(standings) {
            let window_s = match bucket.limit {
                Limit::Slots(_) => continue,
                Limit::Rate { .. } => 60,
                Limit::Window { period, .. } => window::length_s(period),
            };
            let tightest = match bucket.limit.measure() {
                Some(Measure::Requests) => &mut report.requests,
                Some(Measure::Tokens) => &mut report.tokens,
                Some(Measure::MicroUsd) | None => continue,
            };
            if tightest.is_none_or(|other| standing.remaining < other.remaining) {
                *tightest = Some(*standing);
            }
            let same =
                report.policies.iter_mut().find(|policy| policy.bucket.name() == bucket.name());
            match same {
                Some(other) if other.standing.remaining <= standing.remaining => {}
                Some(other) => other.standing = *standing,
                None => report.policies.push(Policy {
                    bucket: Arc::clone(bucket),
                    window_s,
                    standing: *standing,
                }),
            }
        }
        report
    }
}
