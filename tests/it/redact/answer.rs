//! Secrets in a stream's chunks, cut in every way, in every field.

use bytes::Bytes;
use serde_json::json;
use tollgate::pipeline::AnswerError;

use super::chunk::{Out, SECRETS, redacted, run, secret, try_run};
use crate::support::upstream::openai;

/// Makes a chunk with a piece of a field.
type Make = fn(&str) -> Bytes;

fn delta(delta: &serde_json::Value) -> Bytes {
    let chunk = json!({
        "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [{ "index": 0, "delta": delta, "finish_reason": null }], "usage": null,
    });
    openai::event(&chunk.to_string())
}

const FIELDS: [(&str, Make); 9] = [
    (".content", openai::text),
    (".reasoning", openai::reasoning),
    (".reasoning_content", openai::reasoning_content),
    (".refusal", openai::refusal),
    (".tool_calls.0.function.arguments", |piece| openai::tool_arguments(0, piece)),
    (".tool_calls.0.function.name", |piece| {
        delta(&json!({ "tool_calls": [{ "index": 0, "function": { "name": piece } }] }))
    }),
    (".function_call.arguments", |piece| {
        delta(&json!({ "function_call": { "arguments": piece } }))
    }),
    (".tool_calls.0.custom.input", |piece| {
        delta(&json!({ "tool_calls": [{ "index": 0, "custom": { "input": piece } }] }))
    }),
    (".reasoning_details.0.text", |piece| {
        delta(&json!({ "reasoning_details": [{ "type": "reasoning.text", "text": piece }] }))
    }),
];

fn sent<'a>(make: Make, pieces: impl IntoIterator<Item = &'a str>) -> Vec<u8> {
    let mut bytes = openai::role().to_vec();
    pieces.into_iter().for_each(|piece| bytes.extend(make(piece)));
    bytes.extend(openai::finish("stop"));
    bytes.extend(openai::usage());
    bytes
}

/// In no text, and in nothing else that was written.
fn assert_clean(out: &Out, secret: &str) {
    let hidden = secret.strip_prefix("Bearer ").unwrap_or(secret);
    assert!(!out.raw().contains(hidden), "{}", out.raw());
    assert!(out.texts().values().all(|text| !text.contains(hidden)), "{out:?}");
}

fn assert_redacted(way: &str, out: &Out, text: &str, secret: &str) {
    assert_eq!(out.text(0, way), redacted(text), "{way}");
    assert_clean(out, secret);
    assert_eq!(out.counts.values().sum::<u32>(), 1);
    let finishes = out.finishes();
    assert_eq!(finishes.len(), 1);
    assert!(out.last_of(0, way) <= Some(finishes[0].0), "nothing comes after the end: {out:?}");
    assert_eq!(out.chunks.last().unwrap()["usage"]["prompt_tokens"], 9);
}

#[test]
fn a_secret_is_found_in_every_field_wherever_it_is_cut_once() {
    for spelled in SECRETS {
        let secret = secret(spelled);
        let text = format!("see \"{secret}\" é");
        assert_ne!(redacted(&text), text);
        for (way, make) in FIELDS {
            for (cut, _) in text.char_indices() {
                let (left, right) = text.split_at(cut);
                assert_redacted(way, &run(&sent(make, [left, right])), &text, &secret);
            }
        }
    }
}

#[test]
fn a_secret_is_found_wherever_it_is_cut_twice() {
    let secret = secret(SECRETS[0]);
    for text in [secret.clone(), format!("a={secret}."), format!("\n{secret}\u{200b} ")] {
        let cuts: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        for (way, make) in FIELDS {
            for (i, one) in cuts.iter().enumerate() {
                for two in &cuts[i..] {
                    let pieces = [&text[..*one], &text[*one..*two], &text[*two..]];
                    assert_redacted(way, &run(&sent(make, pieces)), &text, &secret);
                }
            }
        }
    }
}

#[test]
fn a_secret_is_found_character_by_character() {
    for spelled in SECRETS {
        let secret = secret(spelled);
        let text = format!("{secret} and a {secret}");
        for (way, make) in FIELDS {
            let pieces = text.char_indices().map(|(at, c)| &text[at..at + c.len_utf8()]);
            let out = run(&sent(make, pieces));
            assert_eq!(out.text(0, way), redacted(&text));
            assert_clean(&out, &secret);
            assert_eq!(out.counts.values().sum::<u32>(), 2);
        }
    }
}

