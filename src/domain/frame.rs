//! Native stream frames (DESIGN §7): one JSON object in one SSE event, `seq` equal to `id:`.

use std::io::{self, Write};

use bytes::{BufMut, BytesMut};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{Denial, MicroUsd, Usage};

/// One frame of a native stream, borrowing what it carries.
#[derive(Debug, Clone, Copy)]
pub enum Frame<'a> {
    /// A piece of the answer. `choice` is written where it is not 0.
    Token {
        delta: &'a str,
        model: &'a str,
        choice: u64,
    },
    /// A piece of the model's reasoning.
    Reasoning {
        delta: &'a str,
        model: &'a str,
        choice: u64,
    },
    /// A piece of a refusal.
    Refusal {
        delta: &'a str,
        choice: u64,
    },
    /// A whole tool call; `arguments` is the JSON object that the model wrote, or a JSON string
    /// of its text where that text is not JSON.
    ToolCall {
        id: &'a str,
        name: &'a str,
        arguments: &'a RawValue,
        choice: u64,
    },
    Usage {
        usage: Usage,
        cost: Option<MicroUsd>,
    },
    /// Terminal.
    Done {
        finish_reason: &'a str,
    },
    /// Terminal.
    Canceled {
        reason: CancelReason,
    },
    /// Terminal.
    Error(&'a FrameError),
}

/// Why a stream was canceled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelReason {
    /// DELETE /v1/streams/{id}.
    Requested,
    /// Nobody read the stream for `orphan_timeout_s`.
    Orphaned,
    /// The client of a call without a native stream hung up.
    HungUp,
}

impl CancelReason {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Orphaned => "orphaned",
            Self::HungUp => "hung_up",
        }
    }
}

/// What an `error` frame says: a stable code, a sentence, and whether to try again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FrameError {
    pub code: &'static str,
    pub message: String,
    pub retryable: bool,
}

impl From<&Denial> for FrameError {
    fn from(denial: &Denial) -> Self {
        Self {
            code: denial.kind.code(),
            message: denial.message.clone(),
            retryable: denial.kind.retryable(),
        }
    }
}

#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "`delta` is the wire's name")]
struct Delta<'a> {
    seq: u64,
    delta: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    #[serde(skip_serializing_if = "is_zero")]
    choice: u64,
}

#[derive(Serialize)]
struct ToolCall<'a> {
    seq: u64,
    id: &'a str,
    name: &'a str,
    arguments: &'a RawValue,
    #[serde(skip_serializing_if = "is_zero")]
    choice: u64,
}

#[derive(Serialize)]
struct UsageData {
    seq: u64,
    input_tokens: u64,
    output_tokens: u64,
    cache_read: u64,
    #[serde(skip_serializing_if = "is_zero")]
    reasoning_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_usd: Option<String>,
}

#[derive(Serialize)]
struct Done<'a> {
    seq: u64,
    finish_reason: &'a str,
}

#[derive(Serialize)]
struct Canceled {
    seq: u64,
    reason: CancelReason,
}

#[derive(Serialize)]
struct ErrorData<'a> {
    seq: u64,
    #[serde(flatten)]
    error: &'a FrameError,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Frame<'_> {
    /// The SSE event's name.
    #[must_use]
    pub const fn event(&self) -> &'static str {
        match self {
            Self::Token { .. } => "token",
            Self::Reasoning { .. } => "reasoning",
            Self::Refusal { .. } => "refusal",
            Self::ToolCall { .. } => "tool_call",
            Self::Usage { .. } => "usage",
            Self::Done { .. } => "done",
            Self::Canceled { .. } => "canceled",
            Self::Error(_) => "error",
        }
    }

    /// Does this frame end its stream?
    #[must_use]
    pub const fn is_terminal(&self) -> bool {
        matches!(self, Self::Done { .. } | Self::Canceled { .. } | Self::Error(_))
    }

    /// Appends the frame as one SSE event.
    ///
    /// # Errors
    /// Only what `serde_json` makes of a value that can't be written, which none of these are.
    pub fn encode(&self, seq: u64, out: &mut BytesMut) -> io::Result<()> {
        let mut writer = out.writer();
        write!(writer, "id: {seq}\nevent: {}\ndata: ", self.event())?;
        match *self {
            Self::Token { delta, model, choice } | Self::Reasoning { delta, model, choice } => {
                json(&mut writer, &Delta { seq, delta, model: Some(model), choice })?;
            }
            Self::Refusal { delta, choice } => {
                json(&mut writer, &Delta { seq, delta, model: None, choice })?;
            }
            Self::ToolCall { id, name, arguments, choice } => {
                json(&mut writer, &ToolCall { seq, id, name, arguments, choice })?;
            }
            Self::Usage { usage, cost } => json(
                &mut writer,
                &UsageData {
                    seq,
                    input_tokens: usage.input_tokens,
                    output_tokens: usage.output_tokens,
                    cache_read: usage.cached_input_tokens,
                    reasoning_tokens: usage.reasoning_tokens,
                    cost_usd: cost.map(|cost| cost.to_string()),
                },
            )?,
            Self::Done { finish_reason } => json(&mut writer, &Done { seq, finish_reason })?,
            Self::Canceled { reason } => json(&mut writer, &Canceled { seq, reason })?,
            Self::Error(error) => json(&mut writer, &ErrorData { seq, error })?,
        }
        writer.write_all(b"\n\n")
    }
}

fn json(writer: impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(writer, value).map_err(io::Error::from)
}
