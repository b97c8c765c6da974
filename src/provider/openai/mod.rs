//! Any server that speaks `OpenAI`'s chat completions over HTTP.

mod client;
mod events;
mod key;

use std::{future::poll_fn, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER, USER_AGENT},
};
use http_body_util::BodyExt as _;

use self::{
    client::{Body, Client, SendError},
    events::HttpEvents,
    key::Key,
};
use super::{
    Complete, EventStream, Opened, Phase, Provider, ProviderError, ProviderRequest, Reply,
};
use crate::{config::ProviderConfig, domain::TraceState, offload::Offload};

/// A whole answer may be no larger.
const MAX_ANSWER_BYTES: usize = 32 << 20;
/// How long a server may take to list its models.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);

/// Headers of a provider's answer that are passed on to the client.
const PASSED_ON: [HeaderName; 4] = [
    CONTENT_TYPE,
    RETRY_AFTER,
    HeaderName::from_static("retry-after-ms"),
    HeaderName::from_static("x-should-retry"),
];

const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("tollgate/", env!("CARGO_PKG_VERSION")));
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What a request's head has in any case: room for all that it may have.
const HEADERS: usize = 8;

/// One `OpenAI`-compatible upstream and its pool of connections.
pub struct OpenAi {
    name: String,
    uri: Uri,
    key: Option<Arc<Key>>,
    client: Client,
    /// Large answers are read there.
    offload: Offload,
    first_token_timeout: Duration,
    answer_timeout: Duration,
    idle_timeout: Duration,
}

impl std::fmt::Debug for OpenAi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenAi").field("name", &self.name).finish_non_exhaustive()
    }
}

impl OpenAi {
    /// # Errors
    /// A sentence on what is wrong with the configuration; the key is never in it.
    pub fn new(config: &ProviderConfig, offload: &Offload) -> Result<Self, String> {
        let base = config.base_url.as_deref().ok_or("base_url is missing")?;
        let uri = endpoint(base, "chat/completions")?;
        let key = config.api_key.clone().map(Key::new).transpose()?.map(Arc::new);
        let client = Client::new(&uri, Duration::from_millis(config.connect_timeout_ms))?;
        Ok(Self {
            name: config.name.clone(),
            uri,
            key,
            client,
            offload: offload.clone(),
            first_token_timeout: Duration::from_millis(config.first_token_timeout_ms),
            answer_timeout: Duration::from_millis(config.answer_timeout_ms),
            idle_timeout: Duration::from_millis(config.idle_timeout_ms),
        })
    }

    async fn post(&self, request: &ProviderRequest) -> Result<Response<Body>, ProviderError> {
        let accept = if request.stream { "text/event-stream" } else { "application/json" };
        let trace = request.trace.to_string();
        let texts = [
            (TRACEPARENT, Some(trace.as_str())),
            (REQUEST_ID, Some(request.request_id.as_str())),
            (TRACESTATE, request.trace_state.as_ref().map(TraceState::as_str)),
        ];
        let make = || {
            let mut post = self.request(Method::POST, self.uri.clone(), request.body.clone());
            let headers = post.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
            for (name, text) in &texts {
                // Each has a shape that a header can carry.
                if let Some(Ok(value)) = text.map(HeaderValue::from_str) {
                    headers.insert(name, value);
                }
            }
            post
        };
        self.client.send(make).await.map_err(|error| self.error(error))
    }

    /// A request as we make them all, with our key.
    fn request(&self, method: Method, uri: Uri, body: Bytes) -> Request<Bytes> {
        let mut request = Request::new(body);
        (*request.method_mut(), *request.uri_mut()) = (method, uri);
        let headers = request.headers_mut();
        headers.reserve(HEADERS);
        headers.insert(USER_AGENT, AGENT);
        if let Some(key) = &self.key {
            headers.insert(AUTHORIZATION, key.header.clone());
        }
        request
    }

    fn error(&self, SendError { is_connect, cause }: SendError) -> ProviderError {
        let provider = self.name.clone();
        if is_connect {
            ProviderError::Connect { provider, cause }
        } else {
            ProviderError::Lost { provider, cause }
        }
    }

    fn lost(&self, cause: String) -> ProviderError {
        ProviderError::Lost { provider: self.name.clone(), cause }
    }

    fn timeout(&self, phase: Phase) -> ProviderError {
        let limit_ms = u64::try_from(self.limit(phase).as_millis()).unwrap_or(u64::MAX);
        ProviderError::Timeout { provider: self.name.clone(), phase, limit_ms }
    }

    const fn limit(&self, phase: Phase) -> Duration {
        match phase {
            Phase::FirstToken => self.first_token_timeout,
            Phase::Answer => self.answer_timeout,
            Phase::Idle => self.idle_timeout,
        }
    }

    fn invalid(&self, cause: impl Into<String>) -> ProviderError {
        ProviderError::Invalid { provider: self.name.clone(), cause: cause.into() }
    }

