//! An entry as every store holds it: texts and numbers in a fixed order.
//!
//! There is one encoding of a record, and the chain's hashes are over it: the same record is the
//! same bytes in the spool, in each store, and years later when the chain is verified. So:
//! - It is `version` (1 byte), `count` (1 byte), then `count` values: `0` for null; `1` and eight
//!   bytes, big-endian, for a number; `2`, a length of two bytes, big-endian, and UTF-8 for a text.
//! - Nulls at the end are left out. A field that is added to [`FIELDS`] later is null in records of
//!   before, so their bytes, and with them their hashes, stay.
//! - Texts are cut to [`MAX_TEXT_BYTES`] and hold no NUL, which Postgres has no way to store.

use std::io::Write as _;

use super::{ContentDigest, Entry, Hash};
use crate::domain::{Caller, Capability, UsageSource};

/// What a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldType {
    Text,
    Number,
}

use FieldType::{Number, Text};

/// The fields in their order, which is part of the encoding: new ones go to the end.
pub const FIELDS: [(&str, FieldType); 40] = [
    ("id", Text),
    ("call_id", Text),
    ("time_micros", Number),
    ("kind", Text),
    ("outcome", Text),
    ("status", Number),
    ("request_id", Text),
    ("operation", Text),
    ("subject", Text),
    ("issuer", Text),
    ("tier", Text),
    ("agent", Text),
    ("trust", Text),
    ("capabilities", Text),
    ("required", Text),
    ("extra", Text),
    ("model", Text),
    ("provider", Text),
    ("provider_model", Text),
    ("stream_id", Text),
    ("trace_id", Text),
    ("client_address", Text),
    ("input_tokens", Number),
    ("output_tokens", Number),
    ("cached_input_tokens", Number),
    ("reasoning_tokens", Number),
    ("usage_source", Text),
    ("cost_micro_usd", Number),
    ("finish_reason", Text),
    ("latency_micros", Number),
    ("time_to_first_micros", Number),
    ("redactions", Text),
    ("detail", Text),
    ("run_id", Text),
    ("tool", Text),
    ("capability", Text),
    ("input_hash", Text),
    ("input_bytes", Number),
    ("output_hash", Text),
    ("output_bytes", Number),
];

/// The longest text that is stored; longer ones are cut, as those come from strangers.
pub const MAX_TEXT_BYTES: usize = 8_192;
/// No record is longer. With room for fields to come, so that a spool can be read after a downgrade.
pub const MAX_RECORD_BYTES: usize = 1 << 20;

const VERSION: u8 = 1;
const NULL: u8 = 0;
const NUMBER: u8 = 1;
const TEXT: u8 = 2;

/// What one field of one record holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    Null,
    Text(&'a str),
    Number(i64),
}

impl<'a> Value<'a> {
    #[must_use]
    pub const fn text(self) -> Option<&'a str> {
        match self {
            Value::Text(text) => Some(text),
            Value::Null | Value::Number(_) => None,
        }
    }

    #[must_use]
    pub const fn number(self) -> Option<i64> {
        match self {
            Value::Number(number) => Some(number),
            Value::Null | Value::Text(_) => None,
        }
    }
}

/// The bytes are no record that this version knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("an audit record of version {0}, which this tollgate does not know")]
    Version(u8),
    #[error("not an audit record")]
    Malformed,
}

/// One entry, borrowed from where it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    values: [Value<'a>; FIELDS.len()],
}

impl<'a> Record<'a> {
    /// From a store's row; each value of its field's type, or null.
    #[must_use]
    pub const fn new(values: &[Value<'a>; FIELDS.len()]) -> Self {
        Self { values: *values }
    }

    /// In the order of [`FIELDS`].
    #[must_use]
    pub const fn values(&self) -> &[Value<'a>; FIELDS.len()] {
        &self.values
    }

    /// By its name in [`FIELDS`]; null where there is no such field.
    #[must_use]
    pub fn get(&self, name: &str) -> Value<'a> {
        let at = FIELDS.iter().position(|(field, _)| *field == name);
        at.map_or(Value::Null, |at| self.values[at])
    }

