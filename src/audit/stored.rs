//! Entries as they are read back.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value as Json;

use super::record::{FIELDS, Record, Value};

/// One row of a store: text where an [`super::Entry`] has types, so that what another version
/// wrote can be read.
///
/// Its JSON is what `tollgate audit tail --json` prints, a line each, with what is not set left
/// out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StoredEntry {
    /// Where it stands in its store: later rows have greater numbers.
    pub seq: i64,
    pub time: Timestamp,
    pub id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<i64>,
    pub request_id: String,
    pub operation: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trust: Option<String>,
    /// Separated by spaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<String>,
    /// Any one of these was required; separated by spaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required: Option<String>,
    /// Further facts of the caller, as `auth.issuers.claims.extra` maps them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extra: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_id: Option<String>,
    /// 32 hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_input_tokens: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_tokens: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage_source: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_micro_usd: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_micros: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_to_first_micros: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redactions: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// As the caller gave it in `x-run-id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The one that admitted the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capability: Option<String>,
    /// SHA-256 of the content, 64 hexadecimal digits, and its length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_hash: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_bytes: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_hash: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_bytes: Option<i64>,
}

impl StoredEntry {
    /// From the record that stands at `seq` of its store.
    #[must_use]
    pub fn new(seq: i64, record: &Record<'_>) -> Self {
        const { assert!(FIELDS.len() == 40, "the fields below are taken in the order of FIELDS") };
        let mut values = record.values().iter().copied();
        let mut next = || values.next().unwrap_or(Value::Null);
        let text = |value: Value<'_>| value.text().map(str::to_owned);
        Self {
            seq,
            id: text(next()).unwrap_or_default(),
            call_id: text(next()),
            time: Timestamp::from_microsecond(next().number().unwrap_or_default())
                .unwrap_or_default(),
            kind: text(next()).unwrap_or_default(),
            outcome: text(next()),
            status: next().number(),
            request_id: text(next()).unwrap_or_default(),
            operation: text(next()).unwrap_or_default(),
            subject: text(next()),
            issuer: text(next()),
            tier: text(next()),
            agent: text(next()),
            trust: text(next()),
            capabilities: text(next()),
            required: text(next()),
            extra: next().text().map(json),
            model: text(next()),
            provider: text(next()),
            provider_model: text(next()),
            stream_id: text(next()),
            trace_id: text(next()),
            client_address: text(next()),
            input_tokens: next().number(),
            output_tokens: next().number(),
            cached_input_tokens: next().number(),
            reasoning_tokens: next().number(),
            usage_source: text(next()),
            cost_micro_usd: next().number(),
            finish_reason: text(next()),
            latency_micros: next().number(),
            time_to_first_micros: next().number(),
            redactions: next().text().map(json),
            detail: text(next()),
            run_id: text(next()),
            tool: text(next()),
            capability: text(next()),
            input_hash: text(next()),
            input_bytes: next().number(),
            output_hash: text(next()),
            output_bytes: next().number(),
        }
    }
}

/// Text that should be JSON; if it was cut it is shown as the text that is left.
fn json(text: &str) -> Json {
    serde_json::from_str(text).unwrap_or_else(|_| Json::from(text))
}
