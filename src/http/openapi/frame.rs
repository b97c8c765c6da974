//! The frames of a native stream as the document describes them: the `data` of each event.
//!
//! [`crate::domain::Frame`] writes them; a test holds the two against each other.

use utoipa::ToSchema;

/// The events `token` and `reasoning`: a piece of the answer, or of the model's thinking.
#[derive(ToSchema)]
#[schema(example = json!({ "seq": 1, "delta": "Hello", "model": "demo" }))]
#[expect(dead_code, reason = "describes what another module writes")]
pub(super) struct TokenFrame {
    /// From 1 without gaps, and the event's id.
    #[schema(minimum = 1)]
    seq: u64,
    delta: String,
    /// The model's name, as the caller gave it.
    model: String,
    /// Which of several choices (`n`) this belongs to. Absent for the first.
    choice: Option<u64>,
}

/// The event `refusal`: a piece of the model's refusal.
#[derive(ToSchema)]
#[schema(example = json!({ "seq": 1, "delta": "I can't help with that." }))]
#[expect(dead_code, reason = "describes what another module writes")]
pub(super) struct RefusalFrame {
    #[schema(minimum = 1)]
    seq: u64,
    delta: String,
    choice: Option<u64>,
}

/// The event `tool_call`: a whole call, once the model has written all of it.
#[derive(ToSchema)]
#[schema(example = json!({ "seq": 4, "id": "call_x", "name": "fleet_ps", "arguments": {} }))]
#[expect(dead_code, reason = "describes what another module writes")]
pub(super) struct ToolCallFrame {
    #[schema(minimum = 1)]
    seq: u64,
    id: String,
    name: String,
    /// The JSON that the model wrote; a string of its text where that is no JSON.
    arguments: serde_json::Value,
    choice: Option<u64>,
}

/// The event `usage`: what was spent. Before `done`.
#[derive(ToSchema)]
#[schema(example = json!({
    "seq": 5, "input_tokens": 312, "output_tokens": 118, "cache_read": 0, "cost_usd": "0.000198",
}))]
#[expect(dead_code, reason = "describes what another module writes")]
pub(super) struct UsageFrame {
    #[schema(minimum = 1)]
    seq: u64,
    /// Those read from the provider's cache included.
    input_tokens: u64,
    output_tokens: u64,
    /// Of the input, read from the provider's cache.
    cache_read: u64,
    /// Of the output, spent on reasoning. Absent where none were.
    reasoning_tokens: Option<u64>,
    /// US dollars with six decimals. Absent for a model without a price.
    #[schema(pattern = r"^[0-9]+\.[0-9]{6}$")]
    cost_usd: Option<String>,
}

/// The event `done`: the answer is whole. Terminal.
#[derive(ToSchema)]
#[schema(example = json!({ "seq": 6, "finish_reason": "stop" }))]
#[expect(dead_code, reason = "describes what another module writes")]
pub(super) struct DoneFrame {
    #[schema(minimum = 1)]
    seq: u64,
    /// The provider's own word: `stop`, `length`, `tool_calls`, `content_filter`…
    finish_reason: String,
}

/// The event `canceled`: by `DELETE`, or because nobody read. Terminal.
#[derive(ToSchema)]
#[schema(example = json!({ "seq": 6, "reason": "requested" }))]
#[expect(dead_code, reason = "describes what another module writes")]
pub(super) struct CanceledFrame {
    #[schema(minimum = 1)]
    seq: u64,
    reason: CancelReason,
}

#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[expect(dead_code, reason = "describes what another module writes")]
enum CancelReason {
    Requested,
    Orphaned,
    HungUp,
}

/// The event `error`: the stream broke off. Terminal.
#[derive(ToSchema)]
#[schema(example = json!({
    "seq": 6, "code": "upstream_lost", "message": "The provider broke off.", "retryable": true,
}))]
#[expect(dead_code, reason = "describes what another module writes")]
pub(super) struct ErrorFrame {
    #[schema(minimum = 1)]
    seq: u64,
    code: super::schema::ErrorCode,
    message: String,
    /// May the same request succeed if it is sent again?
    retryable: bool,
}