    /// Would it be stored as it is? Encoding cuts what is too long and replaces NULs, so another
    /// record may have the same bytes as one of ours: it is then none that was ever written.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.values.iter().all(|value| match value {
            Value::Text(text) => {
                text.len() <= MAX_TEXT_BYTES && memchr::memchr(0, text.as_bytes()).is_none()
            }
            Value::Null | Value::Number(_) => true,
        })
    }

    /// Adds its encoding, which [`Record::decode`] reads.
    pub fn encode(&self, to: &mut Vec<u8>) {
        let mut encoder = Encoder::new(to);
        for value in self.values {
            match value {
                Value::Null => encoder.null(),
                Value::Text(text) => encoder.text(Some(text)),
                Value::Number(number) => encoder.number(Some(number)),
            }
        }
        encoder.finish();
    }

    /// Reads what [`encode`] or [`Record::encode`] wrote; no other bytes are taken.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, RecordError> {
        let [version, count, rest @ ..] = bytes else { return Err(RecordError::Malformed) };
        if *version != VERSION || usize::from(*count) > FIELDS.len() {
            return Err(RecordError::Version(*version));
        }
        let mut values = [Value::Null; FIELDS.len()];
        let mut rest = rest;
        for (value, (_, field)) in values.iter_mut().zip(FIELDS).take(usize::from(*count)) {
            *value = decode_value(&mut rest, field).ok_or(RecordError::Malformed)?;
        }
        let ends_in_null = count
            .checked_sub(1)
            .is_some_and(|last| matches!(values[usize::from(last)], Value::Null));
        if !rest.is_empty() || ends_in_null {
            return Err(RecordError::Malformed);
        }
        Ok(Self { values })
    }
}

fn decode_value<'a>(rest: &mut &'a [u8], field: FieldType) -> Option<Value<'a>> {
    let (tag, after) = rest.split_first()?;
    let (value, after) = match (*tag, field) {
        (NULL, _) => (Value::Null, after),
        (NUMBER, Number) => {
            let (number, after) = after.split_first_chunk::<8>()?;
            (Value::Number(i64::from_be_bytes(*number)), after)
        }
        (TEXT, Text) => {
            let (length, after) = after.split_first_chunk::<2>()?;
            let length = usize::from(u16::from_be_bytes(*length));
            let (text, after) = after.split_at_checked(length)?;
            let is_sound = length <= MAX_TEXT_BYTES && memchr::memchr(0, text).is_none();
            (Value::Text(std::str::from_utf8(text).ok().filter(|_| is_sound)?), after)
        }
        _ => return None,
    };
    *rest = after;
    Some(value)
}

/// Adds an entry's encoding.
pub fn encode(entry: &Entry, to: &mut Vec<u8>) {
    let mut to = Encoder::new(to);
    to.uuid(Some(entry.id));
    to.uuid(entry.call_id.map(crate::domain::CallId::as_uuid));
    to.number(Some(entry.time.as_microsecond()));
    to.text(Some(entry.kind.as_str()));
    to.text(entry.outcome);
    to.number(entry.status);
    to.text(Some(&entry.request_id));
    to.text(Some(entry.operation));
    encode_caller(entry.caller.as_deref(), entry.required.as_deref(), &mut to);
    to.text(entry.model.as_deref());
    to.text(entry.provider.as_deref());
    to.text(entry.provider_model.as_deref());
    to.uuid(entry.stream_id.map(crate::domain::StreamId::as_uuid));
    to.shown(entry.trace_id.map(hexadecimal));
    to.shown(entry.client_address);
    let usage = entry.usage.as_ref();
    to.number(usage.map(|usage| clamped(usage.input_tokens)));
    to.number(usage.map(|usage| clamped(usage.output_tokens)));
    to.number(usage.map(|usage| clamped(usage.cached_input_tokens)));
    to.number(usage.map(|usage| clamped(usage.reasoning_tokens)));
    to.text(entry.usage_source.map(UsageSource::as_str));
    to.number(entry.cost.map(|cost| clamped(cost.0)));
    to.text(entry.finish_reason.as_deref());
    to.number(entry.latency.map(|latency| clamped(latency.as_micros())));
    to.number(entry.time_to_first.map(|time| clamped(time.as_micros())));
    to.text(entry.redactions.as_deref());
    to.text(entry.detail.as_deref());
    to.text(entry.run_id.as_deref());
    to.text(entry.tool.as_deref());
    to.text(entry.capability.as_ref().map(Capability::as_str));
    encode_digest(entry.input.as_ref(), &mut to);
    encode_digest(entry.output.as_ref(), &mut to);
    to.finish();
}