#[test]
fn choices_and_fields_that_come_by_turns_are_kept_apart() {
    let secret = secret(SECRETS[0]);
    let (left, right) = secret.split_at(9);
    let mut bytes = Vec::new();
    for (zero, one) in [("a ", "b "), (left, left), (right, "x"), (" c", right)] {
        bytes.extend(openai::text_of(0, zero));
        bytes.extend(openai::text_of(1, one));
        bytes.extend(openai::reasoning(if zero == left { "ha" } else { "-" }));
    }
    bytes.extend(openai::finish_of(1, "length"));
    bytes.extend(openai::finish_of(0, "stop"));
    let out = run(&bytes);
    assert_eq!(out.text(0, ".content"), redacted(&format!("a {secret} c")));
    assert_eq!(out.text(1, ".content"), format!("b {left}x{right}"), "no secret of its own");
    assert_eq!(out.text(0, ".reasoning"), "-ha--");
    let ends: Vec<_> =
        out.finishes().into_iter().map(|(_, index, reason)| (index, reason)).collect();
    assert_eq!(ends, [(1, "length".to_owned()), (0, "stop".to_owned())]);
}

#[test]
fn what_turns_out_to_be_nothing_comes_in_full_and_in_order() {
    for text in ["an AKIA", "AKIA, sk-short; ghp_ A", "Bearer of news", "-----BEGIN a day-----"] {
        for (way, make) in FIELDS {
            let pieces = text.char_indices().map(|(at, c)| &text[at..at + c.len_utf8()]);
            let out = run(&sent(make, pieces));
            assert_eq!(out.text(0, way), text, "{way}");
            assert!(out.counts.is_empty());
            assert!(out.last_of(0, way).unwrap() < out.finishes()[0].0, "before the end");
        }
    }
}

#[test]
fn what_is_held_leaves_in_a_chunk_of_the_same_shape() {
    let bytes = [openai::text("see AKIA"), openai::finish("stop")].concat();
    let out = run(&bytes);
    let chunk = |content: &str, finish: Option<&str>| {
        let delta = if finish.is_some() { json!({}) } else { json!({ "content": content }) };
        json!({
            "id": openai::ID, "object": "chat.completion.chunk", "created": 1_767_225_600,
            "model": openai::MODEL, "service_tier": "default", "system_fingerprint": "fp_mock",
            "choices": [{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish }],
            "usage": null, "obfuscation": "Xq3",
        })
    };
    let expected = [chunk("see ", None), chunk("AKIA", None), chunk("", Some("stop"))];
    assert_eq!(out.chunks, expected);

    let call = [openai::tool_call(3, "call_1", "look"), openai::tool_arguments(3, "{\"a\":\"AKIA")];
    let out = run(&call.concat());
    let held = &out.chunks.last().unwrap()["choices"][0]["delta"];
    assert_eq!(
        *held,
        json!({ "tool_calls": [{ "index": 3, "function": { "arguments": "AKIA" } }] })
    );
}

#[test]
fn the_end_of_a_text_in_the_chunk_that_ends_it_needs_no_other() {
    let secret = secret(SECRETS[0]);
    let (left, right) = secret.split_at(9);
    let end = |content: &str| {
        openai::event(&format!(
            r#"{{"choices":[{{"index":0,"delta":{{"content":"{content}"}},"finish_reason":"stop"}}]}}"#
        ))
    };
    let out = run(&[openai::text(left), end(right)].concat());
    assert_eq!(out.text(0, ".content"), redacted(&secret));
    assert_eq!(out.chunks.len(), 2);
    let out = run(&[openai::text("a A"), end("KIA")].concat());
    assert_eq!((out.text(0, ".content"), out.chunks.len()), ("a AKIA".to_owned(), 2));
    let bytes = [openai::text("a "), end("AKIA")].concat();
    assert_eq!(run(&bytes).raw(), bytes_of(&bytes), "untouched");
}

fn bytes_of(events: &[u8]) -> String {
    let events = super::chunk::events(events);
    events.iter().map(|event| std::str::from_utf8(&event.data).unwrap()).collect()
}

