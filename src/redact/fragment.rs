//! Parts that several patterns have in common: `{{pem-body}}` stands for the fragment of that name.

use std::collections::BTreeMap;

use super::rule::{MAX_PATTERN_BYTES, RuleError};

/// Fragments by their name.
pub(super) type Fragments = BTreeMap<String, String>;

const OPEN: &str = "{{";
const CLOSE: &str = "}}";
/// A fragment may be made of fragments; one that is made of itself has no end.
const MAX_DEPTH: usize = 4;

/// `pattern` of the rule `name`, written out.
///
/// # Errors
/// There is no such fragment, or it has no end.
pub(super) fn expand(
    name: &str,
    pattern: &str,
    fragments: &Fragments,
) -> Result<String, RuleError> {
    let mut out = String::new();
    put(name, pattern, fragments, &mut Vec::new(), &mut out)?;
    Ok(out)
}

fn put<'a>(
    name: &str,
    pattern: &'a str,
    fragments: &'a Fragments,
    within: &mut Vec<&'a str>,
    out: &mut String,
) -> Result<(), RuleError> {
    let mut rest = pattern;
    while let Some((before, fragment, after)) = next(rest) {
        let Some(content) = fragments.get(fragment) else {
            return Err(RuleError::of(name, format_args!("there is no fragment `{fragment}`")));
        };
        if within.contains(&fragment) || within.len() == MAX_DEPTH {
            let fault = format_args!("the fragment `{fragment}` is part of itself, or too deep");
            return Err(RuleError::of(name, fault));
        }
        out.push_str(before);
        within.push(fragment);
        put(name, content, fragments, within, out)?;
        within.pop();
        if out.len() > MAX_PATTERN_BYTES {
            let fault = format_args!("the pattern is longer than {MAX_PATTERN_BYTES} bytes");
            return Err(RuleError::of(name, fault));
        }
        rest = after;
    }
    out.push_str(rest);
    Ok(())
}

/// What stands before the first fragment, its name, and what stands behind it. In a regular
/// expression two braces begin no name: a number of times is told in figures.
fn next(pattern: &str) -> Option<(&str, &str, &str)> {
    let mut from = 0;
    loop {
        let open = from + pattern[from..].find(OPEN)?;
        let inner = &pattern[open + OPEN.len()..];
        let length = inner.bytes().take_while(|byte| is_of_name(*byte)).count();
        let (name, behind) = inner.split_at(length);
        let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
        match behind.strip_prefix(CLOSE) {
            Some(after) if begins => return Some((&pattern[..open], name, after)),
            _ => from = open + 1,
        }
    }
}

const fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'
}
