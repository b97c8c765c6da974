//! Answers of several choices and fields, whose pieces come by turns in any order.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use serde_json::{Value, json};
use tollgate::redact::{Counts, Fed, Window};

use super::{
    REDACTOR,
    chunk::{Field, Out, SECRETS, redacted, run, secret},
};
use crate::support::upstream::openai;

const WAYS: [&str; 4] = [".content", ".reasoning", ".refusal", ".tool_calls.0.function.arguments"];

/// A text with secrets, pieces of them, and anything else.
fn text() -> impl Strategy<Value = String> {
    let secrets = prop::sample::select(SECRETS.to_vec()).prop_map(secret);
    let begun = (secrets.clone(), any::<prop::sample::Index>())
        .prop_map(|(secret, at)| secret[..at.index(secret.len())].to_owned());
    let word = prop_oneof![
        secrets,
        begun,
        "[a-z]{1,8}",
        "\\PC{1,3}",
        Just("\"\\\n\t".to_owned()),
        Just("-----BEGIN RSA PRIVATE KEY-----\n".to_owned()),
    ];
    let mark = prop::sample::select(vec!["", " ", " ", "\n", ", ", "\\n", "é"]);
    prop::collection::vec((word, mark), 0..8)
        .prop_map(|parts| parts.into_iter().map(|(word, mark)| word + mark).collect())
}

/// The text in pieces.
fn cut() -> impl Strategy<Value = Vec<String>> {
    (text(), prop::collection::vec(1..12_usize, 1..40)).prop_map(|(text, sizes)| {
        let (mut pieces, mut sizes) = (vec![String::new()], sizes.into_iter().cycle());
        let mut room = sizes.next().unwrap();
        for c in text.chars() {
            if room == 0 {
                pieces.push(String::new());
                room = sizes.next().unwrap();
            }
            pieces.last_mut().unwrap().push(c);
            room -= 1;
        }
        pieces
    })
}

/// One chunk's pieces: of one or two fields.
type Turn = Vec<(Field, String)>;

/// All pieces of all fields by turns. A tool call comes after the other fields of its choice: it
/// ends them.
fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let fields = prop::collection::btree_map((0..3_u64, 0..WAYS.len()), cut(), 1..7);
    (fields, prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 400)).prop_map(
        |(fields, mut order)| {
            let mut left: BTreeMap<_, VecDeque<String>> =
                fields.into_iter().map(|(field, pieces)| (field, pieces.into())).collect();
            let mut turns: Vec<Turn> = Vec::new();
            let first = order[0].0;
            while !left.is_empty() {
                let (at, joins) = order.pop().unwrap_or((first, false));
                let mut open: Vec<_> = left.keys().copied().collect();
                open.retain(|(choice, way)| {
                    *way < 3 || !left.keys().any(|other| other.0 == *choice && other.1 < 3)
                });
                let key = open[at.index(open.len())];
                let pieces = left.get_mut(&key).unwrap();
                let piece = pieces.pop_front().unwrap();
                if pieces.is_empty() {
                    left.remove(&key);
                }
                let piece = ((key.0, WAYS[key.1].to_owned()), piece);
                match turns.last_mut() {
                    Some(turn) if joins && turn.len() == 1 && turn[0].0.0 != piece.0.0 => {
                        turn.push(piece);
                    }
                    _ => turns.push(vec![piece]),
                }
            }
            turns
        },
    )
}

fn delta(way: &str, piece: &str) -> Value {
    match way {
        ".content" => json!({ "content": piece }),
        ".reasoning" => json!({ "reasoning": piece }),
        ".refusal" => json!({ "refusal": piece }),
        _ => json!({ "tool_calls": [{ "index": 0, "function": { "arguments": piece } }] }),
    }
}

/// With digits that no decoder would keep.
fn chunk_of(turn: &Turn) -> String {
    let choices: Vec<String> = turn
        .iter()
        .map(|((index, way), piece)| {
            format!(
                r#"{{"index":{index},"delta":{},"x":1.10,"finish_reason":null}}"#,
                delta(way, piece)
            )
        })
        .collect();
    format!(
        r#"{{"id":"chatcmpl-1","seed":12345678901234567890123,"choices":[{}],"usage":null}}"#,
        choices.join(",")
    )
}

/// Does nothing of this turn get held, or come after something that was?
fn untouched(windows: &mut BTreeMap<Field, Window>, turn: &Turn) -> bool {
    let mut is_untouched = true;
    for (field, piece) in turn {
        let window = windows.entry(field.clone()).or_default();
        let fed = window.feed(&REDACTOR, piece, &mut String::new(), &mut Counts::new());
        is_untouched &= fed == Fed::Untouched;
    }
    is_untouched
}

fn assert_in_order(out: &Out, chunks: &[String]) {
    let mut data = out.data.iter();
    for chunk in chunks {
        assert!(data.any(|data| data == chunk.as_bytes()), "{chunk} is missing in {}", out.raw());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn every_text_comes_out_as_if_it_had_come_alone_and_whole(turns in turns(), reverse in any::<bool>()) {
        let (mut texts, mut windows) = (BTreeMap::<Field, String>::new(), BTreeMap::new());
        let (mut bytes, mut kept) = (Vec::new(), Vec::new());
        for turn in &turns {
            let chunk = chunk_of(turn);
            bytes.extend(openai::event(&chunk));
            if untouched(&mut windows, turn) {
                kept.push(chunk);
            }
            for (field, piece) in turn {
                texts.entry(field.clone()).or_default().push_str(piece);
            }
        }
        let mut choices: Vec<u64> = texts.keys().map(|(choice, _)| *choice).collect();
        choices.dedup();
        if reverse {
            choices.reverse();
        }
        for choice in &choices {
            bytes.extend(openai::finish_of(u32::try_from(*choice).unwrap(), "stop"));
        }
        bytes.extend(openai::usage());

        let out = run(&bytes);
        let mut got = out.texts();
        let empty = |text: &String| text.is_empty();
        for (field, text) in &texts {
            let got = got.remove(field).unwrap_or_default();
            prop_assert_eq!(got, redacted(text), "{:?}", field);
        }
        prop_assert!(got.values().all(empty), "{:?}", got);
        let ended: Vec<u64> = out.finishes().iter().map(|(_, choice, _)| *choice).collect();
        prop_assert_eq!(ended, choices);
        let usage = openai::usage();
        prop_assert!(usage.ends_with(&[out.data.last().unwrap(), &b"\n\n"[..]].concat()));
        let ids = [json!("chatcmpl-1"), json!(openai::ID)];
        prop_assert!(out.chunks.iter().all(|chunk| ids.contains(&chunk["id"])));
        assert_in_order(&out, &kept);
    }
}
