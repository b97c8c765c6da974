//! No text makes the machine look at its bytes over and over. Steps are counted, not timed.

use super::{REDACTOR, SMALL};

/// Beyond this many looks at each byte a text would be an attack.
const MAX_STEPS_A_BYTE: usize = 64;

fn steps_a_byte(redactor: &tollgate::redact::Redactor, text: &str) -> usize {
    redactor.engine().steps(text.as_bytes()) / text.len()
}

#[test]
fn repeated_prefixes_cost_little() {
    let rules = REDACTOR.engine().rules();
    let fillers =
        ["", "a", "-", "1.", ":", "/", "a:b", "A1b2", "\u{200b}", "a1 ", "aaaaaaaaaaaaaaa-"];
    let prefixes: Vec<&String> = rules.iter().flat_map(|rule| &rule.prefixes).collect();
    let parts =
        prefixes.iter().flat_map(|prefix| fillers.map(|filler| format!("{prefix}{filler}")));
    let steps =
        |part: &str, bytes: usize| steps_a_byte(&REDACTOR, &part.repeat(bytes / part.len()));
    // Long enough to see which get worse with their length; those are then looked at closely.
    let mut worst: Vec<(usize, String)> = parts.map(|part| (steps(&part, 2_000), part)).collect();
    worst.sort_unstable_by(|one, other| other.cmp(one));
    for (_, part) in &worst[..20] {
        let steps = steps(part, 40_000);
        assert!(steps <= MAX_STEPS_A_BYTE, "{part:?}: {steps}");
    }
}

#[test]
fn candidates_that_share_an_end_are_run_once() {
    for (part, tail) in [
        // They never match, match and are no secret, or match only in the end.
        ("a1-", ""),
        ("b-a-", ""),
        ("b=x", ""),
        ("b=x ", ""),
        ("a1ab-", ".a"),
        ("--a-", ""),
        ("a1\u{200b}-", ""),
    ] {
        let text = format!("{}{tail}", part.repeat(30_000 / part.len()));
        let steps = steps_a_byte(&SMALL, &text);
        assert!(steps <= MAX_STEPS_A_BYTE, "{part:?}: {steps}");
    }
}

#[test]
fn ordinary_text_is_looked_at_once() {
    let prose =
        "The quick brown fox jumps over the lazy dog; a task-runner skims asks.\n".repeat(100);
    assert!(REDACTOR.engine().steps(prose.as_bytes()) < prose.len() * 11 / 10);
}
