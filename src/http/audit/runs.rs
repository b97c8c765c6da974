//! GET `/v1/runs/{run_id}`.

use axum::{Json, extract::State};

use super::{
    READ,
    params::{Params, field},
    require,
};
use crate::{
    audit::query::{Cursor, Field, Filter, Order, PAGE_ENTRIES, RUN_ENTRIES, Run},
    domain::{Denial, Kind},
    http::{
        ApiError, AppState,
        extract::{Call, PathId},
        openapi::{
            answer::{Errors, ErrorsOfOne, QueryErrors},
            audit::AuditRun,
        },
    },
};

/// What to look for in a run.
pub struct RunParams;

impl utoipa::IntoParams for RunParams {
    fn into_params(
        _: impl Fn() -> Option<utoipa::openapi::path::ParameterIn>,
    ) -> Vec<utoipa::openapi::path::Parameter> {
        vec![field(Field::InputHash)]
    }
}

/// A run: what was done in it, call by call.
///
/// Takes the capability `audit:read`. The calls come in the order in which they were begun, each
/// with what came of it. To ask "did we already try this?", give the `input_hash` of a request: the
/// SHA-256 of its body, with the secrets taken out if there are any.
#[utoipa::path(
    get,
    path = "/v1/runs/{run_id}",
    tag = "audit",
    params(
        ("run_id" = String, Path, description = "The run's `x-run-id`", example = "nightly-42"),
        RunParams,
    ),
    responses(
        (status = 200, description = "The run", body = AuditRun),
        ErrorsOfOne,
        QueryErrors,
        Errors,
    ),
    security(("token" = [])),
)]
pub async fn get_run(
    State(state): State<AppState>,
    call: Call,
    PathId(run_id): PathId,
    params: Params,
) -> Result<Json<Run>, ApiError> {
    require(&call, READ)?;
    let mut asked = Filter::default();
    params.each(|name, value| {
        if name == Field::InputHash.name() {
            asked.set_field(Field::InputHash, value)?;
            return Ok(true);
        }
        Ok(false)
    })?;
    let mut filter = Filter::default();
    filter.set_field(Field::RunId, &run_id).map_err(|_| no_such_run())?;
    let mut entries = Vec::new();
    // One more than is shown, to know whether that is all.
    while entries.len() <= RUN_ENTRIES {
        let behind = entries.last().map(Cursor::from);
        let page = state.trail().page(&filter, Order::OldestFirst, behind, PAGE_ENTRIES).await?;
        let is_last = page.len() < PAGE_ENTRIES as usize;
        entries.extend(page);
        if is_last {
            break;
        }
    }
    if entries.is_empty() {
        return Err(no_such_run());
    }
    let input_hash = asked.terms().first().map(|(_, hash)| hash.as_str());
    Ok(Json(Run::new(run_id, entries, input_hash)))
}

fn no_such_run() -> ApiError {
    let kind = Kind::RunNotFound;
    Denial::new(kind, kind.meaning()).with_param("run_id").into()
}
