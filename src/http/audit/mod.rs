//! GET /v1/audit, `/v1/runs/{run_id}` and /v1/usage: who did what, and what it cost.

mod content;
mod entries;
mod params;
mod runs;
mod usage;

pub use entries::{__path_list_audit_entries, list_audit_entries};
pub use runs::{__path_get_run, get_run};
pub use usage::{__path_get_usage, get_usage};

use super::{ApiError, extract::Call};
use crate::{
    audit::query::QueryError,
    domain::{Denial, Kind},
    pipeline::Refused,
};

/// Takes to read the trail, and to read what was asked and answered.
const READ: &str = "audit:read";
const READ_CONTENT: &str = "audit:content";

fn require(call: &Call, capability: &str) -> Result<(), ApiError> {
    if call.caller().capabilities.has(capability) {
        return Ok(());
    }
    let message = format!("This takes the capability `{capability}`, which the token lacks.");
    let denial = Denial::new(Kind::CapabilityDenied, message);
    Err(ApiError::from(Refused { required: Some(capability.to_owned()), ..denial.into() }))
}

impl From<QueryError> for ApiError {
    fn from(error: QueryError) -> Self {
        denial(&error).into()
    }
}

fn denial(error: &QueryError) -> Denial {
    match error {
        QueryError::Read(_) => {
            tracing::error!(%error, "the audit trail can't be read");
            let message = "The audit trail cannot be read; try again.";
            Denial::new(Kind::AuditUnavailable, message).with_retry_after_ms(1_000)
        }
        QueryError::TooSlow(_) => {
            let message = format!("{error}.");
            Denial::new(Kind::QueryTooSlow, message).with_param("from")
        }
        QueryError::Busy => {
            Denial::new(Kind::Overloaded, format!("{error}; try again.")).with_retry_after_ms(1_000)
        }
    }
}
