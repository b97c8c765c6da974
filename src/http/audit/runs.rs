//! GET `/v1/runs/{run_id}`.

use axum::{
    Json,
    extract::State,
    response::{IntoResponse as _, Response},
};
use jiff::Timestamp;
use serde::Serialize;

use super::{
    READ, READ_CONTENT,
    content::{self, WithContent, contents},
    params::{Params, content_param, field},
    require,
};
use crate::{
    audit::query::{
        AuditQuery, CONTENT_ENTRIES, Cursor, Field, Filter, Order, PAGE_ENTRIES, RUN_ENTRIES, Run,
        RunCall, RunTotals,
    },
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
        vec![field(Field::InputHash), content_param()]
    }
}

/// A run: what was done in it, call by call.
///
/// Takes the capability `audit:read`. The calls come in the order in which they were begun, each
/// with what came of it. To ask "did we already try this?", give the `input_hash` of a request: the
/// SHA-256 of its body, with the secrets taken out if there are any. With `content=true`, which takes
/// the capability `audit:content` too, the first 50 calls have what was asked and answered.
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
) -> Result<Response, ApiError> {
    require(&call, READ)?;
    let (mut asked, mut has_content) = (Filter::default(), false);
    params.each(|name, value| {
        if name == "content" {
            has_content = content::read(value)?;
            return Ok(true);
        }
        if name == Field::InputHash.name() {
            asked.set_field(Field::InputHash, value)?;
            return Ok(true);
        }
        Ok(false)
    })?;
    if has_content {
        require(&call, READ_CONTENT)?;
    }
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
    let run = Run::new(run_id, entries, input_hash);
    Ok(if has_content {
        with_contents(&**state.trail(), &run).await?
    } else {
        Json(run).into_response()
    })
}

/// The most calls of a run that are told with their contents: 6 MiB, if all is kept of all.
const CALLS: usize = CONTENT_ENTRIES as usize;

async fn with_contents(trail: &dyn AuditQuery, run: &Run) -> Result<Response, ApiError> {
    let shown = &run.calls[..run.calls.len().min(CALLS)];
    let ids: Vec<&str> = shown.iter().map(|call| call.entry_id.as_str()).collect();
    let mut found = contents(trail, &ids).await?;
    let calls: Vec<_> = shown
        .iter()
        .map(|told| WithContent { told, sides: found.remove(&told.entry_id) })
        .collect();
    Ok(Json(Told {
        run_id: &run.run_id,
        started_at: run.started_at,
        last_at: run.last_at,
        totals: run.totals,
        truncated: run.truncated || shown.len() < run.calls.len(),
        calls,
    })
    .into_response())
}

/// A [`Run`] with the contents of its calls.
#[derive(Serialize)]
struct Told<'a> {
    run_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_at: Option<Timestamp>,
    totals: RunTotals,
    calls: Vec<WithContent<'a, RunCall>>,
    truncated: bool,
}

fn no_such_run() -> ApiError {
    let kind = Kind::RunNotFound;
    Denial::new(kind, kind.meaning()).with_param("run_id").into()
}
