//! GET /v1/budgets/me, and the same for an operator on the admin port: how buckets stand.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Query, State},
};
use http::StatusCode;
use jiff::{Timestamp, ToSpan};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    ApiError, AppState,
    extract::Call,
    openapi::{
        answer::{Errors, Forbidden},
        schema::{BudgetList, BudgetObject},
    },
};
use crate::budget::{Bucket, LedgerError, Measure, Refusal, Scope, Standing};

/// The caller's budgets and limits, and how they stand.
///
/// Those of the models that the caller may use, of its tier, its agent and its claims: what any of
/// its calls would have to pass. Some are shared with others.
#[utoipa::path(
    get,
    path = "/v1/budgets/me",
    tag = "budgets",
    responses((status = 200, description = "The budgets", body = BudgetList), Forbidden, Errors),
    security(("token" = [])),
)]
pub async fn list_my_budgets(
    State(state): State<AppState>,
    call: Call,
) -> Result<Json<BudgetList>, ApiError> {
    let snapshot = state.gateway().snapshot.load_full();
    let caller = call.caller();
    let may_use = |bucket: &Arc<Bucket>| match &bucket.scope {
        Scope::TierModel { model, .. } | Scope::Model { model } => snapshot
            .registry
            .get(model)
            .is_some_and(|model| model.requires.intersects(&caller.capabilities)),
        _ => true,
    };
    let mut buckets = snapshot.limits.buckets(caller, None)?;
    buckets.retain(may_use);
    list(&state, &buckets).await.map_err(|error| Refusal::from(error).to_denial().into())
}

/// Whose budgets an operator asks for.
#[derive(Debug, Deserialize)]
pub(super) struct Asked {
    agent: String,
}

/// On the admin port: the buckets that an agent's calls have met at this instance.
pub(super) async fn list_budgets(
    State(state): State<AppState>,
    Query(Asked { agent }): Query<Asked>,
) -> Result<Json<BudgetList>, (StatusCode, Json<Value>)> {
    // No layer renders errors on this port.
    let problem = |status: StatusCode, title: &str| {
        (status, Json(json!({ "title": title, "status": status.as_u16() })))
    };
    let buckets = state.gateway().budgets.met_by(&agent);
    if buckets.is_empty() {
        let message = "No call of an agent or subject of that name was seen here since the start.";
        return Err(problem(StatusCode::NOT_FOUND, message));
    }
    list(&state, &buckets).await.map_err(|error| {
        tracing::warn!(%error, "an operator could not be told how budgets stand");
        problem(StatusCode::SERVICE_UNAVAILABLE, "The budget store does not answer; try again.")
    })
}

async fn list(state: &AppState, buckets: &[Arc<Bucket>]) -> Result<Json<BudgetList>, LedgerError> {
    let asked: Vec<&Bucket> = buckets.iter().map(|bucket| &**bucket).collect();
    let standings = state.gateway().budgets.standings(&asked).await?;
    let now = Timestamp::now();
    let data = asked.iter().zip(standings).map(|(bucket, it)| object(bucket, &it, now)).collect();
    Ok(Json(BudgetList { object: "list", data }))
}

fn object(bucket: &Bucket, standing: &Standing, now: Timestamp) -> BudgetObject {
    let reset = i64::try_from(standing.reset_micros).unwrap_or(i64::MAX);
    let (model, owner) = match &bucket.scope {
        Scope::TierModel { tier, model } => (Some(model.clone()), format!("tier:{tier}")),
        Scope::Model { model } => (Some(model.clone()), "all".to_owned()),
        Scope::Tier { tier } => (None, format!("tier:{tier}")),
        Scope::Agent { agent, .. } => (None, format!("agent:{agent}")),
        Scope::Claim { name, value } => (None, format!("{name}:{value}")),
    };
    BudgetObject {
        budget: bucket.name().to_owned(),
        owner,
        model,
        unit: match bucket.limit.measure() {
            Some(Measure::Requests) => "requests",
            Some(Measure::Tokens) => "tokens",
            Some(Measure::MicroUsd) => "micro_usd",
            None => "calls",
        },
        limit: standing.limit,
        used: standing.used,
        reserved: standing.reserved,
        remaining: standing.remaining,
        // A slot comes back when a call ends, which nobody knows.
        resets_at: (!bucket.limit.is_slots()).then(|| {
            let reset = now.checked_add(reset.microseconds()).unwrap_or(Timestamp::MAX);
            format!("{reset:.3}")
        }),
    }
}
