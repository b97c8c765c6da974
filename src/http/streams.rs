//! Native streams: begin, resume, cancel.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::{
    ApiError, AppState,
    extract::{Call, ChatBody, PathId},
    openai::chat::{lost, put, whole},
    openapi::{
        answer::{self, Errors, ErrorsOfOne},
        schema::ChatRequest,
    },
    sse,
};
use crate::{
    domain::{Denial, Kind, StreamId},
    pipeline::{Head, authorize, start_native},
    stream::{NativeStream, Owner, Reader},
};

/// Tells an `EventSource` how soon to come back.
const RETRY: &[u8] = b"retry: 1000\n\n";

/// Begins a native stream.
///
/// The body is that of a chat completion; the answer is always streamed, as frames that can be
/// resumed with `GET /v1/streams/{id}` and canceled with `DELETE`.
#[utoipa::path(
    post,
    path = "/v1/streams",
    tag = "streams",
    request_body = ChatRequest,
    responses(answer::NativeStream),
    security(("token" = [])),
)]
pub async fn create_stream(
    State(state): State<AppState>,
    call: Call,
    ChatBody(body): ChatBody,
) -> Result<Response, ApiError> {
    let snapshot = state.gateway().snapshot.load_full();
    let authorized = authorize(&snapshot, call.caller(), body).map_err(|refused| *refused)?;
    let native = start_native(state.gateway(), snapshot, call.context, authorized);
    let (started, stream, reader) = native.map_err(|_| {
        let message = "As many streams are open as may be (stream.max_streams); try again.";
        Denial::new(Kind::Overloaded, message).with_retry_after_ms(1_000)
    })?;
    let (head, limits) = started.head.await.map_err(|_| lost())?;
    let mut response = match (head, reader) {
        (Head::Stream, Some(reader)) => frames(reader, &stream, &state),
        (Head::Stream, None) => lost().into_response(),
        (Head::Complete(complete), _) => whole(complete),
        (Head::Refused(refused), _) => ApiError::from(*refused).into_response(),
    };
    put(&mut response, limits.as_deref());
    Ok(response)
}

/// Resumes a native stream where it was left.
///
/// Replays what came after `Last-Event-ID`, then goes on live. A finished stream is replayed to its end. 204 where
/// nothing is left to read: an `EventSource` stops coming back then.
#[utoipa::path(
    get,
    path = "/v1/streams/{id}",
    tag = "streams",
    params(
        ("id" = String, Path, description = "`x-stream-id`", example = "0192f0c1-a6b2-7c3d-8e4f-5a6b7c8d9e0f"),
        ("last-event-id" = Option<u64>, Header, nullable = false, description = "The last frame's `seq` that was seen; without it, from the first on", example = 41),
    ),
    responses(
        answer::NativeRest,
        (status = 204, description = "The stream has ended and nothing of it is left to read"),
        ErrorsOfOne,
        Errors,
    ),
    security(("token" = [])),
)]
pub async fn resume_stream(
    State(state): State<AppState>,
    call: Call,
    PathId(id): PathId,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let stream = find(&state, &call, &id)?;
    let seq = last_event_id(&headers)?;
    if stream.has_ended() && stream.last_seq() == seq {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let reader = stream.read_after(seq).map_err(|_| {
        ApiError::new(Kind::StreamGone, "The frames asked for are no longer kept; begin again.")
    })?;
    Ok(frames(reader, &stream, &state))
}

/// Cancels a native stream.
///
/// Stops the provider, ends the stream with a `canceled` frame and settles the call. Idempotent.
#[utoipa::path(
    delete,
    path = "/v1/streams/{id}",
    tag = "streams",
    params(("id" = String, Path, description = "`x-stream-id`", example = "0192f0c1-a6b2-7c3d-8e4f-5a6b7c8d9e0f")),
    responses(
        (status = 202, description = "It ends, or has ended"),
        ErrorsOfOne,
        Errors,
    ),
    security(("token" = [])),
)]
pub async fn cancel_stream(
    State(state): State<AppState>,
    call: Call,
    PathId(id): PathId,
) -> Result<StatusCode, ApiError> {
    find(&state, &call, &id)?.cancel();
    Ok(StatusCode::ACCEPTED)
}

fn find(state: &AppState, call: &Call, id: &str) -> Result<Arc<NativeStream>, ApiError> {
    let owner = Owner::from(&**call.caller());
    let id: Option<StreamId> = id.parse().ok();
    let stream = id.and_then(|id| state.gateway().hub.get(id, &owner));
    stream.ok_or_else(|| {
        let message = "There is no such stream, or no longer: frames are kept for replay_ttl_s.";
        ApiError::new(Kind::StreamGone, message)
    })
}

fn last_event_id(headers: &HeaderMap) -> Result<u64, ApiError> {
    let Some(value) = headers.get("last-event-id") else { return Ok(0) };
    let seq = value.to_str().ok().map(str::trim);
    match seq {
        Some("") => Ok(0),
        Some(seq) if seq.bytes().all(|byte| byte.is_ascii_digit()) && seq.len() < 20 => {
            Ok(seq.parse().unwrap_or(u64::MAX))
        }
        _ => {
            let denial =
                Denial::new(Kind::InvalidRequest, "Last-Event-ID must be a frame's `seq`.");
            Err(denial.with_param("last-event-id").into())
        }
    }
}

fn frames(reader: Reader, stream: &NativeStream, state: &AppState) -> Response {
    let retry = stream::once(std::future::ready(Bytes::from_static(RETRY)));
    let mut response = sse::response(retry.chain(read(reader)), state.settings().keepalive);
    let headers = response.headers_mut();
    // A GET's answer might be kept; a POST's is not.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    let id = stream.id().to_string();
    if let (Ok(location), Ok(id)) =
        (HeaderValue::try_from(format!("/v1/streams/{id}")), HeaderValue::try_from(id))
    {
        headers.insert(header::LOCATION, location);
        headers.insert("x-stream-id", id);
    }
    response
}

fn read(reader: Reader) -> impl Stream<Item = Bytes> {
    stream::unfold(reader, |mut reader| async move {
        let frames = reader.next().await?;
        Some((frames, reader))
    })
}
