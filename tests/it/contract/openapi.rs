//! The document itself: up to date, whole, and true of the answers.

use std::collections::{BTreeMap, BTreeSet};

use bytes::BytesMut;
use http::Method;
use serde_json::{Value, json, value::RawValue};
use tollgate::domain::{CancelReason, Denial, Frame, FrameError, Kind, MicroUsd, Usage};

use super::{Operation, committed, generated, operations, resolve, root};
use crate::support::{
    app::{TestApp, chat},
    client::Response,
    event_stream::{EventStream, Item},
    upstream::openai,
};

#[test]
fn the_committed_document_is_what_the_code_makes() {
    let (committed, generated) = (committed(), generated());
    if committed == generated {
        return;
    }
    let mut differences = Vec::new();
    diff("", &committed, &generated, &mut differences);
    panic!(
        "openapi/tollgate.json is out of date: run `make openapi` and commit it. (- committed, \
         + code)\n{}",
        differences.join("\n")
    );
}

fn diff(at: &str, old: &Value, new: &Value, differences: &mut Vec<String>) {
    if old == new || differences.len() > 20 {
        return;
    }
    if let (Value::Object(old), Value::Object(new)) = (old, new) {
        for key in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
            let (old, new) = (old.get(key), new.get(key));
            let at = format!("{at}/{key}");
            diff(&at, old.unwrap_or(&Value::Null), new.unwrap_or(&Value::Null), differences);
        }
    } else {
        let cut = |value: &Value| value.to_string().chars().take(120).collect::<String>();
        differences.push(format!("{at}\n  - {}\n  + {}", cut(old), cut(new)));
    }
}

#[test]
fn the_document_is_openapi_3_1_and_every_reference_in_it_leads_somewhere() {
    let document = committed();
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    let mut references = BTreeSet::new();
    collect_references(&document, &mut references);
    assert!(!references.is_empty());
    for reference in references {
        resolve(&document, &reference);
    }
}

fn collect_references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            found.extend(members.get("$ref").and_then(Value::as_str).map(str::to_owned));
            members.values().for_each(|member| collect_references(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_references(item, found)),
        _ => {}
    }
}

#[test]
fn an_operations_id_is_its_handlers_name_and_unique() {
    let mut handlers = String::new();
    read_sources(&root().join("src/http"), &mut handlers);
    let document = committed();
    let mut seen = BTreeSet::new();
    for Operation { id, .. } in operations(&document) {
        assert!(handlers.contains(&format!("pub async fn {id}(")), "no handler is called {id}");
        assert!(seen.insert(id.clone()), "two operations are called {id}");
    }
    assert!(seen.len() >= 6, "{seen:?}");
}

