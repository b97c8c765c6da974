//! The bodies that tell of the audit trail.
//!
//! What they describe is written from `audit::StoredEntry` and `audit::query`; a test compares.

use std::collections::BTreeMap;

use utoipa::{
    IntoResponses, ToSchema,
    openapi::{
        ContentBuilder, Ref, RefOr, Response, ResponseBuilder, content::Content,
        example::ExampleBuilder,
    },
};

/// The entries, as a page or as lines.
pub struct AuditEntries;

impl IntoResponses for AuditEntries {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let page =
            ContentBuilder::new().schema(Some(Ref::from_schema_name(AuditList::name()))).build();
        // A schema would be that of a line, and there is no word for that.
        let line = "{\"seq\":42,\"time\":\"2026-11-21T09:00:00Z\",\"id\":\"0192f0c1-a6b2-7c3d-8e4f-5a6b7c8d9e0f\",\
            \"kind\":\"settle\",\"request_id\":\"0192f0c1a6b2\",\"operation\":\"create_chat_completion\"}\n";
        let lines = ExampleBuilder::new().value(Some(line.into())).build();
        let lines: Content =
            ContentBuilder::new().examples_from_iter([("each line an AuditEntry", lines)]).build();
        let response = ResponseBuilder::new()
            .description("The entries. As lines, each is an `AuditEntry`")
            .content("application/json", page)
            .content("application/x-ndjson", lines)
            .build();
        [("200".to_owned(), RefOr::T(response))].into()
    }
}

