//! What a window holds back, and what it lets through.

use tollgate::redact::{Counts, Fed, MAX_CANDIDATE_BYTES, Window};

use super::{REDACTOR, SMALL, hits, stream, whole};

/// How much is held after `text`.
fn held(text: &str) -> usize {
    let (mut window, mut out, mut counts) = (Window::default(), String::new(), Counts::new());
    match window.feed(&SMALL, text, &mut out, &mut counts) {
        Fed::Untouched => 0,
        Fed::Changed => text.len() - out.len(),
    }
}

#[test]
fn only_what_may_begin_a_secret_is_held() {
    for (text, expected) in [
        ("words", 0),
        ("", 0),
        (" a", 1),
        (" ab", 2),
        (" ab-b", 4),
        ("xa", 0),
        ("x_a", 0),
        ("x-a", 1),
        // A rule may begin within a word.
        ("xx1a", 2),
        (" x-", 1),
        ("x --", 2),
        // A candidate is live until it is decided.
        ("x ab_ab1", 6),
        ("x ab_ab1ab1", 9),
        ("x ab_ab1x", 0),
        ("x ab_ab1ab1b", 0),
        ("\\na", 1),
        ("na", 0),
        ("\u{e9}a\u{200b}", 4),
    ] {
        assert_eq!(held(text), expected, "{text:?}");
    }
    // What begins in the middle of a failing candidate is held from there.
    assert_eq!(held("ab_x-a"), 1);
}

#[test]
fn what_ends_a_secret_is_all_that_is_waited_for() {
    let (aws, github) = (crate::support::secret::aws_key(), crate::support::secret::github_token());
    for secret in [
        aws,
        github,
        "Authorization: Bearer q9w8e7r6t5y4u3i2o1p0".to_owned(),
        "https://joe:q9w8e7r6t5@".to_owned(),
        "aws_secret_access_key = q9W8e7R6t5Y4u3I2o1P0a9S8d7F6g5H4j3K2l1Z0".to_owned(),
    ] {
        for end in ["\n", " ", "\r\n", "\"}"] {
            let (mut window, mut out, mut counts) =
                (Window::default(), String::new(), Counts::new());
            window.feed(&REDACTOR, &format!("x {secret}"), &mut out, &mut counts);
            window.feed(&REDACTOR, end, &mut out, &mut counts);
            assert!(window.is_idle() && out.ends_with(end), "{secret:?}{end:?}: {out}");
            assert!(!counts.is_empty(), "{secret}");
        }
    }
    // So for what is swallowed.
    let (mut window, mut out, mut counts) = (Window::default(), String::new(), Counts::new());
    window.feed(&SMALL, &format!("ab-{}", "ab1-".repeat(3_000)), &mut out, &mut counts);
    window.feed(&SMALL, "\n", &mut out, &mut counts);
    assert!(window.is_idle() && out.ends_with("]\n"), "{out}");
}

#[test]
fn with_no_candidate_no_more_is_held_than_the_longest_prefix() {
    let longest = REDACTOR.engine().rules().iter().flat_map(|rule| &rule.prefixes);
    let longest = longest.map(String::len).max().unwrap();
    let prose = "Tokens of the gateway pass as they are, sk is a word, and so is npm; \
                 \u{201c}eye\u{201d} \u{2014} hf, xox, glp, gsk.\n"
        .repeat(20);
    let (mut window, mut out, mut counts) = (Window::default(), String::new(), Counts::new());
    let mut fed = 0;
    for (at, c) in prose.char_indices() {
        let piece = &prose[at..at + c.len_utf8()];
        if window.feed(&REDACTOR, piece, &mut out, &mut counts) == Fed::Untouched {
            out.push_str(piece);
        }
        fed += piece.len();
        assert!(fed - out.len() < longest, "{} are held", fed - out.len());
    }
    window.finish(&REDACTOR, &mut out, &mut counts);
    assert_eq!(out, prose);
}

#[test]
fn most_words_go_through_as_they_came() {
    let text = "The gateway takes secrets out of what leaves: a request, or what comes back, in \
                pieces of a word or two. Most have nothing to do with any of them, and stay.\n";
    let (mut window, mut out, mut counts) = (Window::default(), String::new(), Counts::new());
    let words = text.split_inclusive(' ').collect::<Vec<_>>();
    let untouched =
        |piece: &&&str| window.feed(&REDACTOR, piece, &mut out, &mut counts) == Fed::Untouched;
    assert_eq!(words.iter().filter(untouched).count(), words.len());
}

#[test]
fn zero_width_characters_do_not_make_it_hold_more_and_more() {
    let (mut window, mut out, mut counts) = (Window::default(), String::new(), Counts::new());
    let mut fed = 1;
    window.feed(&SMALL, "a", &mut out, &mut counts);
    for _ in 0..1_000 {
        if window.feed(&SMALL, "\u{200b}", &mut out, &mut counts) == Fed::Untouched {
            out.push('\u{200b}');
        }
        fed += 3;
        assert!(fed - out.len() < 64);
    }
}

