//! The bodies that routes take and give.
//!
//! Chat completions are described as far as the gateway reads them and as most clients use them;
//! whatever else stands in them passes through.

use std::borrow::Cow;

use serde::Serialize;
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, RefOr, Schema, Type},
};

use crate::domain::Kind;

/// A chat completion's request. Other fields of OpenAI's pass through to the provider.
#[derive(ToSchema)]
#[schema(example = json!({
    "model": "demo", "messages": [{ "role": "user", "content": "Hello" }],
}))]
#[expect(dead_code, reason = "describes what another module reads")]
pub struct ChatRequest {
    /// One of `GET /v1/models`.
    #[schema(min_length = 1, max_length = 256, example = "demo")]
    model: String,
    messages: Vec<ChatMessage>,
    /// Server-sent events instead of one body. (On `/v1/streams` it makes no difference.)
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    /// The most tokens that may be generated.
    #[schema(minimum = 0)]
    max_completion_tokens: Option<u64>,
    /// The older name of `max_completion_tokens`, which goes before it.
    #[schema(minimum = 0, deprecated)]
    max_tokens: Option<u64>,
    /// How many choices.
    #[schema(minimum = 1)]
    n: Option<u64>,
    /// Functions that the model may call. One that bears the name of a tool registered at the
    /// gateway takes that tool's capability.
    tools: Option<Vec<ChatTool>>,
    /// The older form of `tools`.
    #[schema(deprecated)]
    functions: Option<Vec<ChatFunction>>,
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what passes through")]
struct ChatMessage {
    /// `system`, `developer`, `user`, `assistant` or `tool`.
    #[schema(example = "user")]
    role: String,
    /// Text, an array of content parts, or null.
    #[schema(example = "Hello")]
    content: Option<serde_json::Value>,
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what another module reads")]
struct StreamOptions {
    /// Ends the stream with a chunk that says what was spent.
    include_usage: Option<bool>,
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what another module reads")]
struct ChatTool {
    #[schema(example = "function")]
    r#type: String,
    function: ChatFunction,
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what another module reads")]
struct ChatFunction {
    #[schema(example = "get_weather")]
    name: String,
    description: Option<String>,
    /// A JSON Schema of the arguments.
    #[schema(value_type = Option<Object>)]
    parameters: Option<serde_json::Value>,
}

/// A whole answer, as the provider gave it.
#[derive(ToSchema)]
#[schema(example = json!({
    "id": "chatcmpl-1", "object": "chat.completion", "created": 1_767_225_600, "model": "demo",
    "choices": [{
        "index": 0, "message": { "role": "assistant", "content": "Hello!" }, "finish_reason": "stop",
    }],
    "usage": { "prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11 },
}))]
#[expect(dead_code, reason = "describes what passes through")]
pub(super) struct ChatCompletion {
    id: String,
    /// `chat.completion`
    object: String,
    /// Seconds since 1970.
    created: i64,
    /// The model that answered, by the provider's name of it.
    model: String,
    #[schema(value_type = Vec<Object>)]
    choices: Vec<serde_json::Value>,
    #[schema(value_type = Option<Object>)]
    usage: Option<serde_json::Value>,
}

/// The data of each event of a streamed answer, as the provider gave it. The last event's data
/// is `[DONE]`; that of a stream that broke off is an `ErrorBody`.
#[derive(Serialize, ToSchema)]
#[schema(example = json!({
    "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_767_225_600,
    "model": "demo",
    "choices": [{ "index": 0, "delta": { "content": "Hel" }, "finish_reason": null }],
}))]
pub(super) struct ChatCompletionChunk {
    id: String,
    /// `chat.completion.chunk`
    object: String,
    /// Seconds since 1970.
    created: i64,
    /// The model that answers, by the provider's name of it.
    model: String,
    /// Empty in the chunk that tells the usage.
    #[schema(value_type = Vec<Object>)]
    choices: Vec<serde_json::Value>,
    /// Only with `stream_options.include_usage`.
    #[schema(value_type = Option<Object>)]
    usage: Option<serde_json::Value>,
}

/// How a caller's budgets and limits stand.
#[derive(Debug, Serialize, ToSchema)]
pub struct BudgetList {
    /// Always `list`.
    #[schema(example = "list")]
    pub object: &'static str,
    pub data: Vec<BudgetObject>,
}

/// One budget or limit.
#[derive(Debug, Serialize, ToSchema)]
pub struct BudgetObject {
    /// What it limits: `requests-per-minute`, `tokens-per-minute`, `slots`, `tokens-per-hour`,
    /// `tokens-per-day`, `usd-per-day`, `usd-per-month`.
    #[schema(example = "usd-per-day")]
    pub budget: String,
    /// All whose calls share it: `tier:pro`, `agent:crawler`, `cost_center:cc-1`.
    #[schema(example = "agent:crawler")]
    pub owner: String,
    /// Only calls to this model count.
    #[schema(example = "demo")]
    pub model: Option<String>,
    /// What the numbers count: `requests`, `tokens`, `micro_usd`, `calls`.
    #[schema(example = "micro_usd")]
    pub unit: &'static str,
    #[schema(example = 5_000_000)]
    pub limit: u64,
    /// Spent. It may be more than the limit: what is beyond is paid by the windows to come.
    #[schema(example = 1_200_000)]
    pub used: u64,
    /// Held for calls that run.
    #[schema(example = 30_000)]
    pub reserved: u64,
    #[schema(example = 3_770_000)]
    pub remaining: u64,
    /// When all of it is there again. Absent for slots: those come back as calls end.
    #[schema(example = "2026-11-22T00:00:00Z", format = DateTime)]
    pub resets_at: Option<String>,
}

/// The models that the caller may use.
#[derive(Debug, Serialize, ToSchema)]
pub struct ModelList {
    /// Always `list`.
    #[schema(example = "list")]
    pub object: &'static str,
    pub data: Vec<ModelObject>,
}

/// One model.
#[derive(Debug, Serialize, ToSchema)]
pub struct ModelObject {
    /// What a request's `model` is to say.
    #[schema(example = "demo")]
    pub id: String,
    /// Always `model`.
    #[schema(example = "model")]
    pub object: &'static str,
    /// Always 0: the gateway does not know when a model was made.
    #[schema(example = 0)]
    pub created: i64,
    /// Always `tollgate`.
    #[schema(example = "tollgate")]
    pub owned_by: &'static str,
}

/// OpenAI's error body.
#[derive(Serialize, ToSchema)]
pub(super) struct ErrorBody {
    error: ErrorObject,
}

/// The gateway's own errors have all four; what a provider's have is the provider's affair.
#[derive(Serialize, ToSchema)]
struct ErrorObject {
    /// For people. Never rely on its words.
    message: String,
    /// `invalid_request_error`, `authentication_error`, `permission_error`, `not_found_error`,
    /// `rate_limit_error` or `server_error`.
    r#type: Option<String>,
    /// The field at fault.
    param: Option<String>,
    /// The gateway's are an `ErrorCode`; a provider's own passes through.
    code: Option<serde_json::Value>,
}

/// The stable codes of the gateway's own errors; this document's description says what each means.
#[derive(Serialize)]
pub(super) struct ErrorCode;

impl PartialSchema for ErrorCode {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some(
                "The stable codes of the gateway's own errors. More may be added; none changes.",
            ))
            .enum_values(Some(Kind::ALL.iter().map(|kind| kind.code())))
            .into()
    }
}

impl ToSchema for ErrorCode {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("ErrorCode")
    }
}
