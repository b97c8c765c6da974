//! A refusal or failure on its way to the client.

use std::sync::Arc;

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde_json::json;

use crate::{
    auth::AuthError,
    budget::{Policy, Report, Standing},
    domain::{Denial, Kind},
    pipeline::Refused,
    redact::{Depth, LiveRedactor},
};

/// Who says no: us, or the provider. So that nobody looks for a fault on the wrong side.
pub(super) const SOURCE: HeaderName = HeaderName::from_static("x-tollgate-source");

/// A 429 that lasts longer is not worth a client's waiting: OpenAI's SDKs take no longer one from
/// `retry-after` either.
const LONGEST_RETRY_MS: u64 = 60_000;

/// What went wrong, for the responder to write, audit and count.
#[derive(Debug, Clone)]
pub struct ApiError(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    refused: Refused,
    /// For a 401, RFC 6750 §3.
    challenge: Option<HeaderValue>,
    /// What a token's fault is, finer than the public code.
    reason: Option<&'static str>,
}

impl ApiError {
    pub(super) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Denial::new(kind, message).into()
    }

    pub(super) fn denial(&self) -> &Denial {
        &self.0.refused.denial
    }

    pub(super) fn refused(&self) -> &Refused {
        &self.0.refused
    }

    /// Without the secrets that it may quote from the request.
    pub(super) fn redacted(self, redactor: &LiveRedactor) -> Self {
        let redact = |text: &str| redactor.changed(text, Depth::Complete);
        let refused = &self.0.refused;
        let denial = refused.denial.clone().redacted(redact);
        if denial == refused.denial {
            return self;
        }
        let refused = Refused { denial, ..refused.clone() };
        Self(Arc::new(Inner { refused, challenge: self.0.challenge.clone(), ..*self.0 }))
    }

    pub(super) fn reason(&self) -> Option<&'static str> {
        self.0.reason
    }
}

impl From<Refused> for ApiError {
    fn from(refused: Refused) -> Self {
        Self(Arc::new(Inner { refused, challenge: None, reason: None }))
    }
}

impl From<Denial> for ApiError {
    fn from(denial: Denial) -> Self {
        Refused::from(denial).into()
    }
}

impl From<AuthError> for ApiError {
    fn from(error: AuthError) -> Self {
        Self(Arc::new(Inner {
            refused: error.denial().into(),
            challenge: error.www_authenticate(),
            reason: Some(error.reason()),
        }))
    }
}

/// A response without a body: the responder writes it in the dialect of the route.
impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.denial().kind.status());
        let mut response = Response::new(Body::empty());
        *response.status_mut() = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        response.extensions_mut().insert(self);
        response
    }
}

/// Writes the error's body and headers into its response.
pub(super) fn render(error: &ApiError, path: &str, response: &mut Response) {
    let denial = error.denial();
    let (content_type, body) = if path.starts_with("/v1/") {
        ("application/json", openai_body(denial))
    } else {
        ("application/problem+json", problem_body(denial))
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    headers.insert(SOURCE, HeaderValue::from_static("gateway"));
    if let Some(challenge) = &error.0.challenge {
        headers.insert(header::WWW_AUTHENTICATE, challenge.clone());
    }
    if let Some(retry_after_ms) = denial.retry_after_ms {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(retry_after_ms.div_ceil(1_000)));
        headers.insert("retry-after-ms", HeaderValue::from(retry_after_ms));
    }
    // OpenAI's SDKs come back twice after any 429, however long they are told to wait.
    let patience = denial.retry_after_ms.is_some_and(|ms| ms <= LONGEST_RETRY_MS);
    if denial.kind.status() == 429 && !patience {
        headers.insert("x-should-retry", HeaderValue::from_static("false"));
    }
    if let Some(limits) = &error.refused().limits {
        put_limits(headers, limits);
    }
    *response.body_mut() = Body::from(body);
}

/// `OpenAI`'s error body, which its SDKs turn into exceptions.
pub(super) fn openai_body(denial: &Denial) -> String {
    let class = match denial.kind.status() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        429 => "rate_limit_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    };
    let error = json!({
        "message": denial.message, "type": class, "param": denial.param, "code": denial.kind.code(),
    });
    json!({ "error": error }).to_string()
}

/// RFC 9457.
fn problem_body(denial: &Denial) -> String {
    json!({
        "type": "about:blank",
        "title": denial.message,
        "status": denial.kind.status(),
        "code": denial.kind.code(),
    })
    .to_string()
}

/// How the call's buckets stand: `OpenAI`'s headers, and the IETF's
/// (draft-ietf-httpapi-ratelimit-headers-10).
pub(super) fn put_limits(headers: &mut HeaderMap, limits: &Report) {
    if let Some(requests) = &limits.requests {
        put_standing(headers, REQUESTS, requests);
    }
    if let Some(tokens) = &limits.tokens {
        put_standing(headers, TOKENS, tokens);
    }
    if limits.policies.is_empty() {
        return;
    }
    let (mut quotas, mut rests) = (String::with_capacity(128), String::with_capacity(128));
    for Policy { bucket, window_s, standing } in &limits.policies {
        let name = bucket.name();
        let reset_s = standing.reset_micros.div_ceil(1_000_000);
        put_item(&mut quotas, name, [(";q=", standing.limit), (";w=", *window_s)]);
        put_item(&mut rests, name, [(";r=", standing.remaining), (";t=", reset_s)]);
    }
    for (name, value) in [(RATELIMIT_POLICY, quotas), (RATELIMIT, rests)] {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    }
}

/// An item of a list with its parameters (RFC 9651). By hand: each answer has four of them, and
/// `write!` takes thrice as long.
fn put_item(list: &mut String, name: &str, parameters: [(&str, u64); 2]) {
    if !list.is_empty() {
        list.push_str(", ");
    }
    list.push('"');
    list.push_str(name);
    list.push('"');
    for (parameter, value) in parameters {
        list.push_str(parameter);
        list.push_str(itoa::Buffer::new().format(value));
    }
}

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const REQUESTS: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit-requests"),
    HeaderName::from_static("x-ratelimit-remaining-requests"),
    HeaderName::from_static("x-ratelimit-reset-requests"),
];
const TOKENS: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit-tokens"),
    HeaderName::from_static("x-ratelimit-remaining-tokens"),
    HeaderName::from_static("x-ratelimit-reset-tokens"),
];

fn put_standing(headers: &mut HeaderMap, names: [HeaderName; 3], standing: &Standing) {
    let [limit, remaining, reset] = names;
    headers.insert(limit, HeaderValue::from(standing.limit));
    headers.insert(remaining, HeaderValue::from(standing.remaining));
    if let Ok(value) = HeaderValue::try_from(duration(standing.reset_micros)) {
        headers.insert(reset, value);
    }
}

/// As `OpenAI` writes durations: `120ms`, `1s`, `6m0s`. Rounded up.
fn duration(micros: u64) -> String {
    let ms = micros.div_ceil(1_000);
    if ms < 1_000 {
        return format!("{ms}ms");
    }
    let seconds = ms.div_ceil(1_000);
    if seconds < 60 { format!("{seconds}s") } else { format!("{}m{}s", seconds / 60, seconds % 60) }
}