fn encode_caller(caller: Option<&Caller>, required: Option<&str>, to: &mut Encoder<'_>) {
    to.text(caller.map(|caller| &*caller.subject));
    to.text(caller.map(|caller| &*caller.issuer));
    to.text(caller.map(|caller| &*caller.tier));
    to.text(caller.and_then(|caller| caller.agent.as_deref()));
    to.text(caller.map(|caller| caller.trust.as_str()));
    to.shown(caller.map(|caller| &caller.capabilities));
    to.text(required);
    match caller.map(|caller| &caller.extra).filter(|extra| !extra.is_empty()) {
        // A map of texts is always JSON.
        Some(extra) => to.written(|out| _ = serde_json::to_writer(out, extra)),
        None => to.null(),
    }
}

fn encode_digest(digest: Option<&ContentDigest>, to: &mut Encoder<'_>) {
    match digest {
        Some(digest) => to.written(|out| out.extend(hexadecimal_digits(&digest.hash))),
        None => to.null(),
    }
    to.number(digest.map(|digest| clamped(digest.bytes)));
}

/// By hand: two are in each record, and a `write!` for each byte costs more than the rest of it.
fn hexadecimal_digits(hash: &Hash) -> [u8; 2 * size_of::<Hash>()] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    std::array::from_fn(|at| {
        let byte = hash[at / 2];
        DIGITS[usize::from(if at % 2 == 0 { byte >> 4 } else { byte & 0xF })]
    })
}

/// 32 hexadecimal digits, as W3C trace context has them.
fn hexadecimal(id: u128) -> impl std::fmt::Display {
    std::fmt::from_fn(move |f| write!(f, "{id:032x}"))
}

fn clamped(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

/// Writes values one after the other, straight to where they are to be.
struct Encoder<'b> {
    out: &'b mut Vec<u8>,
    /// Where the record begins.
    start: usize,
    count: u8,
    /// The count and the length up to the last value that is not null.
    kept: (u8, usize),
}

impl<'b> Encoder<'b> {
    fn new(out: &'b mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend([VERSION, 0]);
        let kept = (0, out.len());
        Self { out, start, count: 0, kept }
    }

    fn null(&mut self) {
        self.out.push(NULL);
        self.count += 1;
    }

    fn number(&mut self, number: Option<impl Into<i64>>) {
        let Some(number) = number else { return self.null() };
        self.out.push(NUMBER);
        self.out.extend(number.into().to_be_bytes());
        self.keep();
    }

    fn text(&mut self, text: Option<&str>) {
        let Some(text) = text else { return self.null() };
        let cut = &text[..text.floor_char_boundary(MAX_TEXT_BYTES)];
        self.written(|out| out.extend(cut.as_bytes()));
    }

    fn uuid(&mut self, id: Option<uuid::Uuid>) {
        let Some(id) = id else { return self.null() };
        let mut text = uuid::Uuid::encode_buffer();
        let text = &*id.hyphenated().encode_lower(&mut text);
        self.text(Some(text));
    }

    fn shown(&mut self, value: Option<impl std::fmt::Display>) {
        let Some(value) = value else { return self.null() };
        // Writing to a vector can't fail.
        self.written(|out| _ = write!(out, "{value}"));
    }

    /// A text that `write` adds, which must be UTF-8.
    fn written(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.out.extend([TEXT, 0, 0]);
        let start = self.out.len();
        write(self.out);
        self.clean(start);
        let length = u16::try_from(self.out.len() - start).unwrap_or(u16::MAX);
        self.out[start - 2..start].copy_from_slice(&length.to_be_bytes());
        self.keep();
    }

    /// Takes out of the text at `start` what no store should be asked to hold.
    fn clean(&mut self, start: usize) {
        if memchr::memchr(0, &self.out[start..]).is_some() {
            let text = String::from_utf8_lossy(&self.out[start..]).replace('\0', "\u{fffd}");
            self.out.truncate(start);
            self.out.extend(text.as_bytes());
        }
        let mut end = self.out.len().min(start + MAX_TEXT_BYTES);
        // Not in the middle of a character.
        while self.out.get(end).is_some_and(|byte| byte & 0xC0 == 0x80) {
            end -= 1;
        }
        self.out.truncate(end);
    }

    fn keep(&mut self) {
        self.count += 1;
        self.kept = (self.count, self.out.len());
    }

    fn finish(self) {
        let (count, end) = self.kept;
        self.out.truncate(end);
        self.out[self.start + 1] = count;
    }
}