/// One entry of the audit trail. What it has nothing to say of is left out.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what another module writes")]
pub struct AuditEntry {
    /// Where it stands in its store.
    #[schema(example = 42)]
    seq: i64,
    #[schema(example = "2026-11-21T09:00:00.123456Z", format = DateTime)]
    time: String,
    #[schema(example = "0192f0c1-a6b2-7c3d-8e4f-5a6b7c8d9e0f")]
    id: String,
    /// What ties the entries of a call together.
    #[schema(example = "0192f0c1-a6b2-7c3d-8e4f-5a6b7c8d9e0e", nullable = false)]
    call_id: Option<String>,
    /// `intent` (a call is about to leave), `settle`, `denied`, `canceled` (its one end),
    /// `tool_call`, `approval`, `reload`.
    #[schema(example = "settle")]
    kind: String,
    /// `ok`, `unknown`, or the code of what went wrong.
    #[schema(example = "ok", nullable = false)]
    outcome: Option<String>,
    #[schema(example = 200, nullable = false)]
    status: Option<i64>,
    #[schema(example = "0192f0c1a6b2")]
    request_id: String,
    #[schema(example = "create_chat_completion")]
    operation: String,
    #[schema(example = "alice", nullable = false)]
    subject: Option<String>,
    #[schema(example = "https://bff.example", nullable = false)]
    issuer: Option<String>,
    #[schema(example = "pro", nullable = false)]
    tier: Option<String>,
    #[schema(example = "crawler", nullable = false)]
    agent: Option<String>,
    #[schema(example = "L1", nullable = false)]
    trust: Option<String>,
    /// The caller's, separated by spaces.
    #[schema(example = "fleet:read model:reasoning", nullable = false)]
    capabilities: Option<String>,
    /// Those of which one was required, separated by spaces.
    #[schema(example = "model:reasoning", nullable = false)]
    required: Option<String>,
    /// Further facts of the caller.
    #[schema(value_type = Option<Object>, nullable = false)]
    extra: Option<serde_json::Value>,
    #[schema(example = "demo", nullable = false)]
    model: Option<String>,
    #[schema(example = "cerebras", nullable = false)]
    provider: Option<String>,
    #[schema(example = "gpt-oss-120b", nullable = false)]
    provider_model: Option<String>,
    #[schema(example = "0192f0c1-a6b2-7c3d-8e4f-5a6b7c8d9e0d", nullable = false)]
    stream_id: Option<String>,
    #[schema(example = "4bf92f3577b34da6a3ce929d0e0e4736", nullable = false)]
    trace_id: Option<String>,
    #[schema(example = "192.0.2.7", nullable = false)]
    client_address: Option<String>,
    #[schema(example = 312, nullable = false)]
    input_tokens: Option<i64>,
    #[schema(example = 118, nullable = false)]
    output_tokens: Option<i64>,
    #[schema(example = 100, nullable = false)]
    cached_input_tokens: Option<i64>,
    #[schema(example = 8, nullable = false)]
    reasoning_tokens: Option<i64>,
    /// Who counted the tokens.
    #[schema(example = "provider", nullable = false)]
    usage_source: Option<String>,
    #[schema(example = 198, nullable = false)]
    cost_micro_usd: Option<i64>,
    #[schema(example = "stop", nullable = false)]
    finish_reason: Option<String>,
    #[schema(example = 1_234_567, nullable = false)]
    latency_micros: Option<i64>,
    #[schema(example = 98_765, nullable = false)]
    time_to_first_micros: Option<i64>,
    /// Which redaction rules matched, and how often.
    #[schema(value_type = Option<Object>, nullable = false)]
    redactions: Option<serde_json::Value>,
    #[schema(example = "requested", nullable = false)]
    detail: Option<String>,
    /// The run that the call was part of: its `x-run-id`.
    #[schema(example = "nightly-42", nullable = false)]
    run_id: Option<String>,
    #[schema(example = "arcadedb", nullable = false)]
    tool: Option<String>,
    /// The capability that admitted the call.
    #[schema(example = "model:reasoning", nullable = false)]
    capability: Option<String>,
    /// SHA-256 of the request's body without its secrets.
    #[schema(
        example = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        nullable = false
    )]
    input_hash: Option<String>,
    #[schema(example = 96, nullable = false)]
    input_bytes: Option<i64>,
    /// SHA-256 of what was answered, without its secrets.
    #[schema(
        example = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        nullable = false
    )]
    output_hash: Option<String>,
    #[schema(example = 512, nullable = false)]
    output_bytes: Option<i64>,
    /// With `content=true`, where it is kept: the request's body.
    #[schema(nullable = false)]
    input: Option<AuditContent>,
    /// With `content=true`, where it is kept: what was answered, as one text. Where another part
    /// begins than the first choice's text there is a line that says which, behind a U+001E.
    #[schema(nullable = false)]
    output: Option<AuditContent>,
}

/// The beginning of a content: 64 KiB at most. Its entry has the hash of the whole.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what another module writes")]
struct AuditContent {
    #[schema(example = "Hello!")]
    text: String,
    /// Of the whole.
    #[schema(example = 6)]
    bytes: Option<i64>,
    /// Is there more than this? The text ends with a line that says so.
    truncated: bool,
}

/// A page of the audit trail.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what another module writes")]
pub struct AuditList {
    /// Always `list`.
    #[schema(example = "list")]
    object: String,
    data: Vec<AuditEntry>,
    /// There are more: what to give as `cursor`.
    #[schema(example = "AQAGQ5vZcAAAAAAAAAAAACo", nullable = false)]
    next_cursor: Option<String>,
}

/// A run's calls in the order in which they were begun.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what another module writes")]
pub struct AuditRun {
    #[schema(example = "nightly-42")]
    run_id: String,
    #[schema(example = "2026-11-21T09:00:00Z", format = DateTime, nullable = false)]
    started_at: Option<String>,
    /// The time of its last entry.
    #[schema(example = "2026-11-21T09:05:00Z", format = DateTime, nullable = false)]
    last_at: Option<String>,
    totals: AuditRunTotals,
    calls: Vec<AuditRunCall>,
    /// Has it more than is shown?
    truncated: bool,
}