fn read_sources(directory: &std::path::Path, out: &mut String) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_sources(&path, out);
        } else {
            out.push_str(&std::fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn every_operation_is_told_of_in_full() {
    let document = committed();
    for operation in operations(&document) {
        let Operation { id, spec, .. } = &operation;
        assert!(spec["summary"].as_str().is_some_and(|text| text.len() > 10), "{id}: no summary");
        assert!(spec["tags"].as_array().is_some_and(|tags| tags.len() == 1), "{id}: one tag");
        assert_eq!(spec["security"], json!([{ "token": [] }]), "{id}: takes no token");
        operation.example_path();
        operation.example_body(&document);
        for parameter in operation.parameters() {
            assert!(parameter["description"].is_string(), "{id}: {parameter}");
        }
        let responses = spec["responses"].as_object().unwrap();
        for status in ["401", "429", "500", "503"] {
            assert!(responses.contains_key(status), "{id} does not tell of {status}");
        }
        for (status, response) in responses {
            let response = response_of(&document, response);
            assert!(response["description"].is_string(), "{id} {status}: no description");
            assert!(response["headers"]["x-request-id"].is_object(), "{id} {status}: {response}");
        }
    }
    let token = &document["components"]["securitySchemes"]["token"];
    assert_eq!((&token["type"], &token["scheme"]), (&json!("http"), &json!("bearer")));
}

fn response_of<'a>(document: &'a Value, response: &'a Value) -> &'a Value {
    response["$ref"].as_str().map_or(response, |reference| resolve(document, reference))
}

#[test]
fn every_stable_code_is_listed_once_with_its_status_and_shown_in_an_example() {
    let document = committed();
    let description = document["info"]["description"].as_str().unwrap();
    let listed = document["components"]["schemas"]["ErrorCode"]["enum"].as_array().unwrap();
    let codes: Vec<&str> = Kind::ALL.iter().map(|kind| kind.code()).collect();
    assert_eq!(listed, &codes);
    assert_eq!(codes.iter().collect::<BTreeSet<_>>().len(), codes.len(), "a code came twice");
    for kind in Kind::ALL {
        let row = format!("| `{}` | {} |", kind.code(), kind.status());
        assert_eq!(description.matches(&row).count(), 1, "{row}");
        // Those two are no answers of a documented route.
        if matches!(kind, Kind::Canceled | Kind::MethodNotAllowed) {
            continue;
        }
        let responses = document["components"]["responses"].as_object().unwrap().values();
        let pointer = format!("/content/application~1json/examples/{}/value/error", kind.code());
        let examples: Vec<&Value> = responses.filter_map(|one| one.pointer(&pointer)).collect();
        assert_eq!(examples.len(), 1, "{} is shown in one response", kind.code());
        assert_eq!(examples[0]["code"], kind.code());
    }
}

/// One frame of each event, with every member that it can have.
fn frames(arguments: &RawValue, error: &FrameError) -> Vec<(String, Value, &'static str)> {
    let usage =
        Usage { input_tokens: 3, output_tokens: 2, cached_input_tokens: 1, reasoning_tokens: 1 };
    let (delta, model, choice) = ("x", "m", 1);
    let frames = [
        (Frame::Token { delta, model, choice }, "DeltaFrame"),
        (Frame::Reasoning { delta, model, choice }, "DeltaFrame"),
        (Frame::Refusal { delta, choice }, "DeltaFrame"),
        (Frame::ToolCall { id: "c", name: "n", arguments, choice }, "ToolCallFrame"),
        (Frame::Usage { usage, cost: Some(MicroUsd(5)) }, "UsageFrame"),
        (Frame::Done { finish_reason: "stop" }, "DoneFrame"),
        (Frame::Canceled { reason: CancelReason::Requested }, "CanceledFrame"),
        (Frame::Error(error), "ErrorFrame"),
    ];
    let written = frames.map(|(frame, schema)| {
        let mut out = BytesMut::new();
        frame.encode(1, &mut out).unwrap();
        let Some(Item::Event(event)) = EventStream::parse(&out).pop() else { panic!("{out:?}") };
        (event.event.clone(), event.json(), schema)
    });
    written.into()
}

#[test]
fn the_frames_that_are_written_are_the_frames_that_are_described() {
    let document = committed();
    let arguments = RawValue::from_string("{}".to_owned()).unwrap();
    let error = FrameError::from(&Denial::new(Kind::UpstreamLost, "Lost."));
    let schemas = &document["components"]["schemas"];
    let mut unwritten: BTreeSet<(&str, String)> = BTreeSet::new();
    for (_, _, name) in frames(&arguments, &error) {
        let members = schemas[name]["properties"].as_object().unwrap().keys();
        unwritten.extend(members.map(|member| (name, member.clone())));
    }
    for (event, data, name) in frames(&arguments, &error) {
        for member in data.as_object().unwrap().keys() {
            assert!(schemas[name]["properties"].get(member).is_some(), "{event}: {member}");
            unwritten.remove(&(name, member.clone()));
        }
        for member in schemas[name]["required"].as_array().unwrap() {
            assert!(data.get(member.as_str().unwrap()).is_some(), "{event}: no {member}");
        }
        let events = schemas["EventName"]["enum"].as_array().unwrap();
        assert!(events.contains(&json!(event)), "{event}");
        let one_of = schemas["Frame"]["oneOf"].as_array().unwrap();
        let reference = json!({ "$ref": format!("#/components/schemas/{name}") });
        assert!(one_of.contains(&reference), "{name}");
        let told = &document["paths"]["/v1/streams"]["post"]["responses"]["200"]["description"];
        let told = told.as_str().unwrap();
        assert!(told.contains(&format!("`{event}`")) && told.contains(&format!("`{name}`")));
    }
    assert!(unwritten.is_empty(), "described, and never written: {unwritten:?}");
}

/// Fails unless the document tells of this answer: its status, its type, and each header of ours.
fn assert_described(document: &Value, operation: &str, response: &Response) {
    let operations = operations(document);
    let operation = operations.iter().find(|one| one.id == operation).expect("the operation");
    let status = response.status.as_u16();
    let responses = operation.spec["responses"].as_object().unwrap();
    let range = format!("{}XX", status / 100);
    let described = responses.get(&status.to_string()).or_else(|| responses.get(&range));
    let described =
        described.unwrap_or_else(|| panic!("{}: {status} is not told of", operation.id));
    let described = response_of(document, described);
    let told = |name: &str| described["headers"].get(name).is_some();
    for name in response.headers.keys().map(http::HeaderName::as_str) {
        let ours = name.starts_with("x-") && name != "x-accel-buffering"
            || matches!(name, "traceparent" | "location" | "www-authenticate")
            || name.starts_with("retry-after");
        assert!(!ours || told(name), "{} {status}: `{name}` is not told of", operation.id);
    }
    if let Some(content_type) = response.header("content-type") {
        let essence = content_type.split(';').next().unwrap();
        let content = described["content"].as_object().unwrap();
        let told = content.contains_key(essence) || content.contains_key("*/*");
        assert!(told, "{} {status}: {essence} is not told of", operation.id);
    }
}

#[tokio::test]
async fn the_examples_work_as_they_stand_and_their_answers_are_as_described() {
    let document = committed();
    let app = TestApp::with(|config| config.models[0].name = "demo".to_owned()).await;
    let expected = BTreeMap::from([
        ("create_chat_completion", 200),
        ("list_models", 200),
        ("get_model", 200),
        ("create_stream", 200),
        // The example's id is nobody's.
        ("resume_stream", 404),
        ("cancel_stream", 404),
        // Nor is the run's.
        ("get_run", 404),
    ]);
    let caller = app.caller("alice", "pro", &["model:reasoning", "audit:read"]);
    for operation in operations(&document) {
        let response = operation.example_call(&document, &caller).send().await;
        let expected = expected.get(&*operation.id).copied().unwrap_or(200);
        assert_eq!(response.status, expected, "{}: {response:?}", operation.id);
        assert_described(&document, &operation.id, &response);
        response.bytes().await;
    }
    app.shutdown().await;
}

#[tokio::test]
async fn every_header_that_an_answer_bears_is_described() {
    let document = committed();
    let app = TestApp::start().await;
    let post = |client: crate::support::client::Client, path: &str| {
        client.post(path).json(&chat(true)).send()
    };
    let tight = app.caller("bob", "tight", &["model:reasoning"]);
    for expected in [200, 200, 429] {
        let response = post(tight.clone(), "/v1/chat/completions").await;
        assert_eq!(response.status, expected);
        assert!(response.header("x-ratelimit-limit-requests").is_some(), "{response:?}");
        assert_eq!(response.header("retry-after").is_some(), expected == 429, "{response:?}");
        assert_described(&document, "create_chat_completion", &response);
        response.bytes().await;
    }
    let response = post(app.alice(), "/v1/streams").await;
    assert_described(&document, "create_stream", &response);
    let location = response.header("location").expect("where it is").to_owned();
    response.bytes().await;
    let response = app.alice().get(&location).send().await;
    assert_eq!(response.status, 200);
    assert_described(&document, "resume_stream", &response);
    let frames = response.events().rest().await;
    let last = frames.last().expect("frames").last_event_id.clone();
    let response = app.alice().get(&location).header("last-event-id", &last).send().await;
    assert_eq!(response.status, 204);
    assert_described(&document, "resume_stream", &response);
    let response = app.alice().delete(&location).send().await;
    assert_eq!(response.status, 202);
    assert_described(&document, "cancel_stream", &response);
    app.shutdown().await;
}

#[tokio::test]
async fn errors_of_every_route_have_the_described_body() {
    let document = committed();
    let app = TestApp::start().await;
    let alice = app.alice();
    let bad = |path: &str| alice.post(path).header("content-type", "application/json").body("{");
    let calls = [
        ("create_chat_completion", bad("/v1/chat/completions"), "invalid_json"),
        ("create_stream", bad("/v1/streams"), "invalid_json"),
        ("create_stream", alice.post("/v1/streams").body("{}"), "unsupported_media_type"),
        ("get_model", alice.get("/v1/models/none"), "model_not_found"),
        ("get_model", alice.get("/v1/models/other"), "capability_denied"),
        ("get_model", alice.get("/v1/models/%ff"), "invalid_request"),
        ("resume_stream", alice.get("/v1/streams/%ff"), "invalid_request"),
        ("cancel_stream", alice.delete("/v1/streams/%ff"), "invalid_request"),
        ("cancel_stream", alice.delete("/v1/streams/none"), "stream_gone"),
        ("list_models", app.stranger().get("/v1/models"), "missing_token"),
    ];
    for (operation, call, code) in calls {
        let response = call.send().await;
        assert_described(&document, operation, &response);
        assert_eq!(response.header("x-tollgate-source"), Some("gateway"), "{operation} {code}");
        assert_eq!(response.header("content-type"), Some("application/json"));
        let status = response.status.as_u16();
        let body = response.json().await;
        let error = body["error"].as_object().unwrap();
        let keys: Vec<&str> =
            error.keys().map(String::as_str).collect::<BTreeSet<_>>().into_iter().collect();
        assert_eq!(keys, ["code", "message", "param", "type"]);
        assert_eq!(error["code"], code, "{operation}");
        let kind = Kind::ALL.iter().find(|kind| kind.code() == code).unwrap();
        assert_eq!(kind.status(), status);
    }
    app.shutdown().await;
}

#[tokio::test]
async fn a_providers_own_refusal_is_described_whatever_its_status() {
    let document = committed();
    let app = TestApp::start().await;
    for (status, body) in [
        (418, openai::error(418, "teapot", None, "Short and stout.")),
        (503, openai::unavailable_html()),
    ] {
        app.upstream.enqueue(body);
        let response = app.alice().post("/v1/chat/completions").json(&chat(false)).send().await;
        assert_eq!(response.status, status);
        assert_eq!(response.header("x-tollgate-source"), Some("upstream"));
        let described = &document["paths"]["/v1/chat/completions"]["post"]["responses"];
        assert!(described.get(format!("{}XX", status / 100)).is_some());
        response.bytes().await;
    }
    app.shutdown().await;
}

#[tokio::test]
async fn the_document_that_is_served_is_the_one_that_is_committed() {
    let app = TestApp::start().await;
    let response = app.stranger().request(Method::GET, "/openapi.json").send().await;
    assert_eq!(response.status, 200);
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert!(response.json().await == committed(), "another one is served");
    app.shutdown().await;
}
