//! W3C Trace Context (<https://www.w3.org/TR/trace-context/>), level 1.

use std::fmt;

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
