//! Where in a JSON text its names and values stand: nothing is made of them, no byte is copied.

use std::{borrow::Cow, ops::Range};

/// One step of the way from the top to a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Of an object, by where its name stands, between its quotes.
    Member(Range<usize>),
    /// Of an array.
    Element(usize),
}

/// What a walk meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// A member's name, between its quotes.
    Name,
    /// A string that is a value, between its quotes.
    Text,
    /// A number, `true`, `false` or `null`.
    Scalar,
    /// An object or an array, from bracket to bracket, after all that is in it.
    Container,
}

struct Open {
    start: usize,
    is_object: bool,
}

/// Shows everything in `json` to `visit`, with where it stands and the way to it. A name's way ends
/// with itself.
///
/// `json` is known to be valid; with what is not the walk is of no use, but does no harm.
pub(super) fn walk(json: &[u8], mut visit: impl FnMut(Found, Range<usize>, &[Step])) {
    let (mut open, mut way) = (Vec::<Open>::with_capacity(8), Vec::<Step>::with_capacity(8));
    let (mut at, mut name_is_next) = (0, false);
    while let Some(&byte) = json.get(at) {
        let start = at;
        at += 1;
        match byte {
            b'{' | b'[' => {
                let is_object = byte == b'{';
                open.push(Open { start, is_object });
                way.push(if is_object { Step::Member(0..0) } else { Step::Element(0) });
                name_is_next = is_object;
            }
            b'}' | b']' => {
                let Some(opened) = open.pop() else { return };
                way.pop();
                visit(Found::Container, opened.start..at, &way);
            }
            b',' => match way.last_mut() {
                Some(Step::Element(place)) => *place += 1,
                _ => name_is_next = open.last().is_some_and(|open| open.is_object),
            },
            b':' => name_is_next = false,
            b'"' => {
                let text = at..end_of_string(json, at);
                at = (text.end + 1).min(json.len());
                if let (true, Some(step)) = (name_is_next, way.last_mut()) {
                    *step = Step::Member(text.clone());
                    visit(Found::Name, text, &way);
                } else {
                    visit(Found::Text, text, &way);
                }
            }
            _ if byte.is_ascii_whitespace() => {}
            _ => {
                let is_over = |byte: &u8| b",]}".contains(byte) || byte.is_ascii_whitespace();
                let rest = json[at..].iter().position(is_over);
                at = rest.map_or(json.len(), |length| at + length);
                visit(Found::Scalar, start..at, &way);
            }
        }
    }
}

/// Where the string ends whose first character is at `at`: at its closing quote.
pub(super) fn end_of_string(json: &[u8], mut at: usize) -> usize {
    loop {
        let rest = json.get(at..).unwrap_or_default();
        match memchr::memchr2(b'"', b'\\', rest) {
            Some(found) if rest[found] == b'"' => return at + found,
            Some(found) => at += found + 2,
            None => return json.len(),
        }
    }
}

/// What the string between these quotes says.
///
/// What can't be decoded (half of a surrogate pair) is taken as it is spelled.
pub(super) fn decode(json: &[u8], at: Range<usize>) -> Cow<'_, str> {
    let raw = &json[at.clone()];
    if memchr::memchr(b'\\', raw).is_some()
        && let Some(quoted) = json.get(at.start.wrapping_sub(1)..=at.end)
        && let Ok(text) = serde_json::from_slice::<String>(quoted)
    {
        return Cow::Owned(text);
    }
    String::from_utf8_lossy(raw)
}

/// Is this step the member of this name, however that is spelled?
pub(super) fn is_member(json: &[u8], step: Option<&Step>, name: &str) -> bool {
    let Some(Step::Member(at)) = step else { return false };
    let raw = &json[at.clone()];
    raw == name.as_bytes() || (raw.contains(&b'\\') && decode(json, at.clone()) == name)
}
