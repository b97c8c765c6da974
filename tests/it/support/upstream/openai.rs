//! What OpenAI-compatible servers write, byte for byte as they write it.
//!
//! The chunks are those of a server that was asked for usage, as the gateway always asks: `usage`
//! is null in each of them and stands in one of its own at the end.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Framing, Recorded, Script};

/// The provider's name of the model, in every answer.
pub const MODEL: &str = "mock-model-2026-01-01";
pub const ID: &str = "chatcmpl-mock";
/// The tokens of every answer that tells them.
pub const INPUT_TOKENS: u64 = 9;
pub const CACHED_TOKENS: u64 = 4;
pub const OUTPUT_TOKENS: u64 = 2;
pub const REASONING_TOKENS: u64 = 1;

/// One event of the stream.
pub fn event(data: &str) -> Bytes {
    Bytes::from(format!("data: {data}\n\n"))
}

pub fn done() -> Bytes {
    event("[DONE]")
}

fn chunk(choices: &str, usage: &str) -> Bytes {
    event(&format!(
        r#"{{"id":"{ID}","object":"chat.completion.chunk","created":1767225600,"model":"{MODEL}","service_tier":"default","system_fingerprint":"fp_mock","choices":{choices},"usage":{usage},"obfuscation":"Xq3"}}"#
    ))
}

/// A chunk with one choice: its `delta` as given, and what else the choice has.
fn choice(index: u32, delta: &Value, logprobs: &Value, finish_reason: Option<&str>) -> Bytes {
    let finish_reason = Value::from(finish_reason);
    let choice = format!(
        r#"[{{"index":{index},"delta":{delta},"logprobs":{logprobs},"finish_reason":{finish_reason}}}]"#
    );
    chunk(&choice, "null")
}

fn delta(index: u32, delta: &Value) -> Bytes {
    choice(index, delta, &Value::Null, None)
}

pub fn role() -> Bytes {
    role_of(0)
}

pub fn role_of(index: u32) -> Bytes {
    delta(index, &json!({"role": "assistant", "content": "", "refusal": null}))
}

pub fn text(piece: &str) -> Bytes {
    text_of(0, piece)
}

pub fn text_of(index: u32, piece: &str) -> Bytes {
    delta(index, &json!({"content": piece}))
}

/// As vLLM, `DeepSeek` and Cerebras spell it.
pub fn reasoning_content(piece: &str) -> Bytes {
    delta(0, &json!({"reasoning_content": piece}))
}

/// As Groq, Together and newer vLLM spell it.
pub fn reasoning(piece: &str) -> Bytes {
    delta(0, &json!({"reasoning": piece}))
}

pub fn refusal(piece: &str) -> Bytes {
    delta(0, &json!({"refusal": piece}))
}

pub fn text_with_logprobs(piece: &str) -> Bytes {
    let logprob = json!({
        "token": piece, "logprob": -0.000_123_456_789, "bytes": piece.as_bytes(), "top_logprobs": [],
    });
    let logprobs = json!({"content": [logprob], "refusal": null});
    choice(0, &json!({"content": piece}), &logprobs, None)
}

/// The first delta of a tool call: its name, and no arguments yet.
pub fn tool_call(index: u32, id: &str, name: &str) -> Bytes {
    let function = json!({"name": name, "arguments": ""});
    let call = json!({"index": index, "id": id, "type": "function", "function": function});
    delta(0, &json!({"tool_calls": [call]}))
}

/// A further delta of it: a piece of the arguments' text.
pub fn tool_arguments(index: u32, piece: &str) -> Bytes {
    let call = json!({"index": index, "function": {"arguments": piece}});
    delta(0, &json!({"tool_calls": [call]}))
}

/// Members and digits that no decoder of ours knows: they have to come out as they went in.
pub fn unknown_members() -> Bytes {
    chunk(
        r#"[{"index":0,"delta":{"content":"x","x_audio":{"a":1.10}},"finish_reason":null,"x_score":0.30000000000000004}]"#,
        r#"null,"x_seed":12345678901234567890123,"x_ratio":1.50e+2"#,
    )
}

pub fn finish(reason: &str) -> Bytes {
    finish_of(0, reason)
}

pub fn finish_of(index: u32, reason: &str) -> Bytes {
    choice(index, &json!({}), &Value::Null, Some(reason))
}

/// The chunk that tells the usage and has no choices.
pub fn usage() -> Bytes {
    chunk("[]", &usage_object())
}