#[test]
fn a_tool_call_comes_after_the_text_before_it() {
    let secret = secret(SECRETS[0]);
    for (text, counted) in [("see AKIA", 0), (&*format!("see {secret}"), 1)] {
        let mut bytes = openai::text(text).to_vec();
        bytes.extend(openai::tool_call(0, "call_1", "npm"));
        bytes.extend(openai::tool_arguments(0, "{}"));
        bytes.extend(openai::finish("tool_calls"));
        let out = run(&bytes);
        assert_eq!(out.text(0, ".content"), redacted(text));
        assert_eq!(out.counts.values().sum::<u32>(), counted);
        let call = out.chunks.iter().position(|chunk| {
            chunk["choices"][0]["delta"]["tool_calls"][0]["function"]["name"] == "npm"
        });
        assert!(out.last_of(0, ".content") < call, "{out:?}");
        // Agents take the name from the first chunk of a call.
        assert_eq!(out.text(0, ".tool_calls.0.id"), "call_1");
    }
}

#[test]
fn a_text_that_goes_on_after_its_end_gives_no_whole_secret() {
    let secret = secret(SECRETS[0]);
    for cut in 1..secret.len() {
        let (left, right) = secret.split_at(cut);
        let between = [openai::tool_call(0, "c", "f"), openai::finish("stop")];
        for between in between {
            let bytes = [openai::text(left), between, openai::text(right)].concat();
            let out = run(&bytes);
            let text = out.text(0, ".content");
            assert!(text.starts_with(left) && text.ends_with(']'), "{text}");
            assert!(text.contains("[REDACTED:aws-access-key-id:"), "{text}");
            assert_clean(&out, &secret);
            let other = [
                openai::text(left),
                openai::finish("stop"),
                openai::text(" so"),
                openai::text("me"),
            ];
            assert_eq!(run(&other.concat()).text(0, ".content"), format!("{left} some"));
        }
    }
}

#[test]
fn a_stream_that_breaks_off_gives_what_it_held() {
    let secret = secret(SECRETS[0]);
    for cut in 0..=secret.len() {
        let text = format!("see {}", &secret[..cut]);
        let out = run(&openai::text(&text));
        assert_eq!(out.text(0, ".content"), redacted(&text));
    }
}

fn letter(number: u32) -> char {
    char::from_u32(u32::from(b'A') + number % 26).unwrap()
}

#[test]
fn a_private_key_over_many_chunks_is_gone_to_its_end() {
    let body: Vec<String> =
        (0..24_u32).map(|line| (0..64).map(|at| letter(line * 7 + at * 11)).collect()).collect();
    for label in ["RSA ", ""] {
        let key = format!(
            "-----BEGIN {label}PRIVATE KEY-----\n{}\n-----END {label}PRIVATE KEY-----",
            body.join("\n")
        );
        for size in [1, 3, 17, 200] {
            let text = format!("Here:\n{key}\nThat was it.");
            let pieces =
                text.as_bytes().chunks(size).map(|piece| std::str::from_utf8(piece).unwrap());
            let out = run(&sent(openai::text, pieces));
            assert_eq!(out.text(0, ".content"), redacted(&text));
            assert!(out.text(0, ".content").ends_with("]\nThat was it."));
            for line in &body {
                assert!(!out.raw().contains(&line[..8]), "{line}");
            }
        }
    }
}

#[test]
fn a_chunk_that_has_nothing_is_not_touched_and_of_another_only_the_string_is() {
    let clean = [
        openai::role(),
        openai::text("Hello\\ \"A\", "),
        openai::text_with_logprobs("42"),
        openai::unknown_members(),
        openai::usage(),
    ]
    .concat();
    assert_eq!(run(&clean).raw(), bytes_of(&clean));

    let secret = secret(SECRETS[0]);
    let chunk = |content: &str, logprobs: &str| {
        format!(
            r#"{{ "x":1.10 ,"choices":[ {{"index":0,"delta":{{"x_audio":{{"a":1.10}}, "content": "{content}" }},"logprobs":{logprobs},"x_score":0.30000000000000004}}],"usage" :null,"x_seed":12345678901234567890123, "y":"\u00e9\/" }}"#
        )
    };
    let logprobs = r#"{"content":[{"token":"AKIA","bytes":[65]}]}"#;
    let out = run(&openai::event(&chunk(&format!("a\\n{secret}\\n end"), logprobs)));
    let wanted = chunk(&format!("a\\n{}\\n end", redacted(&secret)), "null");
    assert_eq!(out.raw(), wanted);
    // What is held is part of a secret for now: its logprobs would show it too.
    let out = run(&openai::event(&chunk("AKIA", logprobs)));
    assert_eq!(out.data[0], chunk("", "null"));
}

