//! POST /v1/chat/completions.

use axum::{
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode};

use crate::{
    budget::Report,
    domain::Kind,
    http::{
        ApiError, AppState,
        error::{SOURCE, put_limits},
        extract::{Call, ChatBody},
        openapi::{answer, schema::ChatRequest},
        sse::{self, Received},
    },
    pipeline::{Head, authorize, start_chat},
    provider::Complete,
};

/// A chat completion, whole or streamed.
///
/// OpenAI's own request and answer: fields that are not described here pass through both ways.
/// Hanging up cancels the call; what was generated until then is charged.
#[utoipa::path(
    post,
    path = "/v1/chat/completions",
    tag = "models",
    request_body = ChatRequest,
    responses(answer::Chat),
    security(("token" = [])),
)]
pub async fn create_chat_completion(
    State(state): State<AppState>,
    call: Call,
    ChatBody(body): ChatBody,
) -> Result<Response, ApiError> {
    let snapshot = state.gateway().snapshot.load_full();
    let authorized = authorize(&snapshot, call.caller(), body).map_err(|refused| *refused)?;
    let (started, receiver) = start_chat(state.gateway(), snapshot, call.context, authorized);
    let (head, limits) = started.head.await.map_err(|_| lost())?;
    let mut response = match head {
        Head::Stream => sse::response(Received(receiver), state.settings().keepalive),
        Head::Complete(complete) => whole(complete),
        Head::Refused(refused) => ApiError::from(*refused).into_response(),
    };
    put(&mut response, limits.as_deref());
    Ok(response)
}

/// The task that owned the call is gone without a word: a bug, since it answers even a panic.
pub(in crate::http) fn lost() -> ApiError {
    ApiError::new(Kind::Internal, "The call was lost; the request id finds it in the log.")
}

pub(in crate::http) fn put(response: &mut Response, limits: Option<&Report>) {
    if let Some(limits) = limits {
        put_limits(response.headers_mut(), limits);
    }
}

/// A provider's whole answer, as it is.
pub(in crate::http) fn whole(complete: Complete) -> Response {
    let mut response = Response::new(Body::from(complete.body));
    *response.status_mut() =
        StatusCode::from_u16(complete.status).unwrap_or(StatusCode::BAD_GATEWAY);
    *response.headers_mut() = complete.headers;
    if complete.status >= 400 {
        response.headers_mut().insert(SOURCE, HeaderValue::from_static("upstream"));
    }
    response
}
