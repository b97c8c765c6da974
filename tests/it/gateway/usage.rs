//! Usage that the client did not ask for is taken out wherever it stands, and nothing else is.

use std::future::poll_fn;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use tollgate::{
    provider::{ChunkView, sse::Decoder},
    stream::{Outlet, PassthroughWriter, channel},
};

use crate::support::{
    app::chat,
    event_stream::{EventStream, Item},
    upstream::{Script, openai},
};

use super::seen::call_with;

/// What a client gets of these events, streamed through the writer alone.
fn passed(events: &[u8], include_usage: bool) -> Bytes {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let (sender, mut receiver) = channel(1 << 20);
        let mut outlet = Outlet::Passthrough(PassthroughWriter::new(sender, include_usage));
        let mut parsed = Vec::new();
        let mut decoder = Decoder::new(1 << 20);
        decoder.feed(Bytes::copy_from_slice(events), &mut parsed).unwrap();
        for event in parsed.iter().filter(|event| event.has_data) {
            outlet.push(event, &ChunkView::parse(&event.data).unwrap()).unwrap();
        }
        outlet.flush().await.unwrap();
        drop(outlet);
        poll_fn(|context| receiver.poll_receive(context)).await.unwrap_or_default()
    })
}

const CHOICE: &str = r#""choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]"#;
const COUNT: &str = r#"{"prompt_tokens":3,"completion_tokens":4,"x":[{"}":"]"}]}"#;