#[test]
fn other_strings_and_names_of_a_chunk_carry_no_secret() {
    let secret = secret(SECRETS[0]);
    let escaped = secret.replace('K', "\\u004b");
    for spelled in [&secret, &escaped] {
        for chunk in [
            r#"{"id":"%","choices":[]}"#,
            r#"{"choices":[{"index":0,"delta":{"role":"%"}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"annotations":[{"url":"https://h/?k=%"}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"audio":{"transcript":"so: % end"}}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"%":1}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"%"}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":["% end"],"tool_calls":{"a":"% end"}}}]}"#,
            r#"{"choices":[{"index":0,"delta":{},"finish_reason":"%"}]}"#,
            r#"{"choices":[{"index":0,"delta":{},"logprobs":{"content":[{"token":"%"}]}}]}"#,
            r#"{"choices":[{"index":0,"message":{"content":"%"}}]}"#,
            r#"{"error":{"message":"bad key %","code":"%"}}"#,
            r#"{"x":{"%":["%"]}}"#,
        ] {
            let out = run(&openai::event(&chunk.replace('%', spelled)));
            let wanted: serde_json::Value =
                serde_json::from_str(&chunk.replace('%', &redacted(&secret))).unwrap();
            let logprobs = out.chunks[0]["choices"][0].get("logprobs");
            assert!(out.chunks[0] == wanted || logprobs == Some(&json!(null)), "{out:?}");
            assert_eq!(out.chunks.len(), 1, "{out:?}");
            assert_clean(&out, &secret);
            assert!(!out.raw().contains("\\u004bIA"), "{}", out.raw());
            assert!(!out.counts.is_empty());
        }
    }
}

/// Chunks that are alike are gone through in short.
#[test]
fn chunks_that_differ_in_more_than_their_text_are_looked_at_whole() {
    let secret = secret(SECRETS[0]);
    let (left, right) = secret.split_at(9);
    let chunk = |content: &str, reason: &str, filler: &str, name: &str| {
        openai::event(&format!(
            r#"{{"id":"c","choices":[{{"index":0,"delta":{{"content":"{content}"}},"finish_reason":{reason}}}],"filler":"{filler}","{name}":null}}"#
        ))
    };
    let alike = [
        chunk("42 ", "null", "x1", "usage"),
        chunk(&format!("\\n{left}"), "null", "long", "usage"),
    ];
    for last in [
        chunk(right, "null", "", "usage"),
        chunk(right, "\"stop\"", "x1", "usage"),
        chunk(right, "\"\"", "x1", "usage"),
        chunk(right, "null", &secret, "usage"),
        chunk(right, "null", "x1", &secret),
        chunk(right, "null", "\\u0041", "more"),
    ] {
        let out =
            run(&[&alike[0], &alike[1], &last, &openai::text(" end")].map(AsRef::as_ref).concat());
        assert_clean(&out, &secret);
        assert_eq!(out.text(0, ".content"), redacted(&format!("42 \n{secret} end")));
        assert_eq!(out.chunks[0]["filler"], "x1");
        assert_eq!(out.chunks[1]["filler"], "long");
    }
}

#[test]
fn calls_that_are_all_numbered_0_are_told_apart_by_their_ids() {
    let secret = secret(SECRETS[0]);
    let call = |id: &str, piece: &str| {
        let function = json!({ "name": "f", "arguments": piece });
        delta(&json!({ "tool_calls": [{ "index": 0, "id": id, "function": function }] }))
    };
    let text = format!("{{\"a\":\"{secret}\"}}");
    let (left, right) = text.split_at(12);
    let bytes =
        [call("one", "{\"x\":\"AKIA"), call("two", left), call("two", right), openai::finish("x")];
    let out = run(&bytes.concat());
    let arguments = out.text(0, ".tool_calls.0.function.arguments");
    assert_eq!(arguments, format!("{{\"x\":\"AKIA{}", redacted(&text)));
}

#[test]
fn more_texts_than_are_kept_account_of_fail_the_answer() {
    let bytes: Vec<u8> = (0..2000).flat_map(|index| openai::text_of(index, "x")).collect();
    assert_eq!(try_run(&bytes).unwrap_err(), AnswerError::TooManyTexts);
    let fewer: Vec<u8> = (0..1000).flat_map(|index| openai::text_of(index, "x")).collect();
    assert!(try_run(&fewer).is_ok());
}