/// Of all calls of a run.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what another module writes")]
struct AuditRunTotals {
    calls: i64,
    open: i64,
    ok: i64,
    failed: i64,
    denied: i64,
    canceled: i64,
    input_tokens: i64,
    output_tokens: i64,
    cost_micro_usd: i64,
}

/// A call with what came of it.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what another module writes")]
struct AuditRunCall {
    /// `model_call`, `tool_call` or `approval`.
    #[schema(example = "model_call")]
    kind: String,
    /// `open` (no end is known yet), `ok`, `failed`, `denied`, `canceled` or `unknown` (it was open
    /// when its gateway was lost).
    #[schema(example = "ok")]
    status: String,
    #[schema(example = "2026-11-21T09:00:00Z", format = DateTime)]
    started_at: String,
    #[schema(example = "2026-11-21T09:00:01Z", format = DateTime, nullable = false)]
    ended_at: Option<String>,
    /// Its last entry.
    #[schema(example = "0192f0c1-a6b2-7c3d-8e4f-5a6b7c8d9e0f")]
    entry_id: String,
    #[schema(nullable = false)]
    call_id: Option<String>,
    request_id: String,
    operation: String,
    #[schema(nullable = false)]
    subject: Option<String>,
    #[schema(nullable = false)]
    agent: Option<String>,
    #[schema(nullable = false)]
    capability: Option<String>,
    #[schema(nullable = false)]
    model: Option<String>,
    #[schema(nullable = false)]
    provider: Option<String>,
    #[schema(nullable = false)]
    tool: Option<String>,
    #[schema(nullable = false)]
    stream_id: Option<String>,
    #[schema(nullable = false)]
    trace_id: Option<String>,
    #[schema(nullable = false)]
    outcome: Option<String>,
    #[schema(nullable = false)]
    finish_reason: Option<String>,
    #[schema(nullable = false)]
    input_tokens: Option<i64>,
    #[schema(nullable = false)]
    output_tokens: Option<i64>,
    #[schema(nullable = false)]
    cost_micro_usd: Option<i64>,
    #[schema(nullable = false)]
    latency_micros: Option<i64>,
    #[schema(nullable = false)]
    input_hash: Option<String>,
    #[schema(nullable = false)]
    output_hash: Option<String>,
    #[schema(nullable = false)]
    detail: Option<String>,
    /// With `content=true`, where it is kept: the request's body.
    #[schema(nullable = false)]
    input: Option<AuditContent>,
    /// With `content=true`, where it is kept: what was answered, as one text. Where another part
    /// begins than the first choice's text there is a line that says which, behind a U+001E.
    #[schema(nullable = false)]
    output: Option<AuditContent>,
}

/// What was spent.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what another module writes")]
pub struct UsageReport {
    /// Always `list`.
    #[schema(example = "list")]
    object: String,
    /// The first and the last day.
    #[schema(example = "2026-11-01")]
    from: String,
    #[schema(example = "2026-11-30")]
    to: String,
    total: UsageSums,
    /// Empty without `group_by`.
    data: Vec<UsageGroup>,
    /// Are there more groups?
    truncated: bool,
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what another module writes")]
struct UsageSums {
    calls: i64,
    input_tokens: i64,
    output_tokens: i64,
    cached_input_tokens: i64,
    cost_micro_usd: i64,
}

/// Of the dimensions it has those of `group_by`; one is null where the calls have none.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what another module writes")]
struct UsageGroup {
    #[schema(example = "2026-11-21")]
    day: Option<String>,
    subject: Option<String>,
    agent: Option<String>,
    tier: Option<String>,
    #[schema(example = "demo")]
    model: Option<String>,
    provider: Option<String>,
    capability: Option<String>,
    cost_center: Option<String>,
    calls: i64,
    input_tokens: i64,
    output_tokens: i64,
    cached_input_tokens: i64,
    cost_micro_usd: i64,
}
