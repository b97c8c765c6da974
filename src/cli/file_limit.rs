//! How many files the process may have open: a connection is one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::AdmissionConfig;

/// What is open beside connections: databases, listeners, logs, those to issuers and collectors.
const OTHER_FILES: u64 = 128;

/// Lets the process have as many as its hard limit allows. Shells and service managers give far
/// fewer at first, for the sake of programs that still use `select`.
pub(super) fn raise() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = current != maximum
        && setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
    if raised {
        tracing::info!(from = shown(current), to = shown(maximum), "more files may be open now");
    }
}

/// Says so where fewer files may be open than `admission` lets connections in.
pub(super) fn warn_if_short(admission: &AdmissionConfig) {
    // None: there is no limit.
    let limit = getrlimit(Resource::Nofile).current;
    let needed = needed(admission);
    if limit.is_some_and(|limit| limit < needed) {
        tracing::warn!(
            limit = shown(limit),
            needed,
            "admission lets in more connections than files may be open: raise the limit (ulimit \
             -Hn, LimitNOFILE) or lower admission.max_connections"
        );
    }
}

/// A connection of a client's, and one to a provider for each request in flight.
fn needed(admission: &AdmissionConfig) -> u64 {
    let wide = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    wide(admission.max_connections)
        .saturating_add(wide(admission.max_in_flight))
        .saturating_add(OTHER_FILES)
}

fn shown(limit: Option<u64>) -> String {
    limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string())
}
