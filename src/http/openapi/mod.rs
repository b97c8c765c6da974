//! The `OpenAPI` document: what programs of other people's rely on. It is made from the routes,
//! so it can't name one that there is not; `openapi/tollgate.json` is its committed form.
//!
//! `answer` has what routes answer and with which headers, `schema` the bodies, `event` what
//! streams are made of.

pub(super) mod answer;
pub(super) mod audit;
mod event;
mod header;
pub(super) mod schema;

use std::{collections::HashMap, fmt::Write as _, sync::LazyLock};

use http::Method;
use utoipa::{
    Modify, OpenApi,
    openapi::{
        PathItem, RefOr,
        path::Operation,
        security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};

use self::{answer::Answers, header::Headers};
use super::router::api;
use crate::domain::Kind;

#[derive(OpenApi)]
#[openapi(
    info(title = "Tollgate", license(name = "Apache-2.0", identifier = "Apache-2.0")),
    servers((url = "/", description = "Where this document came from")),
    tags(
        (name = "models", description = "OpenAI's dialect: point its SDKs here, with a token as the API key"),
        (name = "budgets", description = "What the caller may spend still"),
        (name = "audit", description = "Who did what, and what it cost"),
        (name = "streams", description = "Native streams: they can be resumed and canceled"),
    ),
    // Those that are named in answers and in strings of JSON alone, where the derive doesn't look.
    components(schemas(
        schema::ChatCompletion,
        schema::ErrorBody,
        audit::AuditList,
        event::ChatEvent,
        event::ChatData,
        event::StreamEvent,
        event::Frame,
    )),
    modifiers(&Description, &Token, &Answers, &Headers),
)]
pub(super) struct ApiDoc;

/// The document as it is served and committed.
#[must_use]
pub fn document() -> utoipa::openapi::OpenApi {
    let mut document = api().into_openapi();
    for operation in document.paths.paths.values_mut().flat_map(operations_mut) {
        for response in operation.responses.responses.values_mut() {
            if let RefOr::T(response) = response {
                header::put_ids(response);
            }
        }
    }
    document
}

struct Token;

impl Modify for Token {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let bearer = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .bearer_format("JWT")
            .description(Some(
                "A short-lived JWT of an issuer that the gateway trusts. `tollgate dev` prints \
                 one, `tollgate mint-token` makes more.",
            ))
            .build();
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(bearer));
    }
}

const INTRODUCTION: &str = "\
A gateway between agents and the models they spend.

**Tokens.** Each route takes `Authorization: Bearer <JWT>`. What a token may use depends on its \
capabilities, how much on its tier; `GET /v1/models` lists what yours may.

**Ids.** Every answer has an `x-request-id`: yours, if you send one of 1 to 128 characters of \
`A-Z a-z 0-9 . _ : -`, else ours. A `traceparent` (W3C Trace Context) is taken up and goes on to \
the model's provider, and so does a `tracestate` beside it. An `x-run-id` of 1 to 128 visible \
ASCII characters says which run of an agent a call belongs to, and stands in its audit rows; any \
other is a 400.

**Errors** have OpenAI's shape and one of the codes below, which never change. \
`x-tollgate-source` says who refused: the `gateway`, or the model's provider (`upstream`), whose \
status and body come as they are. Where a retry may help, the same request may be sent again, \
after `retry-after` where that is given.

**Streams.** Server-sent events, with comments (`: keep-alive`) while nothing else comes. Once a \
stream has begun, an error is its last event.
";

/// Says what holds for every route, and lists the stable codes.
struct Description;

impl Modify for Description {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let mut text =
            format!("{INTRODUCTION}\n| code | status | retry | |\n| --- | --- | --- | --- |\n");
        for kind in Kind::ALL {
            let retry = if kind.retryable() { "yes" } else { "" };
            let (code, status, meaning) = (kind.code(), kind.status(), kind.meaning());
            // Writing to a string does not fail.
            let _ = writeln!(text, "| `{code}` | {status} | {retry} | {meaning} |");
        }
        document.info.description = Some(text);
    }
}

fn operations_mut(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let PathItem { get, put, post, delete, patch, head, options, trace, .. } = item;
    [get, put, post, delete, patch, head, options, trace].into_iter().filter_map(Option::as_mut)
}

static OPERATIONS: LazyLock<HashMap<String, Vec<(Method, String)>>> = LazyLock::new(|| {
    let mut operations = HashMap::new();
    for (path, item) in document().paths.paths {
        let methods = [
            (Method::GET, &item.get),
            (Method::HEAD, &item.get),
            (Method::PUT, &item.put),
            (Method::POST, &item.post),
            (Method::PATCH, &item.patch),
            (Method::DELETE, &item.delete),
        ];
        let ids = methods.into_iter().filter_map(|(method, operation)| {
            Some((method, operation.as_ref()?.operation_id.clone()?))
        });
        operations.insert(path, ids.collect());
    }
    operations
});

/// The operation's id, for audit rows; `unknown` where there is no such route.
pub(super) fn operation(method: &Method, route: Option<&str>) -> &'static str {
    let methods = route.and_then(|route| OPERATIONS.get(route)).map_or(&[][..], Vec::as_slice);
    let known = methods.iter().find(|(known, _)| known == method);
    known.map_or("unknown", |(_, id)| id)
}
