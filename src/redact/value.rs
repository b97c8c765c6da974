//! The values of assignments: where they end, and whether they look like secrets.

use std::ops::Range;

use super::unseen;

/// After an operator: more blanks are no assignment.
const MAX_BLANKS: usize = 8;
/// Longer values are no passwords; and what is looked at has an end.
const MAX_VALUE_BYTES: usize = 1024;
/// Letters without a digit are words, unless there are many, in a case that changes all the time.
const MIN_RANDOM_LETTERS: usize = 20;
/// Words end with a number at times: `v2`, `node12`.
const MAX_WORD_DIGITS: usize = 2;
/// A number by itself is a year, a port or the like.
const MAX_NUMBER_DIGITS: usize = 4;

/// A value, where it stands in its text.
#[derive(Debug)]
pub(super) struct Value {
    pub at: Range<usize>,
    quoted: bool,
    /// The byte after it.
    next: Option<u8>,
}

impl Value {
    /// The value after an operator at `at`.
    pub fn after(text: &[u8], at: usize) -> Option<Self> {
        let mut start = at + 1;
        // `:=`, `=>`; but not `::`, `==` or `=~`.
        match (text[at], text.get(start)?) {
            (b':', b'=') | (b'=', b'>') => start += 1,
            (_, b':' | b'=' | b'~') => return None,
            _ => {}
        }
        // `!=`, `<=`, `>=`, `==`, `+=`: nothing is set. The `=` of `:=` was seen already.
        if text[at] == b'=' && at > 0 && b"!<>=:+".contains(&text[at - 1]) {
            return None;
        }
        let rest = &text[start..text.len().min(start + MAX_BLANKS + 1)];
        start += rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        let escapes = text[start..].iter().take(MAX_BLANKS).take_while(|byte| **byte == b'\\');
        let escapes = escapes.count();
        let quote = text.get(start + escapes).copied().filter(|byte| b"\"'`".contains(byte));
        let start = start + quote.map_or(0, |_| escapes + 1);
        let rest = &text[start..text.len().min(start + MAX_VALUE_BYTES)];
        let length = match quote {
            Some(quote) if escapes == 0 => quoted(rest, quote)?,
            Some(quote) => rest.iter().position(|byte| [quote, b'\\'].contains(byte))?,
            None => bare(rest),
        };
        let end = start + length;
        (length > 0 && length < MAX_VALUE_BYTES).then(|| Self {
            at: start..end,
            quoted: quote.is_some(),
            next: text.get(end).copied(),
        })
    }
}

/// The length up to the closing quote.
fn quoted(rest: &[u8], quote: u8) -> Option<usize> {
    let mut at = 0;
    loop {
        match *rest.get(at)? {
            b'\n' => return None,
            b'\\' => at += 2,
            byte if byte == quote => return Some(at),
            _ => at += 1,
        }
    }
}

/// The length of a value without quotes: what is not seen does not end it.
fn bare(rest: &[u8]) -> usize {
    let mut at = 0;
    while let Some(byte) = rest.get(at) {
        match unseen::transparent(rest, at) {
            Some(length) => at += length,
            None if *byte == b'&' && !goes_on(&rest[at + 1..]) => at += 1,
            None if ends_bare(*byte) => break,
            None => at += 1,
        }
    }
    at
}

/// After a `&`: does the next member of a query follow, or the next command? Else it is part of the
/// value: half a password must not stay.
fn goes_on(rest: &[u8]) -> bool {
    let rest = rest.strip_prefix(b"amp;").unwrap_or(rest);
    let in_name = |byte: &&u8| byte.is_ascii_alphanumeric() || b"_.-%[]".contains(byte);
    match rest.get(rest.iter().take_while(in_name).count()) {
        Some(b'=') => true,
        _ => rest.first().is_none_or(|byte| ends_bare(*byte)),
    }
}

/// A value without quotes has none of these.
const fn ends_bare(byte: u8) -> bool {
    byte <= b' '
        || byte >= 0x80
        || matches!(
            byte,
            b'"' | b'\''
                | b'`'
                | b','
                | b';'
                | b'('
                | b')'
                | b'['
                | b']'
                | b'{'
                | b'}'
                | b'<'
                | b'>'
        )
        || matches!(byte, b'|' | b'&' | b'\\')
}

