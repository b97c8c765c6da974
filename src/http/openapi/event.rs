//! What the events of a streamed answer look like. [`crate::domain::Frame`] writes those of native
//! streams; a test holds the two against each other.
//!
//! `OpenAPI` 3.1 has no word for a stream of events. As tools read it (and as OpenAI's own
//! document has it), the schema of `text/event-stream` is that of one event, not of the body.

use serde::Serialize;
use utoipa::{
    ToSchema,
    openapi::{
        Ref,
        schema::{ObjectBuilder, OneOfBuilder, Type},
    },
};

use super::schema::{ChatCompletionChunk, ErrorBody, ErrorCode};

/// One event of a streamed chat completion. The last one's `data` is `[DONE]`, or an error if the
/// answer broke off. Comments (`: keep-alive`) may stand between events.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what providers send")]
pub(super) struct ChatEvent {
    #[schema(schema_with = chat_data)]
    data: String,
}

/// One event of a native stream. Exactly one of `done`, `canceled` and `error` ends the stream.
/// Before the first one stands `retry: 1000`; comments (`: keep-alive`) may stand between them.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what `domain::Frame` encodes to")]
pub(super) struct StreamEvent {
    /// The frame's `seq`: 1, 2, 3… without gaps.
    #[schema(pattern = "^[1-9][0-9]*$")]
    id: String,
    event: EventName,
    #[schema(schema_with = frame_data)]
    data: String,
}

/// Says which frame the event's data is.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[expect(dead_code, reason = "describes what `domain::Frame` encodes to")]
enum EventName {
    Token,
    Reasoning,
    Refusal,
    ToolCall,
    Usage,
    Done,
    Canceled,
    Error,
}

fn chat_data() -> OneOfBuilder {
    let done = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(["[DONE]"]));
    OneOfBuilder::new().item(done).item(json_of("ChatData"))
}

fn frame_data() -> ObjectBuilder {
    json_of("Frame")
}

/// A string that holds JSON of the named schema.
fn json_of(schema: &str) -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .content_media_type("application/json")
        .content_schema(Some(Ref::from_schema_name(schema)))
}

/// The data of an event of a streamed chat completion.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes what providers send and the gateway ends a stream with")]
pub(super) enum ChatData {
    Chunk(ChatCompletionChunk),
    Error(ErrorBody),
}

/// A native frame; the event's name says which.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes what `domain::Frame` encodes to")]
pub(super) enum Frame {
    Delta(DeltaFrame),
    ToolCall(ToolCallFrame),
    Usage(UsageFrame),
    Done(DoneFrame),
    Canceled(CanceledFrame),
    Error(ErrorFrame),
}

/// `token`, `reasoning` and `refusal`: a piece of the answer, of the model's thinking, or of its
/// refusal.
#[derive(Serialize, ToSchema)]
#[schema(example = json!({ "seq": 1, "delta": "Hello", "model": "demo" }))]
pub(super) struct DeltaFrame {
    #[schema(minimum = 1)]
    seq: u64,
    delta: String,
    /// The name that the caller asked for; not on a `refusal`.
    #[schema(nullable = false)]
    model: Option<String>,
    /// Which of several choices (`n`) it belongs to. Left out where it is 0.
    #[schema(nullable = false, minimum = 1)]
    choice: Option<u64>,
}

/// `tool_call`: a whole one, once the model has written all of it.
#[derive(Serialize, ToSchema)]
#[schema(example = json!({ "seq": 4, "id": "call_x", "name": "fleet_ps", "arguments": {} }))]
pub(super) struct ToolCallFrame {
    #[schema(minimum = 1)]
    seq: u64,
    id: String,
    name: String,
    /// What the model wrote: an object, or a string of its text where that is not JSON.
    arguments: serde_json::Value,
    /// Left out where it is 0.
    #[schema(nullable = false, minimum = 1)]
    choice: Option<u64>,
}

/// `usage`: what was spent. Comes before `done`.
#[derive(Serialize, ToSchema)]
#[schema(example = json!({
    "seq": 5, "input_tokens": 312, "output_tokens": 118, "cache_read": 0, "cost_usd": "0.000198",
}))]
pub(super) struct UsageFrame {
    #[schema(minimum = 1)]
    seq: u64,
    input_tokens: u64,
    output_tokens: u64,
    /// Of the input tokens, those that the provider had cached.
    cache_read: u64,
    /// Of the output tokens; left out where it is 0.
    #[schema(nullable = false, minimum = 1)]
    reasoning_tokens: Option<u64>,
    /// US dollars. Left out where the model has no price.
    #[schema(nullable = false, pattern = r"^[0-9]+\.[0-9]{6}$")]
    cost_usd: Option<String>,
}

/// `done`: the answer is whole.
#[derive(Serialize, ToSchema)]
#[schema(example = json!({ "seq": 6, "finish_reason": "stop" }))]
pub(super) struct DoneFrame {
    #[schema(minimum = 1)]
    seq: u64,
    /// The provider's own word: `stop`, `length`, `tool_calls`, `content_filter`…
    finish_reason: String,
}

/// `canceled`: by `DELETE` (`requested`), or as nobody read it (`orphaned`).
#[derive(Serialize, ToSchema)]
#[schema(example = json!({ "seq": 6, "reason": "requested" }))]
pub(super) struct CanceledFrame {
    #[schema(minimum = 1)]
    seq: u64,
    reason: String,
}

/// `error`: the answer broke off.
#[derive(Serialize, ToSchema)]
#[schema(example = json!({
    "seq": 6, "code": "upstream_lost", "message": "The provider broke off.", "retryable": true,
}))]
pub(super) struct ErrorFrame {
    #[schema(minimum = 1)]
    seq: u64,
    code: ErrorCode,
    message: String,
    /// Is it worth another try?
    retryable: bool,
}
