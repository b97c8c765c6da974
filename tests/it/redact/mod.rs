//! Redaction: rules, the engine, and what a stream makes of it.

mod answer;
mod chunk;
mod context;
mod corpus;
mod cost;
mod cut;
mod document;
mod key;
mod machine;
mod marked;
mod named;
mod request;
mod rule;
mod setup;
mod turn;
mod vector_cut;
mod vectors;
mod view;
mod window;

use std::sync::{Arc, LazyLock};

use tollgate::{
    config::{RedactionConfig, RequestRedaction},
    redact::{Counts, Depth, Engine, Fed, PlaceholderKey, Redactor, RuleSet, Window},
};

/// With the built-in rules.
static REDACTOR: LazyLock<Redactor> =
    LazyLock::new(|| Redactor::new(&RedactionConfig::default()).unwrap());

/// With few rules, of few characters, that get into each other's way.
static SMALL: LazyLock<Redactor> = LazyLock::new(|| redactor_of(include_str!("rules.toml")));

fn redactor_of(rules: &str) -> Redactor {
    let engine = Engine::compile(&RuleSet::parse(rules).unwrap()).unwrap();
    let key = PlaceholderKey::from_bytes(b"only for the tests").unwrap();
    Redactor::from_parts(Arc::new(engine), key, RequestRedaction::Redact)
}

fn whole(redactor: &Redactor, text: &str) -> (String, Counts) {
    let mut counts = Counts::new();
    let redacted = redactor.redact_text(text, Depth::Formats, &mut counts).into_owned();
    (redacted, counts)
}

/// What comes out of a window, and what was counted.
fn stream<'a>(redactor: &Redactor, pieces: impl IntoIterator<Item = &'a str>) -> (String, Counts) {
    let (mut window, mut out, mut counts) = (Window::default(), String::new(), Counts::new());
    for piece in pieces {
        let (idle, before) = (window.is_idle(), out.len());
        if window.feed(redactor, piece, &mut out, &mut counts) == Fed::Untouched {
            assert!(idle && window.is_idle() && out.len() == before);
            out.push_str(piece);
        }
    }
    window.finish(redactor, &mut out, &mut counts);
    assert!(window.is_idle());
    (out, counts)
}

/// `text` cut at these places, as far as characters begin there.
fn pieces<'a>(text: &'a str, cuts: &[usize]) -> Vec<&'a str> {
    let mut cuts: Vec<usize> =
        cuts.iter().copied().filter(|at| *at <= text.len() && text.is_char_boundary(*at)).collect();
    cuts.sort_unstable();
    let ends = cuts.iter().copied().chain([text.len()]);
    ends.scan(0, |from, to| Some(&text[std::mem::replace(from, to)..to])).collect()
}

/// The names of the rules that hit, and what they hit.
fn hits<'a>(redactor: &Redactor, text: &'a str, depth: Depth) -> Vec<(String, &'a str)> {
    let engine = redactor.engine();
    let hits = engine.find(text.as_bytes(), depth).into_iter();
    hits.map(|hit| (engine.name(hit.rule).to_string(), &text[hit.at])).collect()
}
