//! However a text is cut, the same comes out.

use std::sync::LazyLock;

use tollgate::{
    config::RedactionConfig,
    redact::{Counts, Depth, Fed, Redactor, Window},
};

static REDACTOR: LazyLock<Redactor> =
    LazyLock::new(|| Redactor::new(&RedactionConfig::default()).unwrap());

fn whole(text: &str) -> (String, Counts) {
    let mut counts = Counts::new();
    let redacted = REDACTOR.redact_text(text, Depth::Formats, &mut counts).into_owned();
    (redacted, counts)
}

fn stream<'a>(pieces: impl IntoIterator<Item = &'a str>) -> (String, Counts) {
    let (mut window, mut out, mut counts) = (Window::default(), String::new(), Counts::new());
    for piece in pieces {
        let before = out.clone();
        if window.feed(&REDACTOR, piece, &mut out, &mut counts) == Fed::Untouched {
            assert_eq!(out, before);
            out.push_str(piece);
        }
    }
    window.finish(&REDACTOR, &mut out, &mut counts);
    assert!(window.is_idle());
    (out, counts)
}

#[test]
fn one_character_at_a_time() {
    for text in [
        "a key=sk-proj-0123456789abcdefghij, and sk-short",
        "A\u{200b}K\u{200b}IA0123456789ABCDEFG\u{200b}HIJ é",
        "Bearer abcdefghijklmnopqrstuvwx\\nAKIA0123456789abcdefgh tokens",
    ] {
        let characters = text.char_indices().map(|(at, c)| &text[at..at + c.len_utf8()]);
        let expected = whole(text);
        assert_ne!(expected.0, text);
        assert_eq!(stream(characters), expected);
    }
}