#[test]
fn a_candidate_is_held_up_to_its_bound() {
    let (mut window, mut out, mut counts) = (Window::default(), String::new(), Counts::new());
    let mut fed = 0;
    for piece in std::iter::once("x ab-").chain(std::iter::repeat_n("ab1-", 5_000)) {
        window.feed(&SMALL, piece, &mut out, &mut counts);
        fed += piece.len();
        let expected =
            if fed < 2 + MAX_CANDIDATE_BYTES { 2 } else { 2 + "[REDACTED:open:00000000]".len() };
        assert_eq!(out.len(), expected, "after {fed}");
    }
    assert!(!window.is_idle());
    window.feed(&SMALL, ", then", &mut out, &mut counts);
    assert!(out.ends_with("], then") && window.is_idle(), "{out}");
    assert_eq!(counts.values().sum::<u32>(), 1);
}

/// A text that goes on for longer than is held, and what comes of it.
fn outgrown(head: &str, body: &str, tail: &str) -> (String, Vec<String>) {
    let text = format!("{head}{}{tail}", body.repeat(9_000 / body.len()));
    let (out, counts) = whole(&REDACTOR, &text);
    let every: Vec<usize> = (0..text.len()).step_by(61).collect();
    assert_eq!(stream(&REDACTOR, super::pieces(&text, &every)), (out.clone(), counts.clone()));
    let out = out.chars().take(80).collect();
    (out, counts.keys().map(ToString::to_string).collect())
}

#[test]
fn what_matched_nothing_yet_and_outgrows_its_bound_is_redacted_to_the_end_of_its_class() {
    for (head, body, tail, rule) in [
        // A header of a JWT, and the whole of one with such a header.
        ("see eyJ", "hbGciOi", " there", "jwt"),
        ("see eyJ", "hbGciOi", ".eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w there", "jwt"),
        ("see AccountKey=", "abcdABCD0123", " there", "azure-storage-key"),
        ("see SG.", "abcd-0123", " there", "sendgrid-key"),
        ("see postgres://u:", "abcd-0123", " there", "postgres-url-password"),
    ] {
        let (out, rules) = outgrown(head, body, tail);
        assert!(out.starts_with(&format!("see [REDACTED:{rule}:")), "{out}");
        assert!(out.ends_with("] there"), "{rule}: {out}");
        assert_eq!(rules, [rule]);
    }
}

#[test]
fn ordinary_text_is_never_taken_for_what_outgrew_its_bound() {
    let prose = "\u{4f8b}\u{ff0c}";
    for (head, body) in [
        // No rule whose secrets are so long.
        ("AKIA", "ABCD0123"),
        ("SK", "0123abcd"),
        // Texts without a blank behind what begins many a word.
        ("https://a.example", prose),
        ("https://", "abc.example"),
        ("machine ", prose),
        ("machine a.b", "abcd+/01"),
        ("BEGIN ", "ACGTTGCA"),
        ("password=", "a=%20b&"),
        // Base64 that is an image.
        ("/AQEa", "abcd0123AB"),
        ("data:image/png;base64,AQEa", "abcd0123AB"),
    ] {
        let (_, rules) = outgrown(head, body, " and more");
        assert_eq!(rules, <[&str; 0]>::default(), "{head}{body}…");
    }
}

#[test]
fn what_is_held_comes_out_at_the_end() {
    for text in ["x ab_ab1", "ab-ab1", "a b=12@", "--a-1", " a", "a\u{200b}"] {
        assert_eq!(stream(&SMALL, [text]), whole(&SMALL, text));
        assert_eq!(
            stream(&SMALL, [text]).0.contains("REDACTED"),
            text == "x" || !hits(&SMALL, text, tollgate::redact::Depth::Formats).is_empty()
        );
    }
    // A finished window begins a new text: what was before is no part of its words.
    let (mut window, mut out, mut counts) = (Window::default(), String::new(), Counts::new());
    for _ in 0..2 {
        window.feed(&SMALL, "x ab-1", &mut out, &mut counts);
        window.feed(&SMALL, "111", &mut out, &mut counts);
        window.finish(&SMALL, &mut out, &mut counts);
    }
    let placeholder = out[2..].split(']').next().unwrap();
    assert_eq!(out, format!("x {placeholder}]x {placeholder}]"));
    assert_eq!(counts["open"], 2);
}

#[test]
fn equal_secrets_have_equal_placeholders_however_they_come() {
    let plain = whole(&SMALL, "ab_ab1ab1").0;
    assert_eq!(plain.len(), "[REDACTED:exact:00000000]".len());
    let hidden = "ab\u{200b}_ab1\u{feff}ab1";
    assert_eq!(whole(&SMALL, hidden).0, plain);
    assert_eq!(stream(&SMALL, ["a", "b_a", "b1ab1"]).0, plain);
    assert_ne!(whole(&SMALL, "ab_ab1ab0").0, plain);
}
