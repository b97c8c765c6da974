//! Any JSON document, with secrets anywhere in it, however it is spelled.

use proptest::prelude::*;
use serde_json::{Value, json};
use tollgate::redact::Counts;

use super::request::{SECRETS, hidden, placeholder, redacted};

/// A small generator of its own: how a character is spelled is no matter worth shrinking.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// JSON with some characters of its strings spelled as escapes that need none.
fn spelled(value: &Value, dice: &mut Dice, out: &mut String) {
    match value {
        Value::String(text) => spelled_text(text, dice, out),
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                spelled(item, dice, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (at, (name, item)) in members.iter().enumerate() {
                out.push_str(if at > 0 { "," } else { "\n" });
                spelled_text(name, dice, out);
                out.push_str(" :");
                spelled(item, dice, out);
            }
            out.push('}');
        }
        other => out.push_str(&other.to_string()),
    }
}

fn spelled_text(text: &str, dice: &mut Dice, out: &mut String) {
    use std::fmt::Write as _;
    let rarely = dice.roll(8) + 1;
    out.push('"');
    for c in text.chars() {
        if dice.roll(rarely) == 0 {
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(out, "\\u{unit:04x}").unwrap();
            }
        } else if c == '/' && dice.roll(2) == 0 {
            out.push_str("\\/");
        } else {
            let quoted = Value::from(c.to_string()).to_string();
            out.push_str(&quoted[1..quoted.len() - 1]);
        }
    }
    out.push('"');
}

/// A document, and how many secrets are in it; some in JSON within a string.
fn document() -> impl Strategy<Value = Value> {
    let secret = prop::sample::select(SECRETS.to_vec()).prop_map(|(_, secret)| secret);
    let text = "[a-zA-Z \"\\\\/\n{}%é\u{1F600}]{0,12}";
    let hiding = (text, secret, text)
        .prop_map(|(before, secret, after)| format!("{before} {secret} {after}"));
    let leaf = prop_oneof![
        2 => hiding.clone().prop_map(Value::from),
        1 => any::<String>().prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
        1 => Just(Value::Null),
    ];
    let name = prop_oneof![3 => "[a-z]{1,5}", 1 => hiding];
    leaf.prop_recursive(5, 32, 4, move |inner| {
        let members = prop::collection::vec((name.clone(), inner.clone()), 0..4);
        prop_oneof![
            2 => prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            2 => members.prop_map(|members| Value::Object(members.into_iter().collect())),
            1 => inner.prop_map(|value| Value::from(json!([value]).to_string())),
        ]
    })
}

/// Every text in a document, also in JSON within its strings.
fn texts(value: &Value, out: &mut Vec<String>) {
    match value {
        Value::String(text) => {
            out.push(text.clone());
            if let Ok(inner @ (Value::Array(_) | Value::Object(_) | Value::String(_))) =
                serde_json::from_str(text)
            {
                texts(&inner, out);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| texts(item, out)),
        Value::Object(members) => {
            for (name, item) in members {
                out.push(name.clone());
                texts(item, out);
            }
        }
        _ => {}
    }
}

fn without_secrets(text: &str) -> String {
    let replace = |text: String, (rule, secret): &(&str, &str)| {
        text.replace(hidden(secret), &placeholder(rule, secret))
    };
    SECRETS.iter().fold(text.to_owned(), replace)
}

/// The same document, but for what stands in secrets' places.
fn assert_alike(before: &Value, after: &Value) {
    match (before, after) {
        (Value::Array(before), Value::Array(after)) => {
            assert_eq!(before.len(), after.len());
            before.iter().zip(after).for_each(|(before, after)| assert_alike(before, after));
        }
        (Value::Object(before), Value::Object(after)) => {
            assert_eq!(before.len(), after.len());
            for (name, before) in before {
                assert_alike(before, &after[&without_secrets(name)]);
            }
        }
        (Value::String(before), Value::String(after)) => {
            if let Ok(before @ Value::Array(_)) = serde_json::from_str(before) {
                assert_alike(&before, &serde_json::from_str(after).expect("it is still JSON"));
            } else {
                assert_eq!(&without_secrets(before), after);
            }
        }
        _ => assert_eq!(before, after),
    }
}

proptest! {
    #[test]
    fn no_secret_is_left_in_any_document_and_all_else_stays(document in document(), seed in 1..u64::MAX) {
        let mut body = String::new();
        spelled(&document, &mut Dice(seed), &mut body);
        let (out, counts) = redacted(&body);
        let after: Value = serde_json::from_str(&out).expect("it is still JSON");
        let mut all = Vec::new();
        texts(&after, &mut all);
        for (_, secret) in SECRETS {
            for text in &all {
                prop_assert!(!text.contains(hidden(secret)), "{} in {}", text, out);
            }
        }
        assert_alike(&document, &after);
        let mut all = Vec::new();
        texts(&document, &mut all);
        let has_any = SECRETS.iter().any(|(_, secret)| all.iter().any(|text| text.contains(secret)));
        prop_assert_eq!(has_any, !counts.is_empty());
        // And nothing is found a second time.
        prop_assert_eq!(redacted(&out), (out, Counts::new()));
    }
}
