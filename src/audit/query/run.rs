//! What a run did, call by call.

use std::collections::HashMap;

use jiff::Timestamp;
use serde::Serialize;

use crate::audit::StoredEntry;

/// The most entries of a run that are looked at. A run's guardrails end it far below.
pub const RUN_ENTRIES: usize = 4_000;

/// A run's calls in the order in which they were begun.
#[expect(clippy::struct_field_names, reason = "the names are those of the API's JSON")]
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Run {
    pub run_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// The time of its last entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_at: Option<Timestamp>,
    pub totals: RunTotals,
    pub calls: Vec<RunCall>,
    /// Has it more entries than are looked at? What is beyond [`RUN_ENTRIES`] is left out.
    pub truncated: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct RunTotals {
    pub calls: usize,
    pub open: usize,
    pub ok: usize,
    pub failed: usize,
    pub denied: usize,
    pub canceled: usize,
    pub input_tokens: i64,
    pub output_tokens: i64,
    pub cost_micro_usd: i64,
}

/// A call, from its intent and its end; or what has one entry alone, as an approval.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunCall {
    /// `model_call`, `tool_call`, `approval`.
    pub kind: &'static str,
    /// `open` (no end is known yet), `ok`, `failed`, `denied`, `canceled`, `unknown` (it was open
    /// when its gateway was lost).
    pub status: &'static str,
    pub started_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// The last entry of the call; its content, if it was kept, is found by this.
    pub entry_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    pub request_id: String,
    pub operation: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capability: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_micro_usd: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_micros: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_hash: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_hash: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl Run {
    /// From the run's entries, oldest first. With `input_hash` only the calls of that input are
    /// listed; the totals are those of the whole run all the same.
    #[must_use]
    pub fn new(run_id: String, mut entries: Vec<StoredEntry>, input_hash: Option<&str>) -> Self {
        let truncated = entries.len() > RUN_ENTRIES;
        entries.truncate(RUN_ENTRIES);
        let started_at = entries.iter().map(|entry| entry.time).min();
        let last_at = entries.iter().map(|entry| entry.time).max();
        let mut calls: Vec<RunCall> = Vec::new();
        let mut open: HashMap<String, usize> = HashMap::new();
        for entry in entries {
            let begun = entry.call_id.as_ref().and_then(|id| open.get(id)).copied();
            if let Some(at) = begun.filter(|_| is_end(&entry)) {
                calls[at].end(entry);
                continue;
            }
            if entry.kind == "intent"
                && let Some(id) = &entry.call_id
            {
                open.insert(id.clone(), calls.len());
            }
            calls.push(RunCall::begin(entry));
        }
        // An end may be in the store before a beginning of another gateway's.
        calls.sort_by_key(|call| call.started_at);
        let totals = RunTotals::of(&calls);
        calls.retain(|call| input_hash.is_none() || call.input_hash.as_deref() == input_hash);
        Self { run_id, started_at, last_at, totals, calls, truncated }
    }
}

fn is_end(entry: &StoredEntry) -> bool {
    matches!(entry.kind.as_str(), "settle" | "denied" | "canceled")
}

fn status_of(entry: &StoredEntry) -> &'static str {
    match (entry.kind.as_str(), entry.outcome.as_deref()) {
        ("intent", _) => "open",
        ("denied", _) => "denied",
        ("canceled", _) => "canceled",
        (_, Some("unknown")) => "unknown",
        (_, Some("ok") | None) => "ok",
        (_, Some(_)) => "failed",
    }
}

impl RunCall {
    fn begin(entry: StoredEntry) -> Self {
        let kind = match entry.kind.as_str() {
            "approval" => "approval",
            "tool_call" => "tool_call",
            _ if entry.tool.is_some() => "tool_call",
            _ => "model_call",
        };
        let ended_at = (entry.kind != "intent").then_some(entry.time);
        let took = entry.latency_micros.filter(|_| ended_at.is_some()).unwrap_or(0);
        let started_at = Timestamp::from_microsecond(entry.time.as_microsecond() - took);
        Self {
            kind,
            status: status_of(&entry),
            started_at: started_at.unwrap_or(entry.time),
            ended_at,
            entry_id: entry.id,
            call_id: entry.call_id,
            request_id: entry.request_id,
            operation: entry.operation,
            subject: entry.subject,
            agent: entry.agent,
            capability: entry.capability,
            model: entry.model,
            provider: entry.provider,
            tool: entry.tool,
            stream_id: entry.stream_id,
            trace_id: entry.trace_id,
            outcome: entry.outcome,
            finish_reason: entry.finish_reason,
            input_tokens: entry.input_tokens,
            output_tokens: entry.output_tokens,
            cost_micro_usd: entry.cost_micro_usd,
            latency_micros: entry.latency_micros,
            input_hash: entry.input_hash,
            output_hash: entry.output_hash,
            detail: entry.detail,
        }
    }

    /// Its end has all that its intent has, and what came of it.
    fn end(&mut self, entry: StoredEntry) {
        let (kind, started_at) = (self.kind, self.started_at);
        *self = Self { kind, started_at, ..Self::begin(entry) };
    }
}

impl RunTotals {
    fn of(calls: &[RunCall]) -> Self {
        let mut totals = Self { calls: calls.len(), ..Self::default() };
        for call in calls {
            let count = match call.status {
                "open" => &mut totals.open,
                "ok" => &mut totals.ok,
                "denied" => &mut totals.denied,
                "canceled" => &mut totals.canceled,
                _ => &mut totals.failed,
            };
            *count += 1;
            for (sum, number) in [
                (&mut totals.input_tokens, call.input_tokens),
                (&mut totals.output_tokens, call.output_tokens),
                (&mut totals.cost_micro_usd, call.cost_micro_usd),
            ] {
                *sum = sum.saturating_add(number.unwrap_or(0));
            }
        }
        totals
    }
}
