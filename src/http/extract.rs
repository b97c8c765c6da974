//! What handlers take from a request.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{FromRequest, FromRequestParts, Path, Request},
};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header, request::Parts};
use http_body_util::BodyExt as _;
use tokio::time::Instant;

use super::{ApiError, AppState, context::RequestContext};
use crate::{
    domain::{BodyError, Caller, Denial, Kind, ModelCall},
    offload::INLINE_BYTES,
    pipeline::CallContext,
};

/// An authenticated request: its caller and how it came.
#[derive(Debug)]
pub struct Call {
    pub context: CallContext,
}

impl Call {
    pub(super) fn caller(&self) -> &Arc<Caller> {
        &self.context.caller
    }
}

impl<S: Sync> FromRequestParts<S> for Call {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let context = parts.extensions.get::<RequestContext>();
        let known = context.and_then(|context| Some((context, context.caller()?)));
        // Only a route that was left out of `authenticate` gets here: it stays shut.
        let (context, caller) = known.ok_or_else(|| {
            ApiError::new(Kind::Internal, "This route does not know its caller: a bug.")
        })?;
        let run_id = context.run_id().map_err(|error| {
            Denial::new(Kind::InvalidRequest, error.to_string()).with_param("x-run-id")
        })?;
        Ok(Self {
            context: CallContext {
                request_id: context.request_id().clone(),
                run_id: run_id.cloned(),
                operation: context.operation(),
                caller: Arc::clone(caller),
                address: context.address(),
                trace: context.trace(),
                trace_state: context.trace_state().cloned(),
                arrived: context.arrived(),
                failure: context.failure().clone(),
            },
        })
    }
}

/// The one parameter in a route's path.
#[derive(Debug)]
pub struct PathId(pub String);

impl<S: Send + Sync> FromRequestParts<S> for PathId {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let Path(id) = Path::from_request_parts(parts, state).await.map_err(|_| {
            let denial = Denial::new(Kind::InvalidRequest, "The id in the path is not UTF-8.");
            ApiError::from(denial.with_param("id"))
        })?;
        Ok(Self(id))
    }
}

/// The body of a chat completion.
#[derive(Debug)]
pub struct ChatBody(pub ModelCall);

impl FromRequest<AppState> for ChatBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, Self::Rejection> {
        if !is_json(request.headers()) {
            let message = "Send the body as JSON, with `content-type: application/json`.";
            return Err(ApiError::new(Kind::UnsupportedMediaType, message));
        }
        let body = read_in_time(request, state).await?;
        let parse = state.gateway().offload.run_for(body.len(), || parse(body)).await;
        // Only a panic, or the end of the process, loses it.
        let parsed = parse.map_err(|_| ApiError::new(Kind::Internal, "The body was not read."))?;
        parsed.map(Self).map_err(|error| refusal(&error).into())
    }
}

fn parse(body: Bytes) -> Result<ModelCall, BodyError> {
    let call = ModelCall::parse(body)?;
    if call.body_len() > INLINE_BYTES {
        // Kept for a budget that asks: it must not be found out on an async thread.
        let _ = call.has_parts_of_unknown_size();
    }
    Ok(call)
}

fn refusal(error: &BodyError) -> Denial {
    let kind = match error {
        BodyError::Json(_) => Kind::InvalidJson,
        _ => Kind::InvalidRequest,
    };
    let denial = Denial::new(kind, error.to_string());
    match error.param() {
        Some(param) => denial.with_param(param),
        None => denial,
    }
}

/// `application/json` or `application/*+json`, with or without parameters.
fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok())
    else {
        return false;
    };
    let essence = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json"
        || (essence.starts_with("application/") && essence.ends_with("+json"))
}

/// The whole body. A byte now and then is in time for each piece, and would never come to an end.
async fn read_in_time(request: Request, state: &AppState) -> Result<Bytes, ApiError> {
    let context = request.extensions().get::<RequestContext>();
    let arrived = context.map_or_else(Instant::now, RequestContext::arrived);
    let deadline = arrived + state.gateway().request_timeout;
    tokio::time::timeout_at(deadline, read_body(request, state)).await.unwrap_or_else(|_| {
        let message = "The request's body did not come in time (request_timeout_s).";
        Err(ApiError::new(Kind::RequestTimeout, message))
    })
}

/// The whole body, within its bounds of size and of time between two pieces.
async fn read_body(request: Request, state: &AppState) -> Result<Bytes, ApiError> {
    let limit = state.settings().body_limit_bytes;
    let declared = request.headers().get(header::CONTENT_LENGTH);
    let declared = declared.and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if declared.is_some_and(|declared| declared > limit) {
        return Err(too_large(limit));
    }
    let mut body = request.into_body();
    let Some(first) = next_piece(&mut body, state).await? else { return Ok(Bytes::new()) };
    if first.len() > limit {
        return Err(too_large(limit));
    }
    // Most bodies come in one piece, which needs no copy.
    let Some(second) = next_piece(&mut body, state).await? else { return Ok(first) };
    let mut whole = BytesMut::with_capacity(declared.unwrap_or(first.len() + second.len()));
    whole.extend_from_slice(&first);
    let mut next = Some(second);
    while let Some(piece) = next {
        if whole.len() + piece.len() > limit {
            return Err(too_large(limit));
        }
        whole.extend_from_slice(&piece);
        next = next_piece(&mut body, state).await?;
    }
    Ok(whole.freeze())
}

async fn next_piece(body: &mut Body, state: &AppState) -> Result<Option<Bytes>, ApiError> {
    loop {
        let frame = tokio::time::timeout(state.settings().body_idle_timeout, body.frame()).await;
        match frame {
            Err(_) => {
                let message = "The request's body did not come in time (body_idle_timeout_s).";
                return Err(ApiError::new(Kind::RequestTimeout, message));
            }
            Ok(None) => return Ok(None),
            Ok(Some(Err(_))) => {
                let message = "The request's body broke off.";
                return Err(ApiError::new(Kind::InvalidRequest, message));
            }
            Ok(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) if data.is_empty() => {}
                Ok(data) => return Ok(Some(data)),
                // Trailers: nothing that we read.
                Err(_) => {}
            },
        }
    }
}

fn too_large(limit: usize) -> ApiError {
    let message = format!("The body is over {limit} bytes (server.body_limit_bytes).");
    ApiError::new(Kind::BodyTooLarge, message)
}