/// Is it neither a word, nor a number, nor what stands for a secret that is elsewhere?
pub(super) fn looks_secret(value: &Value, bytes: &[u8]) -> bool {
    if !value.quoted && is_code(value, bytes) {
        return false;
    }
    let has = |test: fn(&u8) -> bool| bytes.iter().any(test);
    !has(|byte| byte.is_ascii_whitespace() || byte.is_ascii_control())
        && has(u8::is_ascii_alphabetic)
        && bytes.is_ascii()
        && !is_reference(bytes)
        && !is_wordy(bytes)
}

/// A call, an index, or the member of something.
fn is_code(value: &Value, bytes: &[u8]) -> bool {
    let in_path = |byte: &u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b':' | b'$' | b'?' | b'!')
    };
    let first = bytes.first().copied().unwrap_or_default();
    matches!(value.next, Some(b'(' | b'[' | b'{' | b'<'))
        || matches!(first, b'$' | b'&' | b'*' | b'@' | b'%' | b'#' | b'!')
            && bytes.iter().skip(1).all(in_path)
        || bytes.contains(&b'.') && bytes.split(|byte| *byte == b'.').all(is_identifier)
}

fn is_identifier(part: &[u8]) -> bool {
    let first = part.first().copied().unwrap_or_default();
    (first.is_ascii_alphabetic() || first == b'_')
        && part
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'?' | b'!'))
}

/// `${VAR}`, `<token>`, `{{ token }}`, `%TOKEN%`, `@TOKEN@`, a URL, a path, where a secret is kept
/// (`vault:…`, `arn:…`), `sk-...` and `****`.
fn is_reference(bytes: &[u8]) -> bool {
    const WITHIN: [&[u8]; 9] = [b"${", b"{{", b"$(", b"<%", b"#{", b"://", b"...", b"***", b"%("];
    const BEFORE: [&[u8]; 10] =
        [b"<", b"./", b"../", b"~/", b"{", b"$", b"arn:", b"vault:", b"env:", b"file:"];
    let within = |part: &&[u8]| bytes.windows(part.len()).any(|window| window == *part);
    let before = |part: &&[u8]| bytes.starts_with(part);
    let is_hash = bytes.first() == Some(&b'$') && bytes.get(1).is_some_and(u8::is_ascii_digit);
    WITHIN.iter().any(within)
        || BEFORE.iter().any(before) && !is_hash
        || matches!(
            (bytes.first(), bytes.last()),
            (Some(b'%'), Some(b'%')) | (Some(b'@'), Some(b'@'))
        )
}

/// Only words and small numbers, with what joins words.
fn is_wordy(bytes: &[u8]) -> bool {
    let joint = |byte: u8| matches!(byte, b'_' | b'-' | b'.' | b'/' | b':' | b' ');
    bytes.split(|byte| joint(*byte)).all(is_word)
}

/// Letters with a few digits behind them, or a number.
fn is_word(part: &[u8]) -> bool {
    let letters = part.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
    let (word, number) = part.split_at(letters);
    let most = if word.is_empty() { MAX_NUMBER_DIGITS } else { MAX_WORD_DIGITS };
    number.len() <= most && number.iter().all(u8::is_ascii_digit) && !is_random(word)
}

/// Does the case change so often that no one would write a word so? `ManyShortWordsInOne` is none.
fn is_random(word: &[u8]) -> bool {
    if is_camel(word) {
        return false;
    }
    let changes =
        word.windows(2).filter(|pair| pair[0].is_ascii_uppercase() != pair[1].is_ascii_uppercase());
    word.len() >= MIN_RANDOM_LETTERS && changes.count() * 3 >= word.len()
}

/// Words without a blank: a capital at most, and two small letters at least.
fn is_camel(word: &[u8]) -> bool {
    let mut parts = word.chunk_by(|_, next| !next.is_ascii_uppercase());
    parts.all(|part| part.len() > 2 && part[1..].iter().all(u8::is_ascii_lowercase))
}
