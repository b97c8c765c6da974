//! What routes answer: the errors that several share, and the answers to calls.

use std::collections::BTreeMap;

use bytes::BytesMut;
use serde_json::Value;
use utoipa::{
    IntoResponses, Modify, ToSchema,
    openapi::{
        ContentBuilder, Ref, RefOr, Response, ResponseBuilder, content::Content,
        example::ExampleBuilder,
    },
};

use super::{
    event::{ChatEvent, StreamEvent},
    header::{CHALLENGE, IDS, RETRY, SOURCE, STANDING, STREAM, put},
    schema::{ChatCompletion, ErrorBody},
};
use crate::{
    domain::{Denial, Frame, Kind, MicroUsd, Usage},
    http::error::openai_body,
};

/// An error's status, its name in the document, what it says, and its headers beside the ones
/// that every error has.
type Refusal = (u16, &'static str, &'static str, &'static [&'static [&'static str]]);

const REFUSALS: [Refusal; 12] = [
    (400, "BadRequest", "The request is not understood, or not taken", &[]),
    (401, "Unauthorized", "No token, or one that is not valid", &[CHALLENGE]),
    (403, "Forbidden", "The token lacks the capability, or its tier is not known", &[]),
    (404, "NotFound", "There is no such thing, or not for this caller", &[]),
    (408, "RequestTimeout", "The body did not come in time, or the call took too long", &[]),
    (413, "BodyTooLarge", "The body is larger than `server.body_limit_bytes`", &[]),
    (415, "UnsupportedMediaType", "The body is not declared as JSON", &[]),
    (429, "TooManyRequests", "A limit is reached", &[RETRY, STANDING]),
    (500, "Internal", "A fault of the gateway", &[]),
    (502, "BadGateway", "The model's provider failed", &[]),
    (503, "Unavailable", "Overloaded, stopping, or without its audit trail or keys", &[RETRY]),
    (
        504,
        "GatewayTimeout",
        "It took too long: the provider to answer, or the trail to be searched",
        &[],
    ),
];

/// Puts the shared errors into the document's components.
pub(super) struct Answers;

impl Modify for Answers {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let responses = &mut document.components.get_or_insert_default().responses;
        for (status, name, description, headers) in REFUSALS {
            let content = RefOr::T(refusal_content(status));
            let mut response = ResponseBuilder::new().description(description).build();
            response.content.insert("application/json".to_owned(), content);
            for names in headers.iter().chain(&[IDS, SOURCE]) {
                put(&mut response, names);
            }
            responses.insert(name.to_owned(), RefOr::T(response));
        }
    }
}

/// The error's body, with each code that comes with this status as an example.
fn refusal_content(status: u16) -> Content {
    let kinds = Kind::ALL.iter().filter(|kind| kind.status() == status);
    let examples = kinds.map(|kind| {
        let body = openai_body(&Denial::new(*kind, kind.meaning()));
        let value: Option<Value> = serde_json::from_str(&body).ok();
        (kind.code(), ExampleBuilder::new().summary(kind.meaning()).value(value).build())
    });
    ContentBuilder::new()
        .schema(Some(Ref::from_schema_name(ErrorBody::name())))
        .examples_from_iter(examples)
        .build()
}

fn refusals(statuses: &[u16]) -> BTreeMap<String, RefOr<Response>> {
    let known = REFUSALS.iter().filter(|(status, ..)| statuses.contains(status));
    let entry = |(status, name, ..): &Refusal| {
        (status.to_string(), RefOr::Ref(Ref::from_response_name(*name)))
    };
    known.map(entry).collect()
}

/// What any governed route may answer.
pub struct Errors;

impl IntoResponses for Errors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        refusals(&[401, 429, 500, 503])
    }
}

/// What a route to one thing, named in its path, may answer beside that.
pub struct ErrorsOfOne;

impl IntoResponses for ErrorsOfOne {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        refusals(&[400, 404])
    }
}

/// A capability is lacking.
pub struct Forbidden;

impl IntoResponses for Forbidden {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        refusals(&[403])
    }
}

