//! W3C Trace Context (<https://www.w3.org/TR/trace-context/>), level 1.

use std::{collections::BTreeSet, fmt, sync::Arc};

/// What vendors must at least pass on (§3.3.1.5); a longer one is dropped whole.
const MAX_STATE_BYTES: usize = 512;
/// §3.3.1.1.
const MAX_MEMBERS: usize = 32;
/// Of a key, and of a value (§3.3.1.3).
const MAX_PART_BYTES: usize = 256;

/// Where a call stands in its caller's trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    pub trace_id: u128,
    pub span_id: u64,
    pub sampled: bool,
}

impl TraceContext {
    /// Reads a `traceparent` header; `None` if it is malformed (the spec: start a new trace).
    #[must_use]
    pub fn parse(header: &str) -> Option<Self> {
        let mut parts = header.trim().split('-');
        let (version, trace, span, flags) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        // A version above 00 may append fields; 00 may not; ff is forbidden.
        if !is_hex(version, 2) || version == "ff" || (version == "00" && parts.next().is_some()) {
            return None;
        }
        if !is_hex(trace, 32) || !is_hex(span, 16) || !is_hex(flags, 2) {
            return None;
        }
        let context = Self {
            trace_id: u128::from_str_radix(trace, 16).ok()?,
            span_id: u64::from_str_radix(span, 16).ok()?,
            sampled: u8::from_str_radix(flags, 16).ok()? & 1 == 1,
        };
        (context.trace_id != 0 && context.span_id != 0).then_some(context)
    }

    /// The first span of a new trace.
    #[must_use]
    pub fn root() -> Self {
        Self { trace_id: random_128().max(1), span_id: random_64(), sampled: true }
    }

    /// A new span of the same trace.
    #[must_use]
    pub fn child(&self) -> Self {
        Self { span_id: random_64(), ..*self }
    }

    /// The trace's id as 32 hexadecimal digits.
    #[must_use]
    pub fn trace_id_hex(&self) -> String {
        format!("{:032x}", self.trace_id)
    }
}

/// As a `traceparent` header.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, u8::from(self.sampled))
    }
}

/// What vendors have to say of a trace, for the next one on its way: a `tracestate` header, checked
/// and passed on as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceState(Arc<str>);

impl TraceState {
    /// Reads the `tracestate` headers of a request, in their order; `None` if one is malformed, if
    /// they are too long together, or if nothing is in them.
    #[must_use]
    pub fn parse<'a>(headers: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let (mut members, mut keys, mut length) = (Vec::new(), BTreeSet::new(), 0);
        for member in headers.into_iter().flat_map(|header| header.split(',')) {
            let member = member.trim_matches([' ', '\t']);
            if member.is_empty() {
                continue;
            }
            let (key, value) = member.split_once('=')?;
            length += member.len() + usize::from(!members.is_empty());
            members.push(member);
            let fits = length <= MAX_STATE_BYTES && members.len() <= MAX_MEMBERS;
            if !fits || !is_key(key) || !is_value(value) || !keys.insert(key) {
                return None;
            }
        }
        (!members.is_empty()).then(|| Self(members.join(",").into()))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A vendor's name, or `tenant@system`.
fn is_key(key: &str) -> bool {
    let is_inner =
        |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/' | b'@');
    let begins = key.bytes().next().is_some_and(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9'));
    begins
        && key.len() <= MAX_PART_BYTES
        && key.bytes().all(is_inner)
        && key.matches('@').count() <= 1
}

/// Not blank at its end: that would be the list's.
fn is_value(value: &str) -> bool {
    let is_inner = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b',' | b'=');
    (1..=MAX_PART_BYTES).contains(&value.len()) && value.bytes().all(is_inner)
}

fn is_hex(text: &str, len: usize) -> bool {
    text.len() == len && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn random_128() -> u128 {
    uuid::Uuid::new_v4().as_u128()
}

/// Never 0. A version-4 UUID's low half has two fixed bits, so fold the halves.
fn random_64() -> u64 {
    let random = random_128();
    #[expect(clippy::cast_possible_truncation, reason = "the low half is what is wanted")]
    let (low, high) = (random as u64, (random >> 64) as u64);
    (low ^ high.rotate_left(32)).max(1)
}