    /// Head and first events of a stream, or the head of a whole answer.
    async fn begin(&self, request: &ProviderRequest) -> Result<Begun, ProviderError> {
        let response = self.post(request).await?;
        let status = response.status();
        if status.is_redirection() || status.is_informational() {
            return Err(self.invalid(format!("it answered {status}")));
        }
        if !request.stream || !status.is_success() {
            return Ok(Begun::Complete(response));
        }
        if !is_event_stream(response.headers()) {
            return Err(self.invalid("a stream was asked for, and the answer is none"));
        }
        let mut rest = HttpEvents::new(self, response.into_body());
        let mut first = Vec::with_capacity(4);
        poll_fn(|context| rest.poll_events(context, &mut first)).await?;
        if first.is_empty() {
            return Err(self.invalid("the stream ended before its first event"));
        }
        Ok(Begun::Stream(Opened { first, rest: Box::new(rest) }))
    }

    async fn next_piece(&self, body: &mut Body) -> Result<Option<Bytes>, ProviderError> {
        loop {
            let frame = tokio::time::timeout(self.idle_timeout, body.frame()).await;
            let frame = frame.map_err(|_| self.timeout(Phase::Idle))?.transpose();
            let Some(frame) = frame.map_err(|cause| self.lost(cause))? else { return Ok(None) };
            // Trailers say nothing that we read.
            if let Ok(bytes) = frame.into_data() {
                return Ok(Some(bytes));
            }
        }
    }

    fn has_key(&self, text: &[u8]) -> bool {
        self.key.as_ref().is_some_and(|key| key.is_in(text))
    }

    async fn complete(&self, response: Response<Body>) -> Result<Complete, ProviderError> {
        let status = response.status();
        let mut headers = HeaderMap::with_capacity(PASSED_ON.len());
        for name in PASSED_ON {
            let value = response.headers().get(&name);
            if let Some(value) = value.filter(|value| !self.has_key(value.as_bytes())) {
                headers.insert(name, value.clone());
            }
        }
        let mut incoming = response.into_body();
        let mut body = BytesMut::new();
        while let Some(chunk) = self.next_piece(&mut incoming).await? {
            if body.len() + chunk.len() > MAX_ANSWER_BYTES {
                return Err(self.invalid(format!("the answer is over {MAX_ANSWER_BYTES} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        let (body, key) = (body.freeze(), self.key.clone());
        let read = self.offload.run_for(body.len(), move || read(key.as_deref(), body, status));
        let body = read.await.unwrap_or_default();
        let body = body.ok_or_else(|| self.invalid("the answer is no JSON"))?;
        Ok(Complete { status: status.as_u16(), headers, body })
    }
}

/// A whole answer without our key; `None` if it should be JSON and is none.
fn read(key: Option<&Key>, body: Bytes, status: StatusCode) -> Option<Bytes> {
    if status.is_success() && serde_json::from_slice::<serde::de::IgnoredAny>(&body).is_err() {
        return None;
    }
    Some(match key {
        Some(key) => key.hide_in_answer(body, status),
        None => body,
    })
}

/// What came within the first token's timeout.
enum Begun {
    Stream(Opened),
    /// Its body may take longer than its head.
    Complete(Response<Body>),
}

#[async_trait]
impl Provider for OpenAi {
    fn name(&self) -> &str {
        &self.name
    }

    async fn send(&self, request: ProviderRequest) -> Result<Reply, ProviderError> {
        // A whole answer's head comes when the model has said its last word.
        let phase = if request.stream { Phase::FirstToken } else { Phase::Answer };
        let begun = tokio::time::timeout(self.limit(phase), self.begin(&request)).await;
        match begun.map_err(|_| self.timeout(phase))?? {
            Begun::Stream(opened) => Ok(Reply::Stream(opened)),
            Begun::Complete(response) => self.complete(response).await.map(Reply::Complete),
        }
    }
}

/// The models that a server lists at `/models`, for trying it out.
///
/// # Errors
/// A sentence on what went wrong.
pub async fn list_models(config: &ProviderConfig) -> Result<Vec<String>, String> {
    #[derive(serde::Deserialize)]
    struct List {
        data: Vec<Listed>,
    }
    #[derive(serde::Deserialize)]
    struct Listed {
        id: String,
    }
    let provider = OpenAi::new(config, &Offload::default())?;
    let uri = endpoint(config.base_url.as_deref().unwrap_or_default(), "models")?;
    let get = || provider.request(Method::GET, uri.clone(), Bytes::new());
    let response = tokio::time::timeout(LIST_TIMEOUT, provider.client.send(get)).await;
    let response = response.map_err(|_| "it took too long to answer".to_owned())?;
    let response = response.map_err(|error| error.cause)?;
    if !response.status().is_success() {
        return Err(format!("it answered {}", response.status()));
    }
    let complete = provider.complete(response).await.map_err(|error| error.to_string())?;
    let list: List = serde_json::from_slice(&complete.body).map_err(|error| error.to_string())?;
    Ok(list.data.into_iter().map(|listed| listed.id).collect())
}

/// Normalised, as a name may be written in any script.
fn endpoint(base: &str, path: &str) -> Result<Uri, String> {
    let url = reqwest::Url::parse(&format!("{}/{path}", base.trim_end_matches('/')));
    let url = url.map_err(|error| format!("base_url: {error}"))?;
    url.as_str().parse().map_err(|error| format!("base_url: {error}"))
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = content_type.and_then(|value| value.split(';').next());
    essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case("text/event-stream"))
}