/// What a question of the audit trail may answer beside that.
pub struct QueryErrors;

impl IntoResponses for QueryErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        refusals(&[400, 403, 504])
    }
}

/// The answers to a chat completion.
pub struct Chat;

impl IntoResponses for Chat {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let description = "The answer, as the provider gave it. With `stream: true` an event \
            stream, each event's data a `ChatCompletionChunk` and the last one's `[DONE]`.";
        let json = ContentBuilder::new()
            .schema(Some(Ref::from_schema_name(ChatCompletion::name())))
            .build();
        let mut answer = ResponseBuilder::new()
            .description(description)
            .content("application/json", json)
            .content("text/event-stream", events(&ChatEvent::name(), CHUNKS.to_owned()))
            .build();
        put(&mut answer, STANDING);
        call(answer)
    }
}

/// The answers to a native stream's beginning.
pub struct NativeStream;

impl IntoResponses for NativeStream {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let mut answer = native("The stream's frames, from the first on.");
        put(&mut answer, STANDING);
        call(answer)
    }
}

/// The good answer to a native stream's resumption.
pub struct NativeRest;

impl IntoResponses for NativeRest {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let answer = native("The frames after `last-event-id`, then those that come.");
        [("200".to_owned(), RefOr::T(answer))].into()
    }
}

/// What a model call may answer: well, refused by the gateway, or refused by the provider.
fn call(answer: Response) -> BTreeMap<String, RefOr<Response>> {
    let mut responses = refusals(&REFUSALS.map(|(status, ..)| status));
    responses.insert("200".to_owned(), RefOr::T(answer));
    for range in ["4XX", "5XX"] {
        let mut upstream = ResponseBuilder::new()
            .description(
                "The provider's own refusal, as it came, with `x-tollgate-source: upstream`. It \
                 may have any of the statuses above, too.",
            )
            .content(
                "application/json",
                ContentBuilder::new()
                    .schema(Some(Ref::from_schema_name(ErrorBody::name())))
                    .build(),
            )
            .content("*/*", Content::default())
            .build();
        put(&mut upstream, SOURCE);
        responses.insert(range.to_owned(), RefOr::T(upstream));
    }
    responses
}

fn native(description: &str) -> Response {
    let description = format!(
        "{description} Each event's name says which frame its data is: `token`, `reasoning` and \
         `refusal` a `DeltaFrame`, `tool_call` a `ToolCallFrame`, `usage` a `UsageFrame`; and the \
         last, `done` a `DoneFrame`, `canceled` a `CanceledFrame` or `error` an `ErrorFrame`."
    );
    let mut answer = ResponseBuilder::new()
        .description(description)
        .content("text/event-stream", events(&StreamEvent::name(), frames()))
        .build();
    put(&mut answer, STREAM);
    answer
}

/// The schema is that of each event; the example is a whole stream.
fn events(schema: &str, example: String) -> Content {
    let example = ExampleBuilder::new().value(Some(Value::String(example))).build();
    ContentBuilder::new()
        .schema(Some(Ref::from_schema_name(schema)))
        .examples_from_iter([("a whole stream", example)])
        .build()
}

const CHUNKS: &str = r#"data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1767225600,"model":"demo","choices":[{"index":0,"delta":{"role":"assistant","content":"Hello"},"finish_reason":null}]}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1767225600,"model":"demo","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}

data: [DONE]

"#;

/// A short native stream, written by what writes the real ones.
fn frames() -> String {
    let usage = Usage { input_tokens: 9, output_tokens: 2, ..Usage::default() };
    let frames = [
        Frame::Token { delta: "Hello", model: "demo", choice: 0 },
        Frame::Usage { usage, cost: Some(MicroUsd(5)) },
        Frame::Done { finish_reason: "stop" },
    ];
    let mut out = BytesMut::from("retry: 1000\n\n");
    for (frame, seq) in frames.iter().zip(1..) {
        // A frame that can't be written is missing from an example, no more.
        let _ = frame.encode(seq, &mut out);
    }
    String::from_utf8_lossy(&out).into_owned()
}
