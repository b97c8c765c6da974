//! Which entries are asked for.

use jiff::{Span, Timestamp, tz::TimeZone};
use uuid::Uuid;

use crate::audit::{EntryKind, Record};

/// The longest value that a filter takes, in characters.
pub const MAX_VALUE_CHARS: usize = 512;

/// What a filter may ask for beside the time. Those that name the fewest entries come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    CallId,
    StreamId,
    TraceId,
    InputHash,
    RunId,
    Tool,
    Subject,
    Agent,
    Capability,
    Model,
    Outcome,
    Kind,
    Tier,
}

impl Field {
    pub const ALL: [Self; 13] = [
        Self::CallId,
        Self::StreamId,
        Self::TraceId,
        Self::InputHash,
        Self::RunId,
        Self::Tool,
        Self::Subject,
        Self::Agent,
        Self::Capability,
        Self::Model,
        Self::Outcome,
        Self::Kind,
        Self::Tier,
    ];

    /// The parameter in the API, the option on the command line, and the column in every store.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CallId => "call_id",
            Self::StreamId => "stream_id",
            Self::TraceId => "trace_id",
            Self::InputHash => "input_hash",
            Self::RunId => "run_id",
            Self::Tool => "tool",
            Self::Subject => "subject",
            Self::Agent => "agent",
            Self::Capability => "capability",
            Self::Model => "model",
            Self::Outcome => "outcome",
            Self::Kind => "kind",
            Self::Tier => "tier",
        }
    }

    /// What its values are.
    #[must_use]
    pub const fn expected(self) -> &'static str {
        match self {
            Self::CallId | Self::StreamId => "a UUID",
            Self::TraceId => "32 hexadecimal digits",
            Self::InputHash => "a SHA-256 in 64 hexadecimal digits",
            Self::Kind => "intent, settle, denied, canceled, tool_call, approval or reload",
            _ => "1 to 512 characters",
        }
    }

    /// The value as stores have it.
    fn read(self, text: &str) -> Option<String> {
        let hexadecimal = |digits: usize| {
            let is_one = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            is_one.then(|| text.to_ascii_lowercase())
        };
        match self {
            Self::CallId | Self::StreamId => Some(text.parse::<Uuid>().ok()?.to_string()),
            Self::TraceId => hexadecimal(32),
            Self::InputHash => hexadecimal(64),
            Self::Kind => {
                let kind = EntryKind::ALL.iter().find(|kind| kind.as_str() == text)?;
                Some(kind.as_str().to_owned())
            }
            _ => {
                let is_fit = !text.is_empty() && text.chars().count() <= MAX_VALUE_CHARS;
                // As records are written.
                is_fit.then(|| text.replace('\0', "\u{fffd}"))
            }
        }
    }
}

/// A parameter that can't be taken. Its message is for a person and ends without a full stop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` must be {expected}")]
pub struct FilterError {
    pub name: &'static str,
    pub expected: &'static str,
}

/// Takes the entries for which all that is set holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    /// Not before this.
    pub from: Option<Timestamp>,
    /// Before this.
    pub to: Option<Timestamp>,
    /// In the order of [`Field`], each field at most once.
    terms: Vec<(Field, String)>,
}

impl Filter {
    /// In the order of [`Field`].
    #[must_use]
    pub fn terms(&self) -> &[(Field, String)] {
        &self.terms
    }

    /// Adds the parameter `name`, if a filter has one of that name; says whether it has.
    ///
    /// # Errors
    /// [`FilterError`], of a value that `name` can't have.
    pub fn set(&mut self, name: &str, value: &str, now: Timestamp) -> Result<bool, FilterError> {
        match name {
            "from" => self.from = Some(read_time("from", value, now)?),
            "to" => self.to = Some(read_time("to", value, now)?),
            _ => {
                let Some(field) = Field::ALL.iter().find(|field| field.name() == name) else {
                    return Ok(false);
                };
                self.set_field(*field, value)?;
            }
        }
        Ok(true)
    }

    /// # Errors
    /// [`FilterError`], of a value that the field can't have.
    pub fn set_field(&mut self, field: Field, value: &str) -> Result<(), FilterError> {
        let error = FilterError { name: field.name(), expected: field.expected() };
        let value = field.read(value).ok_or(error)?;
        match self.terms.binary_search_by_key(&field, |(field, _)| *field) {
            Ok(at) => self.terms[at].1 = value,
            Err(at) => self.terms.insert(at, (field, value)),
        }
        Ok(())
    }

    /// Does it take this record? What stores do by index.
    #[must_use]
    pub fn takes(&self, record: &Record<'_>) -> bool {
        let time = record.get("time_micros").number().unwrap_or_default();
        self.from.is_none_or(|from| from.as_microsecond() <= time)
            && self.to.is_none_or(|to| time < to.as_microsecond())
            && self
                .terms
                .iter()
                .all(|(field, value)| record.get(field.name()).text() == Some(value))
    }
}

const A_TIME: &str = "a time such as 2026-11-21T09:00:00Z, or how long ago, such as 90m, 1h or 7d";

/// A time (RFC 3339), or how long ago it was.
fn read_time(name: &'static str, text: &str, now: Timestamp) -> Result<Timestamp, FilterError> {
    let invalid = FilterError { name, expected: A_TIME };
    if let Ok(time) = text.parse() {
        return Ok(time);
    }
    let span: Span = text.parse().map_err(|_| invalid.clone())?;
    if span.is_negative() {
        return Err(invalid);
    }
    let then = now.to_zoned(TimeZone::UTC).checked_sub(span);
    then.map(|then| then.timestamp()).map_err(|_| invalid)
}