fn usage_object() -> String {
    let total = INPUT_TOKENS + OUTPUT_TOKENS;
    format!(
        r#"{{"prompt_tokens":{INPUT_TOKENS},"completion_tokens":{OUTPUT_TOKENS},"total_tokens":{total},"prompt_tokens_details":{{"cached_tokens":{CACHED_TOKENS},"audio_tokens":0}},"completion_tokens_details":{{"reasoning_tokens":{REASONING_TOKENS},"audio_tokens":0}}}}"#
    )
}

/// These events, then usage and `[DONE]`.
pub fn stream(events: impl IntoIterator<Item = Bytes>) -> Script {
    Script::events(events.into_iter().chain([usage(), done()]))
}

/// A streamed answer in these pieces, whole in every way. Steps: role, pieces, finish, usage, done.
pub fn text_stream<'a>(pieces: impl IntoIterator<Item = &'a str>) -> Script {
    let pieces = pieces.into_iter().map(text);
    stream([role()].into_iter().chain(pieces).chain([finish("stop")]))
}

/// The same from a server that tells no usage.
pub fn text_stream_without_usage<'a>(pieces: impl IntoIterator<Item = &'a str>) -> Script {
    let pieces = pieces.into_iter().map(text);
    Script::events([role()].into_iter().chain(pieces).chain([finish("stop"), done()]))
}

/// A call of `name` whose arguments come in these pieces.
pub fn tool_call_stream<'a>(name: &str, pieces: impl IntoIterator<Item = &'a str>) -> Script {
    let call = [role(), tool_call(0, "call_mock", name)].into_iter();
    let pieces = pieces.into_iter().map(|piece| tool_arguments(0, piece));
    stream(call.chain(pieces).chain([finish("tool_calls")]))
}

/// Two choices, interleaved.
pub fn two_choice_stream() -> Script {
    let texts = [text_of(0, "left"), text_of(1, "right"), text_of(0, " hand"), text_of(1, " hand")];
    let finishes = [finish_of(1, "stop"), finish_of(0, "length")];
    stream([role_of(0), role_of(1)].into_iter().chain(texts).chain(finishes))
}

/// An answer that is not streamed.
pub fn completion(text: &str) -> Script {
    let usage = usage_object();
    let text = Value::from(text);
    let body = format!(
        r#"{{"id":"{ID}","object":"chat.completion","created":1767225600,"model":"{MODEL}","choices":[{{"index":0,"message":{{"role":"assistant","content":{text},"refusal":null,"annotations":[]}},"logprobs":null,"finish_reason":"stop"}}],"usage":{usage},"service_tier":"default","x_ratio":1.50e+2}}"#
    );
    Script::body(200, "application/json", body).header("x-request-id", "req_mock")
}

/// OpenAI's error body.
pub fn error(status: u16, kind: &str, code: Option<&str>, message: &str) -> Script {
    let body = json!({"error": {"message": message, "type": kind, "param": null, "code": code}});
    Script::body(status, "application/json", body.to_string()).header("x-request-id", "req_mock")
}

pub fn rate_limited(retry_after_s: u64) -> Script {
    error(429, "requests", Some("rate_limit_exceeded"), "Rate limit reached for mock-model.")
        .header("retry-after", &retry_after_s.to_string())
        .header("x-ratelimit-remaining-requests", "0")
}

/// As OpenAI does, it repeats a part of the key that it was given.
pub fn unauthorized(key: &str) -> Script {
    let message = format!("Incorrect API key provided: {key}.");
    error(401, "invalid_request_error", Some("invalid_api_key"), &message)
}

pub fn bad_request() -> Script {
    error(400, "invalid_request_error", Some("context_length_exceeded"), "Too many tokens.")
}

pub fn server_error() -> Script {
    error(500, "server_error", None, "The server had an error while processing your request.")
}

/// From the load balancer in front of the provider.
pub fn unavailable_html() -> Script {
    let page = "<html><head><title>503 Service Temporarily Unavailable</title></head></html>\r\n";
    Script::body(503, "text/html", page)
}

/// What the mock answers when nothing was queued: a correct answer to a chat completion, streamed
/// and with usage if the request says so, and 404 to all else.
pub fn answer(request: &Recorded) -> Script {
    if request.method != "POST" || !request.path.ends_with("/chat/completions") {
        return error(404, "invalid_request_error", None, "Unknown request URL.");
    }
    let Ok(body) = serde_json::from_slice::<Value>(&request.body) else {
        return error(400, "invalid_request_error", None, "We could not parse your JSON.");
    };
    let pieces = ["Hello", " world"];
    match (body["stream"] == true, body["stream_options"]["include_usage"] == true) {
        (false, _) => completion(&pieces.concat()).framing(Framing::ContentLength),
        (true, true) => text_stream(pieces),
        (true, false) => text_stream_without_usage(pieces),
    }
}
