//! GET /v1/audit.

use std::{collections::HashMap, sync::Arc};

use axum::{
    Json,
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, header};
use jiff::Timestamp;
use serde::Serialize;

use super::{
    READ, READ_CONTENT,
    content::{self, WithContent, contents},
    denial,
    params::{FilterParams, LONGEST_PAGE, PageParams, Params, read},
    require,
};
use crate::{
    audit::{
        StoredEntry,
        query::{AuditQuery, CONTENT_ENTRIES, Cursor, Filter, Order, QueryError},
    },
    http::{
        ApiError, AppState,
        error::openai_body,
        extract::Call,
        openapi::{
            answer::{Errors, QueryErrors},
            audit::AuditEntries,
        },
    },
};

/// The entries of a page where no other number is asked for.
const PAGE: u32 = 100;
const NDJSON: &str = "application/x-ndjson";

/// What was asked for.
struct Asked {
    filter: Filter,
    behind: Option<Cursor>,
    limit: Option<u32>,
    has_content: bool,
}

impl Asked {
    fn read(params: Params) -> Result<Self, ApiError> {
        let mut asked =
            Self { filter: Filter::default(), behind: None, limit: None, has_content: false };
        let now = Timestamp::now();
        params.each(|name, value| {
            match name {
                "cursor" => {
                    let expected = "a page's `next_cursor` as it is";
                    asked.behind = Some(read("cursor", value, expected, |_| true)?);
                }
                "limit" => {
                    let is_fit = |limit: &u32| (1..=LONGEST_PAGE).contains(limit);
                    asked.limit = Some(read("limit", value, "a number from 1 to 500", is_fit)?);
                }
                "content" => asked.has_content = content::read(value)?,
                _ => return asked.filter.set(name, value, now),
            }
            Ok(true)
        })?;
        Ok(asked)
    }

    /// The most entries that are read at once.
    const fn most(&self) -> u32 {
        if self.has_content { CONTENT_ENTRIES } else { LONGEST_PAGE }
    }

    async fn with_contents<'e>(
        &self,
        trail: &dyn AuditQuery,
        entries: &'e [StoredEntry],
    ) -> Result<Vec<WithContent<'e, StoredEntry>>, QueryError> {
        let mut found = HashMap::new();
        if self.has_content {
            let ids: Vec<&str> = entries.iter().map(|entry| entry.id.as_str()).collect();
            found = contents(trail, &ids).await?;
        }
        let both = |told: &'e StoredEntry| WithContent { told, sides: found.remove(&told.id) };
        Ok(entries.iter().map(both).collect())
    }
}

#[derive(Serialize)]
struct List<'a> {
    object: &'static str,
    data: Vec<WithContent<'a, StoredEntry>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// The audit trail: who did what, newest first.
///
/// Takes the capability `audit:read`. All filters that are given must hold. A page that is not the
/// last has a `next_cursor`. With `accept: application/x-ndjson` the entries come as lines, as many
/// as there are; where they can't go on, the last line is an error. With `content=true`, which takes
/// the capability `audit:content` too, entries have what was asked and answered, where it is kept
/// (`audit.content`); pages are of 50 entries at most then.
#[utoipa::path(
    get,
    path = "/v1/audit",
    tag = "audit",
    params(FilterParams, PageParams),
    responses(
        AuditEntries,
        QueryErrors,
        Errors,
    ),
    security(("token" = [])),
)]
pub async fn list_audit_entries(
    State(state): State<AppState>,
    call: Call,
    headers: HeaderMap,
    params: Params,
) -> Result<Response, ApiError> {
    require(&call, READ)?;
    let asked = Asked::read(params)?;
    if asked.has_content {
        require(&call, READ_CONTENT)?;
    }
    let trail = Arc::clone(state.trail());
    if takes_lines(&headers) {
        return Ok(lines(trail, asked));
    }
    let limit = asked.limit.unwrap_or(PAGE).min(asked.most());
    // One more, to know whether this is all.
    let page = trail.page(&asked.filter, Order::NewestFirst, asked.behind, limit + 1).await?;
    let data = &page[..page.len().min(limit as usize)];
    let is_more = data.len() < page.len();
    let last = data.last().filter(|_| is_more);
    let next_cursor = last.map(|entry| Cursor::from(entry).to_string());
    let data = asked.with_contents(&*trail, data).await?;
    Ok(Json(List { object: "list", data, next_cursor }).into_response())
}

fn takes_lines(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut accepted = accepted.flat_map(|value| value.split(','));
    accepted.any(|one| one.split(';').next().is_some_and(|one| one.trim() == NDJSON))
}

/// All entries as lines, read page by page as the client takes them.
fn lines(trail: Arc<dyn AuditQuery>, asked: Asked) -> Response {
    let pages = stream::unfold(Some((trail, asked)), |rest| async move {
        let (trail, mut asked) = rest?;
        let limit = asked.limit.unwrap_or(LONGEST_PAGE).min(asked.most());
        let (lines, is_last) = match read_lines(&*trail, &asked, limit).await {
            Ok((page, lines)) => {
                let left = asked.limit.map(|left| left.saturating_sub(limit));
                let is_last = page.len() < limit as usize || left == Some(0);
                asked.limit = left;
                asked.behind = page.last().map(Cursor::from).or(asked.behind);
                (lines, is_last)
            }
            Err(error) => (format!("{}\n", openai_body(&denial(&error))).into_bytes(), true),
        };
        let rest = (!is_last).then_some((trail, asked));
        Some((Ok::<_, std::convert::Infallible>(Bytes::from(lines)), rest))
    });
    let mut response = Response::new(Body::from_stream(pages));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(NDJSON));
    response
}

async fn read_lines(
    trail: &dyn AuditQuery,
    asked: &Asked,
    limit: u32,
) -> Result<(Vec<StoredEntry>, Vec<u8>), QueryError> {
    let page = trail.page(&asked.filter, Order::NewestFirst, asked.behind, limit).await?;
    let mut lines = Vec::with_capacity(page.len() * 1_024);
    for entry in asked.with_contents(trail, &page).await? {
        // Texts, numbers and JSON always are JSON.
        let _ = serde_json::to_writer(&mut lines, &entry);
        lines.push(b'\n');
    }
    Ok((page, lines))
}
