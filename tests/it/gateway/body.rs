//! A chat request's body: what is read of it, and what is sent on.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use tollgate::domain::{BodyError, ModelCall};

use super::usage::json_value;

fn parse(body: impl Into<Bytes>) -> Result<ModelCall, BodyError> {
    ModelCall::parse(body.into())
}

fn tools(of: &Value) -> Vec<String> {
    let body = json!({ "model": "m", "messages": [], "tools": of });
    parse(body.to_string()).unwrap().tools
}

#[test]
fn every_name_that_a_tool_bears_is_seen() {
    let function = json!({ "type": "function", "function": { "name": "one", "strict": true } });
    let custom = json!({ "type": "custom", "custom": { "name": "two", "format": {} } });
    let flat = json!({ "type": "function", "name": "three" });
    let nameless = json!({ "type": "web_search" });
    assert_eq!(
        tools(&json!([function, custom, flat, nameless])),
        ["one", "two", "three", "web_search"]
    );
    // One that bears several is all of them: a provider may go by any.
    let all = json!({ "name": "a", "function": { "name": "b" }, "custom": { "name": "c" } });
    assert_eq!(tools(&json!([all])), ["a", "b", "c"]);
    let escaped = r#"{"model":"m","messages":[],"t\u006fols":[{"f\u0075nction":{"n\u0061me":"\u0066leet"}}],"functions":[{"name":"old"}]}"#;
    assert_eq!(parse(escaped).unwrap().tools, ["fleet", "old"]);
}

