//! Health, on the admin port alone.

use axum::{Json, extract::State};
use http::StatusCode;
use serde_json::{Value, json};

use super::AppState;

/// The process runs.
pub(super) async fn livez() -> Json<Value> {
    Json(json!({ "status": "ok" }))
}

/// Requests may be sent here: not draining, audit writable, every issuer's keys at hand.
pub(super) async fn readyz(State(state): State<AppState>) -> (StatusCode, Json<Value>) {
    let mut reasons: Vec<String> = Vec::new();
    if !state.readiness().get() {
        reasons.push("starting or shutting down".to_owned());
    }
    let audit = &state.gateway().audit;
    if audit.status().is_spool_full {
        let full = "the audit spool is full: the store has not taken what waits in it";
        reasons.push(full.to_owned());
    } else if !audit.healthy() {
        reasons.push("the audit trail cannot be written".to_owned());
    }
    if let Err(reason) = state.authenticator().ready() {
        reasons.push(reason);
    }
    if reasons.is_empty() {
        (StatusCode::OK, Json(json!({ "status": "ok" })))
    } else {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            Json(json!({ "status": "unavailable", "reasons": reasons })),
        )
    }
}