#[test]
fn usage_is_taken_out_wherever_it_stands() {
    let cases = [
        (format!(r#"{{"usage":null,"id":"a",{CHOICE}}}"#), format!(r#"{{"id":"a",{CHOICE}}}"#)),
        (format!(r#"{{"id":"a","usage":null,{CHOICE}}}"#), format!(r#"{{"id":"a",{CHOICE}}}"#)),
        (format!(r#"{{"id":"a",{CHOICE},"usage":null}}"#), format!(r#"{{"id":"a",{CHOICE}}}"#)),
        (format!(r#"{{"id":"a",{CHOICE},"usage":{COUNT}}}"#), format!(r#"{{"id":"a",{CHOICE}}}"#)),
        (format!(r#"{{"usage":{COUNT},{CHOICE}}}"#), format!("{{{CHOICE}}}")),
        (format!(r#"{{"\u0075sag\u0065":{COUNT},{CHOICE}}}"#), format!("{{{CHOICE}}}")),
        (format!(r#"{{{CHOICE},"usage":7}}"#), format!("{{{CHOICE}}}")),
        (format!(r#"{{ {CHOICE} , "usage" : null }}"#), format!("{{ {CHOICE} }}")),
        (r#"{"usage":null}"#.to_owned(), "{}".to_owned()),
        (r#"{"choices":[],"usage":null}"#.to_owned(), r#"{"choices":[]}"#.to_owned()),
        (
            format!(r#"{{"x_groq":{{"usage":{COUNT}}},{CHOICE},"usage":null}}"#),
            format!(r#"{{"x_groq":{{"usage":{COUNT}}},{CHOICE}}}"#),
        ),
        (
            r#"{"choices":[{"index":0,"delta":{"content":"\",\"usage\":null"}}],"usage":null}"#
                .to_owned(),
            r#"{"choices":[{"index":0,"delta":{"content":"\",\"usage\":null"}}]}"#.to_owned(),
        ),
    ];
    for (given, wanted) in cases {
        let out = passed(format!("data: {given}\n\n").as_bytes(), false);
        assert_eq!(std::str::from_utf8(&out).unwrap(), format!("data: {wanted}\n\n"), "{given}");
        let event = format!("data: {given}\n\n");
        assert_eq!(passed(event.as_bytes(), true), event, "kept when asked for");
    }
}

#[test]
fn a_chunk_that_is_a_count_and_nothing_else_is_dropped() {
    for count in [COUNT, r#"{"prompt_tokens":-1}"#, "{}"] {
        for chunk in [
            format!(r#"{{"id":"a","choices":[],"usage":{count}}}"#),
            format!(r#"{{"usage":{count},"choices":null}}"#),
            format!(r#"{{"usage":{count}}}"#),
        ] {
            assert_eq!(passed(format!("data: {chunk}\n\n").as_bytes(), false), "", "{chunk}");
        }
    }
}

#[test]
fn a_chunk_over_several_lines_keeps_its_lines() {
    let given = "data: {\"usage\":\ndata: null,\ndata: \"choices\":[\ndata: {\"index\":0}]}\n\n";
    let out = passed(given.as_bytes(), false);
    let wanted = "data: {\ndata: \"choices\":[\ndata: {\"index\":0}]}\n\n";
    assert_eq!(std::str::from_utf8(&out).unwrap(), wanted);
}

#[tokio::test]
async fn usage_on_a_chunk_with_choices_is_counted_and_the_last_word_is_taken() {
    let chunk = |tokens: u32| {
        openai::event(&format!(
            r#"{{"id":"a",{CHOICE},"usage":{{"prompt_tokens":5,"completion_tokens":{tokens}}}}}"#
        ))
    };
    let script = Script::events([chunk(1), chunk(2), openai::finish("stop"), openai::done()]);
    let seen = call_with(|_| {}, script, &chat(true)).await;
    assert_eq!(seen.stream().text(), "xx");
    assert_eq!(seen.row(), ("settle", "ok", 200, Some("provider")));
    assert_eq!((seen.terminal.input_tokens, seen.terminal.output_tokens), (Some(5), Some(2)));
}

#[tokio::test]
async fn a_provider_that_tells_no_usage_is_counted() {
    let script = openai::text_stream_without_usage(["twelve bytes"]);
    let seen = call_with(|_| {}, script, &chat(true)).await;
    assert_eq!(seen.row(), ("settle", "ok", 200, Some("counted")));
    assert_eq!(seen.terminal.output_tokens, Some(3));
    assert!(seen.terminal.input_tokens > Some(0) && seen.terminal.cost_micro_usd > Some(0));
}

/// Any JSON.
pub fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<i32>().prop_map(|number| Value::from(f64::from(number) / 8.0)),
        any::<String>().prop_map(Value::from),
        Just(Value::from("\",\"usage\":null}")),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("usage|choices|[a-z]{0,3}|\\PC{0,4}", inner, 0..4)
                .prop_map(|members| Value::from(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

proptest! {
    #[test]
    fn usage_is_taken_out_of_any_chunk_and_all_else_stays(
        members in prop::collection::btree_map("[a-z]{1,6}|\\PC{0,6}", json_value(), 0..6),
        usage in json_value(),
        at in any::<prop::sample::Index>(),
        spaces in prop::sample::select(vec!["", " ", "\t ", "  "]),
        pretty in any::<bool>(),
    ) {
        const READ: [&str; 7] = ["id", "model", "created", "choices", "usage", "error", "object"];
        let mut members: Vec<(String, Value)> =
            members.into_iter().filter(|(name, _)| !READ.contains(&name.as_str())).collect();
        members.push(("choices".to_owned(), json!([{ "index": 0, "delta": { "content": "x" } }])));
        let wanted: Map<String, Value> = members.iter().cloned().collect();
        members.insert(at.index(members.len() + 1), ("usage".to_owned(), usage));

        let text = |value: &Value| {
            if pretty { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) }.unwrap()
        };
        let members: Vec<String> = members
            .iter()
            .map(|(name, value)| format!("{}{spaces}:{spaces}{}", Value::from(name.as_str()), text(value)))
            .collect();
        let chunk = format!("{{{spaces}{}{spaces}}}", members.join(&format!("{spaces},{spaces}")));
        let event = format!("data: {}\n\n", chunk.replace('\n', "\ndata: "));

        let out = passed(event.as_bytes(), false);
        let events = EventStream::parse(&out);
        let [Item::Event(event)] = events.as_slice() else { panic!("{events:?}") };
        prop_assert_eq!(event.json(), Value::from(wanted));
    }
}
