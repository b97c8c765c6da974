//! Redaction: however a text is cut, the same comes out; what comes out stays as it is; and no text
//! costs much.
//!
//! Input: one byte that says how to cut, then the text. Prefixes are drawn into it by bytes that are
//! no UTF-8, as the fuzzer would hardly find them by itself.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tollgate::{
    config::RedactionConfig,
    redact::{Counts, Depth, Fed, Redactor, Window},
};

const MAX_STEPS_A_BYTE: usize = 64;

static REDACTOR: LazyLock<Redactor> =
    LazyLock::new(|| Redactor::new(&RedactionConfig::default()).expect("the rules compile"));

fuzz_target!(|input: &[u8]| {
    let Some((&seed, text)) = input.split_first() else { return };
    let text = with_prefixes(text);
    let whole = redacted(&text, Depth::Formats);
    assert_eq!(streamed(&text, seed), whole, "{text:?}");
    for depth in [Depth::Formats, Depth::Complete] {
        let (once, _) = redacted(&text, depth);
        assert_eq!(redacted(&once, depth).0, once, "{text:?}");
    }
    let steps = REDACTOR.engine().steps(text.as_bytes());
    assert!(steps <= MAX_STEPS_A_BYTE * (text.len() + 64), "{steps} for {text:?}");
});

fn redacted(text: &str, depth: Depth) -> (String, Counts) {
    let mut counts = Counts::new();
    (REDACTOR.redact_text(text, depth, &mut counts).into_owned(), counts)
}

/// Pieces of 1 to 16 bytes, their lengths drawn from the seed.
fn streamed(text: &str, seed: u8) -> (String, Counts) {
    let (mut window, mut out, mut counts) = (Window::default(), String::new(), Counts::new());
    let (mut rest, mut state) = (text, u32::from(seed));
    while !rest.is_empty() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let mut length = rest.len().min(1 + (state >> 28) as usize);
        while !rest.is_char_boundary(length) {
            length += 1;
        }
        let (piece, after) = rest.split_at(length);
        if window.feed(&REDACTOR, piece, &mut out, &mut counts) == Fed::Untouched {
            out.push_str(piece);
        }
        rest = after;
    }
    window.finish(&REDACTOR, &mut out, &mut counts);
    (out, counts)
}

fn with_prefixes(text: &[u8]) -> String {
    let rules = REDACTOR.engine().rules();
    let mut out = String::new();
    for chunk in text.utf8_chunks() {
        out.push_str(chunk.valid());
        let number = chunk.invalid().iter().fold(0, |number, byte| number * 131 + usize::from(*byte));
        if number > 0 {
            let rule = &rules[number % rules.len()];
            out.push_str(&rule.prefixes[number % rule.prefixes.len()]);
        }
    }
    out
}
