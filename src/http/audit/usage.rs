//! GET /v1/usage.

use axum::{Json, extract::State};
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::{
    READ,
    params::{Params, UsageParams},
    require,
};
use crate::{
    audit::query::{Dimension, Sums, Usage, UsageFilter},
    http::{
        ApiError, AppState,
        extract::Call,
        openapi::{
            answer::{Errors, QueryErrors},
            audit::UsageReport,
        },
    },
};

/// What was spent: calls, tokens and cost, by day and by who spent it.
///
/// Takes the capability `audit:read`. Calls count once they have ended, on the day they did. At most
/// 1,000 groups are listed, those that cost the most; `total` is of all.
#[utoipa::path(
    get,
    path = "/v1/usage",
    tag = "audit",
    params(UsageParams),
    responses(
        (status = 200, description = "The sums", body = UsageReport),
        QueryErrors,
        Errors,
    ),
    security(("token" = [])),
)]
pub async fn get_usage(
    State(state): State<AppState>,
    call: Call,
    params: Params,
) -> Result<Json<Value>, ApiError> {
    require(&call, READ)?;
    let mut filter = UsageFilter::until(Timestamp::now());
    params.each(|name, value| filter.set(name, value))?;
    let usage = state.trail().usage(&filter).await?;
    Ok(Json(report(&filter, &usage)))
}

fn report(filter: &UsageFilter, usage: &Usage) -> Value {
    let group = |key: &[Option<String>], sums: &Sums| {
        let key = filter.group_by.iter().copied().map(Dimension::name).zip(key);
        let mut group: Map<String, Value> =
            key.map(|(name, value)| (name.to_owned(), Value::from(value.clone()))).collect();
        if let Ok(Value::Object(sums)) = serde_json::to_value(sums) {
            group.extend(sums);
        }
        Value::Object(group)
    };
    let data = usage.groups.iter().map(|one| group(&one.key, &one.sums)).collect::<Vec<_>>();
    serde_json::json!({
        "object": "list",
        "from": filter.from.to_string(),
        "to": filter.to.to_string(),
        "total": usage.total,
        "data": data,
        "truncated": usage.is_cut,
    })
}
