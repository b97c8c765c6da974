//! An entry as a row, there and back.

use std::{fmt, fmt::Write, time::Duration};

use jiff::Timestamp;
use serde_json::Value;
use sqlx::{Arguments, Row, error::BoxDynError, sqlite::SqliteArguments, sqlite::SqliteRow};

use crate::{
    audit::{Entry, StoredEntry},
    domain::Caller,
};

/// The columns that are written, in the order of [`bind`].
const COLUMNS: &str = "id, call_id, time_micros, kind, outcome, status, request_id, operation, \
     subject, issuer, tier, agent, trust, capabilities, required, extra, \
     model, provider, provider_model, stream_id, trace_id, client_address, \
     input_tokens, output_tokens, cached_input_tokens, reasoning_tokens, usage_source, \
     cost_micro_usd, finish_reason, latency_micros, time_to_first_micros, redactions, detail";
const COLUMN_COUNT: usize = 33;

/// The longest text that is stored; longer ones are cut, as those come from strangers.
const MAX_TEXT_BYTES: usize = 8_192;

/// Inserts up to `rows` rows. Those whose first column, the id, is not bound are left out, as are
/// ids that are there already and second terminal entries of a call.
pub(super) fn insert(rows: usize) -> String {
    let row = format!("({})", ["?"; COLUMN_COUNT].join(","));
    let values = vec![row; rows].join(",");
    format!(
        "INSERT INTO audit ({COLUMNS}) SELECT * FROM (VALUES {values}) \
         WHERE column1 IS NOT NULL ON CONFLICT DO NOTHING"
    )
}

/// Adds one row's values.
pub(super) fn bind(entry: &Entry, to: &mut SqliteArguments) -> Result<(), BoxDynError> {
    to.reserve(COLUMN_COUNT, 0);
    to.add(shown(&entry.id))?;
    to.add(entry.call_id.as_ref().map(shown))?;
    to.add(entry.time.as_microsecond())?;
    to.add(entry.kind.as_str())?;
    to.add(entry.outcome)?;
    to.add(entry.status)?;
    to.add(cut(&entry.request_id))?;
    to.add(entry.operation)?;
    bind_caller(entry.caller.as_deref(), entry.required.as_deref(), to)?;
    to.add(entry.model.as_deref().map(cut))?;
    to.add(entry.provider.as_deref().map(cut))?;
    to.add(entry.provider_model.as_deref().map(cut))?;
    to.add(entry.stream_id.as_ref().map(shown))?;
    to.add(entry.trace_id.map(|id| format!("{id:032x}")))?;
    to.add(entry.client_address.as_ref().map(shown))?;
    let usage = entry.usage.as_ref();
    to.add(usage.map(|usage| clamped(usage.input_tokens)))?;
    to.add(usage.map(|usage| clamped(usage.output_tokens)))?;
    to.add(usage.map(|usage| clamped(usage.cached_input_tokens)))?;
    to.add(usage.map(|usage| clamped(usage.reasoning_tokens)))?;
    to.add(entry.usage_source.map(crate::domain::UsageSource::as_str))?;
    to.add(entry.cost.map(|cost| clamped(cost.0)))?;
    to.add(entry.finish_reason.as_deref().map(cut))?;
    to.add(entry.latency.map(micros))?;
    to.add(entry.time_to_first.map(micros))?;
    to.add(entry.redactions.as_deref().map(cut))?;
    to.add(entry.detail.as_deref().map(cut))
}

fn bind_caller(
    caller: Option<&Caller>,
    required: Option<&str>,
    to: &mut SqliteArguments,
) -> Result<(), BoxDynError> {
    to.add(caller.map(|caller| cut(&caller.subject)))?;
    to.add(caller.map(|caller| cut(&caller.issuer)))?;
    to.add(caller.map(|caller| cut(&caller.tier)))?;
    to.add(caller.and_then(|caller| caller.agent.as_deref()).map(cut))?;
    to.add(caller.map(|caller| caller.trust.as_str()))?;
    to.add(caller.map(|caller| shown(&caller.capabilities)))?;
    to.add(required.map(cut))?;
    let extra = caller.map(|caller| &caller.extra).filter(|extra| !extra.is_empty());
    to.add(extra.map(serde_json::to_string).transpose()?)
}

/// Reads a row of `SELECT *`.
pub(super) fn read(row: &SqliteRow) -> sqlx::Result<StoredEntry> {
    Ok(StoredEntry {
        seq: row.try_get("seq")?,
        time: Timestamp::from_microsecond(row.try_get("time_micros")?).unwrap_or_default(),
        id: row.try_get("id")?,
        call_id: row.try_get("call_id")?,
        kind: row.try_get("kind")?,
        outcome: row.try_get("outcome")?,
        status: row.try_get("status")?,
        request_id: row.try_get("request_id")?,
        operation: row.try_get("operation")?,
        subject: row.try_get("subject")?,
        issuer: row.try_get("issuer")?,
        tier: row.try_get("tier")?,
        agent: row.try_get("agent")?,
        trust: row.try_get("trust")?,
        capabilities: row.try_get("capabilities")?,
        required: row.try_get("required")?,
        extra: row.try_get::<Option<&str>, _>("extra")?.map(json),
        model: row.try_get("model")?,
        provider: row.try_get("provider")?,
        provider_model: row.try_get("provider_model")?,
        stream_id: row.try_get("stream_id")?,
        trace_id: row.try_get("trace_id")?,
        client_address: row.try_get("client_address")?,
        input_tokens: row.try_get("input_tokens")?,
        output_tokens: row.try_get("output_tokens")?,
        cached_input_tokens: row.try_get("cached_input_tokens")?,
        reasoning_tokens: row.try_get("reasoning_tokens")?,
        usage_source: row.try_get("usage_source")?,
        cost_micro_usd: row.try_get("cost_micro_usd")?,
        finish_reason: row.try_get("finish_reason")?,
        latency_micros: row.try_get("latency_micros")?,
        time_to_first_micros: row.try_get("time_to_first_micros")?,
        redactions: row.try_get::<Option<&str>, _>("redactions")?.map(json),
        detail: row.try_get("detail")?,
    })
}

/// Text that should be JSON; if it was cut it is shown as the text that is left.
fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))
}

fn shown(value: &impl fmt::Display) -> String {
    let mut text = String::with_capacity(36);
    // Writing to a string can't fail.
    let _ = write!(text, "{value}");
    text
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT_BYTES)]
}

fn clamped(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
