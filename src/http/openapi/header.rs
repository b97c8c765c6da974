//! The headers that answers bear.

use utoipa::{
    Modify,
    openapi::{HeaderBuilder, Object, Ref, RefOr, Response, Type, header::Header},
};

/// On every answer.
pub(super) const IDS: &[&str] = &["x-request-id", "traceparent"];
/// On the answers to calls, and where they were too many.
pub(super) const STANDING: &[&str] =
    &["x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"];
/// Where it makes sense to come back.
pub(super) const RETRY: &[&str] = &["retry-after", "retry-after-ms"];
/// On every error.
pub(super) const SOURCE: &[&str] = &["x-tollgate-source"];
pub(super) const CHALLENGE: &[&str] = &["www-authenticate"];
/// On the frames of a native stream.
pub(super) const STREAM: &[&str] = &["x-stream-id", "location"];

/// Name, type, what it says, and an example.
const HEADERS: [(&str, Type, &str, &str); 11] = [
    ("x-request-id", Type::String, "The request's id: the caller's own, or ours", "0192f0c1a6b2"),
    (
        "traceparent",
        Type::String,
        "The request's place in the caller's trace, or in a new one (W3C Trace Context)",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    ),
    ("x-tollgate-source", Type::String, "Who refused: `gateway`, or `upstream`", "gateway"),
    (
        "www-authenticate",
        Type::String,
        "What is wrong with the token (RFC 6750 §3)",
        "Bearer error=\"invalid_token\"",
    ),
    ("retry-after", Type::Integer, "Seconds to wait before the next try", "2"),
    ("retry-after-ms", Type::Integer, "The same in milliseconds", "1200"),
    (
        "x-ratelimit-limit-requests",
        Type::Integer,
        "Requests a minute that the caller's tier has for this model. Absent where it has no limit",
        "600",
    ),
    ("x-ratelimit-remaining-requests", Type::Integer, "Those that are left", "599"),
    ("x-ratelimit-reset-requests", Type::String, "Until all are there again", "6m0s"),
    ("x-stream-id", Type::String, "The stream's id", "0192f0c1-a6b2-7c3d-8e4f-5a6b7c8d9e0f"),
    (
        "location",
        Type::String,
        "Where the stream is resumed and canceled",
        "/v1/streams/0192f0c1-a6b2-7c3d-8e4f-5a6b7c8d9e0f",
    ),
];

/// Puts the headers into the document's components.
pub(super) struct Headers;

impl Modify for Headers {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let headers = &mut document.components.get_or_insert_default().headers;
        for (name, class, description, example) in HEADERS {
            headers.insert(name.to_owned(), RefOr::T(header(class, description, example)));
        }
    }
}

fn header(class: Type, description: &str, example: &str) -> Header {
    let example = match class {
        Type::Integer => example.parse::<u64>().ok().map(Into::into),
        _ => Some(example.into()),
    };
    HeaderBuilder::new()
        .schema(Some(Object::with_type(class)))
        .description(Some(description))
        .example(example)
        .build()
}

/// Says that `response` bears these headers.
pub(super) fn put(response: &mut Response, names: &[&str]) {
    for name in names {
        let header = Ref::new(format!("#/components/headers/{name}"));
        response.headers.insert((*name).to_owned(), RefOr::Ref(header));
    }
}

/// Says that `response` bears the headers that every answer does.
pub(super) fn put_ids(response: &mut Response) {
    put(response, IDS);
}