#[test]
fn a_tool_whose_name_could_be_read_in_two_ways_is_refused() {
    for tools in [
        r#"[{"function":{"name":"a","name":"b"}}]"#,
        r#"[{"function":{"name":"a"},"function":{"name":"b"}}]"#,
        r#"[{"function":{"name":"a","n\u0061me":"b"}}]"#,
        r#"[{"name":7}]"#,
        r#"{"function":{"name":"a"}}"#,
    ] {
        let body = format!(r#"{{"model":"m","messages":[],"tools":{tools}}}"#);
        let error = parse(body).expect_err(tools);
        assert_eq!(error.param(), Some("tools"), "{tools}");
    }
}

#[test]
fn members_that_appear_twice_are_refused_however_they_are_spelled() {
    for (body, twice) in [
        (r#"{"model":"a","messages":[],"model":"a"}"#, "model"),
        (r#"{"model":"a","messages":[],"m\u006fdel":"b"}"#, "model"),
        (r#"{"model":"a","messages":[],"stream":true,"stream":false}"#, "stream"),
        (r#"{"model":"a","messages":[],"x":1,"x":1}"#, "x"),
    ] {
        assert!(matches!(parse(body), Err(BodyError::Duplicate(name)) if name == twice), "{body}");
    }
    let options = r#"{"model":"a","messages":[],"stream_options":{"include_usage":true,"include_usage":false}}"#;
    assert_eq!(parse(options).unwrap_err().param(), Some("stream_options"));
}

#[test]
fn what_is_no_chat_request_is_refused_with_the_field_at_fault() {
    for (body, param) in [
        ("", None),
        ("[]", None),
        ("null", None),
        (r#"{"model":"m","messages":[]} x"#, None),
        (r#"{"model":"m","messages":[],}"#, None),
        ("{}", Some("model")),
        (r#"{"model":7,"messages":[]}"#, Some("model")),
        (r#"{"model":"","messages":[]}"#, Some("model")),
        (r#"{"model":"m"}"#, Some("messages")),
        (r#"{"model":"m","messages":"hi"}"#, Some("messages")),
        (r#"{"model":"m","messages":[],"stream":"true"}"#, Some("stream")),
        (r#"{"model":"m","messages":[],"stream_options":7}"#, Some("stream_options")),
        (r#"{"model":"m","messages":[],"stream_options":[true]}"#, Some("stream_options")),
        (r#"{"model":"m","messages":[],"max_tokens":-1}"#, Some("max_tokens")),
    ] {
        assert_eq!(parse(body).expect_err(body).param(), param, "{body}");
    }
    assert!(parse(&b"{\"model\":\"\xFF\",\"messages\":[]}"[..]).is_err());
}

/// A body, its members in any order.
fn body() -> impl Strategy<Value = Vec<(String, Value)>> {
    let others = prop::collection::btree_map("x[a-z]{0,4}|\\PC{2,5}", json_value(), 0..5);
    let stream =
        prop::option::of(prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from)]);
    let include = prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from)];
    let members = (prop::option::of(include), prop::option::of(json_value()));
    let options = prop::option::of(prop_oneof![
        Just(Value::Null),
        members.prop_map(|(include, other)| {
            let include = include.map(|value| ("include_usage".to_owned(), value));
            let other = other.map(|value| ("other".to_owned(), value));
            Value::from(include.into_iter().chain(other).collect::<Map<_, _>>())
        }),
    ]);
    (others, "\\PC{1,12}", stream, options).prop_flat_map(|(others, model, stream, options)| {
        const READ: [&str; 8] = [
            "model",
            "messages",
            "stream",
            "stream_options",
            "tools",
            "functions",
            "max_tokens",
            "max_completion_tokens",
        ];
        let others = others.into_iter().filter(|(name, _)| !READ.contains(&name.as_str()));
        let known = [
            ("model".to_owned(), Some(Value::from(model))),
            ("messages".to_owned(), Some(json!([{ "role": "user", "content": "hi" }]))),
            ("stream".to_owned(), stream),
            ("stream_options".to_owned(), options),
        ];
        let known = known.into_iter().filter_map(|(name, value)| Some((name, value?)));
        Just(others.chain(known).collect::<Vec<_>>()).prop_shuffle()
    })
}

fn written(members: &[(String, Value)], spaces: &str) -> String {
    let members: Vec<String> = members
        .iter()
        .map(|(name, value)| format!("{}{spaces}:{spaces}{value}", Value::from(name.as_str())))
        .collect();
    format!("{spaces}{{{spaces}{}{spaces}}}{spaces}", members.join(&format!("{spaces},{spaces}")))
}

proptest! {
    #[test]
    fn only_what_must_differ_upstream_does(
        members in body(),
        model in "\\PC{1,12}",
        stream in any::<bool>(),
        spaces in prop::sample::select(vec!["", " ", "\n\t", "\r\n"]),
    ) {
        let text = written(&members, spaces);
        let call = parse(text.clone()).unwrap();
        let original: Map<String, Value> = members.into_iter().collect();
        prop_assert_eq!(&original["model"], &Value::from(call.model.as_str()));
        prop_assert_eq!(original.get("stream") == Some(&Value::from(true)), call.stream);
        prop_assert_eq!(call.body(), text.as_bytes());

        let sent = call.to_upstream(&model, stream);
        let mut wanted = original;
        wanted.insert("model".to_owned(), Value::from(model.as_str()));
        if stream != call.stream {
            wanted.insert("stream".to_owned(), Value::from(stream));
        }
        if stream {
            let options = wanted.entry("stream_options").or_insert(Value::Null);
            if options.is_null() {
                *options = json!({});
            }
            options["include_usage"] = Value::from(true);
        }
        let sent_value: Value = serde_json::from_slice(&sent).unwrap();
        prop_assert_eq!(sent_value, Value::from(wanted));
        let again = parse(sent.clone()).unwrap();
        prop_assert_eq!(again.to_upstream(&model, stream), sent);
    }

    #[test]
    fn a_body_that_needs_no_change_is_not_changed(members in body(), spaces in "[ \n\t]{0,2}") {
        let text = written(&members, &spaces);
        let call = parse(text.clone()).unwrap();
        if !call.stream || call.include_usage {
            prop_assert_eq!(call.to_upstream(&call.model, call.stream), text.as_bytes());
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(bytes);
    }
}

#[test]
fn a_member_that_only_differs_in_case_from_one_that_is_read_is_refused() {
    let with = |member: &str| parse(format!(r#"{{"model":"m","messages":[],{member}}}"#));
    for member in
        [r#""Model":"x""#, r#""TOOLS":[]"#, r#""me\u017fsages":[]"#, r#""strea\u004d":true"#]
    {
        let error = with(member).expect_err(member);
        assert!(matches!(error, BodyError::LookAlike(_)), "{member}: {error}");
    }
    for tool in
        [r#"{"function":{"name":"safe","Name":"fleet_ps"}}"#, r#"{"Function":{"name":"x"}}"#]
    {
        let error = with(&format!(r#""tools":[{tool}]"#)).expect_err(tool);
        assert!(matches!(error, BodyError::LookAlike(_)), "{tool}: {error}");
    }
    assert!(with(r#""stream_options":{"Include_usage":false}"#).is_err());
    assert!(with(r#""Temperature":1,"ModelX":1"#).is_ok());
}

#[test]
fn a_member_that_would_choose_past_the_gateway_is_refused_by_name() {
    for name in ["models", "fallbacks", "api_base", "api_key", "base_url", "preset"] {
        let body = format!(r#"{{"model":"m","messages":[],"{name}":null}}"#);
        let error = parse(body).expect_err(name);
        assert_eq!(error.param(), Some(name));
        assert!(error.to_string().contains("past the gateway"), "{error}");
    }
}

#[test]
fn a_tool_of_tools_of_tools_is_no_matter() {
    let deep =
        format!("{}{}", r#"{"function":"#.repeat(100_000), "{}".to_owned() + &"}".repeat(100_000));
    let body = format!(r#"{{"model":"m","messages":[],"tools":[{deep}]}}"#);
    assert!(parse(body).is_ok());
}
