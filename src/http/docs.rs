//! The `OpenAPI` document: the shapes that routes take and give, and what every route may answer.

use std::{collections::HashMap, sync::LazyLock};

use http::Method;
use serde::Serialize;
use utoipa::{
    IntoResponses, Modify, OpenApi, ToSchema,
    openapi::path::Operation,
    openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
};

use super::{event, router::api};
use crate::domain::Kind;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Tollgate",
        description = "A gateway between agents and the models they spend.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    servers((url = "/")),
    tags(
        (name = "models", description = "OpenAI's dialect"),
        (name = "streams", description = "Native streams: resumed, canceled"),
    ),
    // Named in responses and in strings of JSON alone, where the derive doesn't look.
    components(schemas(ErrorBody, event::ChatData, event::Frame)),
    modifiers(&Token, &Codes),
)]
pub(super) struct ApiDoc;

/// The document as it is served and committed.
#[must_use]
pub fn document() -> utoipa::openapi::OpenApi {
    api().into_openapi()
}

struct Token;

impl Modify for Token {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).bearer_format("JWT");
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(bearer.build()));
    }
}

/// Lists the stable codes.
struct Codes;

impl Modify for Codes {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let codes =
            Kind::ALL.iter().map(|kind| format!("| `{}` | {} |", kind.code(), kind.status()));
        let table = codes.collect::<Vec<_>>().join("\n");
        document.info.description = Some(format!(
            "A gateway between agents and the models they spend.\n\n\
             Errors carry one of these codes, which never change. `x-tollgate-source` says whether \
             the gateway or the model's provider (`upstream`) refused.\n\n\
             | code | status |\n| --- | --- |\n{table}"
        ));
    }
}

/// Path → method → operation id.
static OPERATIONS: LazyLock<HashMap<String, Vec<(Method, String)>>> = LazyLock::new(|| {
    let operations = |item: utoipa::openapi::PathItem| {
        let methods = [
            (Method::GET, item.get),
            (Method::POST, item.post),
            (Method::DELETE, item.delete),
            (Method::PUT, item.put),
        ];
        let id = |(method, operation): (Method, Option<Operation>)| {
            Some((method, operation?.operation_id?))
        };
        methods.into_iter().filter_map(id).collect()
    };
    document().paths.paths.into_iter().map(|(path, item)| (path, operations(item))).collect()
});

/// The operation's id, for audit rows; `unknown` where there is no such route.
pub(super) fn operation(method: &Method, route: Option<&str>) -> &'static str {
    let operations = route.and_then(|route| OPERATIONS.get(route));
    let known = operations.and_then(|known| known.iter().find(|(known, _)| known == method));
    known.map_or("unknown", |(_, id)| id.as_str())
}

/// `OpenAI`'s error body.
#[derive(Debug, Serialize, ToSchema)]
pub struct ErrorBody {
    error: ErrorObject,
}

#[derive(Debug, Serialize, ToSchema)]
struct ErrorObject {
    message: String,
    #[serde(rename = "type")]
    class: Option<String>,
    param: Option<String>,
    /// Ours are listed in this document's description; a provider's own pass through.
    code: Option<serde_json::Value>,
}

/// What every governed route may answer beside its own answer.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "describes responses; the responder writes them")]
pub enum GovernedErrors {
    #[response(status = 400, description = "The request is not understood")]
    BadRequest(ErrorBody),
    #[response(
        status = 401,
        description = "No token, or one that is not valid: see `www-authenticate`"
    )]
    Unauthorized(ErrorBody),
    #[response(
        status = 403,
        description = "The token lacks the capability, or its tier is not known"
    )]
    Forbidden(ErrorBody),
    #[response(status = 404, description = "There is no such thing, or not for this caller")]
    NotFound(ErrorBody),
    #[response(
        status = 408,
        description = "The request did not come in time, or the call took too long"
    )]
    Timeout(ErrorBody),
    #[response(status = 413, description = "The body is too large")]
    TooLarge(ErrorBody),
    #[response(status = 415, description = "The body is not declared as JSON")]
    UnsupportedMediaType(ErrorBody),
    #[response(
        status = 429,
        description = "A limit is reached: see `retry-after` and the `x-ratelimit` headers"
    )]
    TooManyRequests(ErrorBody),
    #[response(status = 500, description = "A fault of the gateway")]
    Internal(ErrorBody),
    #[response(status = 502, description = "The provider failed")]
    BadGateway(ErrorBody),
    #[response(
        status = 503,
        description = "Overloaded, shutting down, or the audit trail cannot be written"
    )]
    Unavailable(ErrorBody),
    #[response(status = 504, description = "The provider did not answer in time")]
    GatewayTimeout(ErrorBody),
}

/// A chat completion's request. Other fields of `OpenAI`'s pass through to the provider.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "model": "demo", "stream": true, "messages": [{ "role": "user", "content": "Hello" }],
}))]
pub struct ChatRequest {
    /// One of `GET /v1/models`.
    #[schema(min_length = 1, max_length = 256)]
    model: String,
    #[schema(value_type = Vec<Object>)]
    messages: Vec<serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
    #[schema(minimum = 0)]
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u64>,
    /// Tools by name; one that is registered at the gateway takes the tool's capability.
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<Vec<ChatTool>>,
}

#[derive(Debug, Serialize, ToSchema)]
struct StreamOptions {
    /// Ends the stream with a chunk that says what was spent.
    #[serde(skip_serializing_if = "Option::is_none")]
    include_usage: Option<bool>,
}

#[derive(Debug, Serialize, ToSchema)]
struct ChatTool {
    #[serde(rename = "type")]
    class: String,
    function: ChatFunction,
}

#[derive(Debug, Serialize, ToSchema)]
struct ChatFunction {
    name: String,
}

/// A whole answer, as the provider gave it.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatCompletion {
    id: String,
    object: String,
    created: i64,
    model: String,
    #[schema(value_type = Vec<Object>)]
    choices: Vec<serde_json::Value>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct ModelList {
    /// Always `list`.
    pub object: &'static str,
    pub data: Vec<ModelObject>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct ModelObject {
    pub id: String,
    /// Always `model`.
    pub object: &'static str,
    /// Always 0: the gateway does not know when a model was made.
    pub created: i64,
    pub owned_by: &'static str,
}
