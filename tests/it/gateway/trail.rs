//! The audit trail as the API tells of it.

use serde_json::{Value, json};

use crate::support::{
    app::{TestApp, chat},
    client::{Client, Response},
};

const READERS: [&str; 1] = ["audit:read"];

/// Two good calls of a run, one that is denied, and one of another caller's.
async fn busy() -> (TestApp, Client) {
    let app = TestApp::start().await;
    for run in ["nightly", "nightly", "other"] {
        let call = app.alice().post("/v1/chat/completions").header("x-run-id", run);
        assert_eq!(call.json(&chat(false)).send().await.status, 200);
    }
    let bob = app.caller("bob", "pro", &[]);
    assert_eq!(bob.post("/v1/chat/completions").json(&chat(false)).send().await.status, 403);
    app.audit_rows_once(7).await;
    let auditor = app.caller("auditor", "pro", &READERS);
    (app, auditor)
}

async fn get(client: &Client, path: &str) -> Value {
    let response = client.get(path).send().await;
    assert_eq!(response.status, 200, "{path}");
    response.json().await
}

fn kinds(list: &Value) -> Vec<&str> {
    list["data"].as_array().unwrap().iter().map(|entry| entry["kind"].as_str().unwrap()).collect()
}

async fn assert_bad(response: Response, param: &str) -> String {
    assert_eq!(response.status, 400, "{param}");
    let body = response.json().await;
    assert_eq!(body["error"]["code"], "invalid_request", "{body}");
    assert_eq!(body["error"]["param"], param, "{body}");
    body["error"]["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn entries_are_filtered_and_come_newest_first_page_by_page() {
    let (app, auditor) = busy().await;
    let all = get(&auditor, "/v1/audit").await;
    assert_eq!(all["object"], "list");
    assert_eq!(all.get("next_cursor"), None);
    assert_eq!(kinds(&all)[0], "denied");
    assert_eq!(kinds(&all).len(), 7);

    for (query, count) in [
        ("subject=alice", 6),
        ("subject=bob", 1),
        ("subject=nobody", 0),
        ("kind=settle&run_id=nightly", 2),
        ("capability=model%3Areasoning&model=m&from=1h", 6),
        ("from=2h&to=1h", 0),
        ("outcome=capability_denied&tier=pro&agent=tester", 1),
        ("tool=arcadedb", 0),
    ] {
        let list = get(&auditor, &format!("/v1/audit?{query}")).await;
        assert_eq!(kinds(&list).len(), count, "{query}");
    }
    let first = &all["data"][1];
    for field in ["call_id", "trace_id"] {
        let path = format!("/v1/audit?{field}={}", first[field].as_str().unwrap());
        assert_eq!(kinds(&get(&auditor, &path).await), ["settle", "intent"], "{field}");
    }

    let (mut paged, mut path) = (Vec::new(), "/v1/audit?limit=3".to_owned());
    loop {
        let list = get(&auditor, &path).await;
        assert!(kinds(&list).len() <= 3);
        paged.extend(list["data"].as_array().unwrap().clone());
        let Some(cursor) = list["next_cursor"].as_str() else { break };
        path = format!("/v1/audit?limit=3&cursor={cursor}");
    }
    assert_eq!(Value::from(paged), all["data"]);
    app.shutdown().await;
}

#[tokio::test]
async fn lines_are_the_same_entries_and_all_of_them() {
    let (app, auditor) = busy().await;
    let all = get(&auditor, "/v1/audit").await;
    for (accept, query, count) in [
        ("application/x-ndjson", "", 7),
        ("text/html, application/x-ndjson;q=0.9", "?limit=2", 2),
        ("application/x-ndjson", "?subject=nobody", 0),
    ] {
        let path = format!("/v1/audit{query}");
        let response = auditor.get(&path).header("accept", accept).send().await;
        assert_eq!(response.status, 200);
        assert_eq!(response.header("content-type"), Some("application/x-ndjson"));
        let lines = response.text().await;
        let lines: Vec<Value> =
            lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines, all["data"].as_array().unwrap()[..count], "{query}");
    }
    app.shutdown().await;
}

#[tokio::test]
async fn more_than_a_page_of_lines_is_read_as_it_is_taken() {
    let app = TestApp::start().await;
    let gateway = app.gateway();
    for number in 0..1_234 {
        let kind = tollgate::audit::EntryKind::Approval;
        let entry = tollgate::audit::Entry::new(kind, "test", format!("r-{number}"));
        gateway.audit.record(entry).await;
    }
    app.audit_rows_once(1_234).await;
    let auditor = app.caller("auditor", "pro", &READERS);
    let response = auditor.get("/v1/audit").header("accept", "application/x-ndjson").send().await;
    let text = response.text().await;
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let expected: Vec<String> = (0..1_234).rev().map(|number| format!("r-{number}")).collect();
    let found: Vec<&str> = lines.iter().map(|line| line["request_id"].as_str().unwrap()).collect();
    assert_eq!(found, expected);
    app.shutdown().await;
}

#[tokio::test]
async fn usage_is_summed_by_what_is_asked_for() {
    let (app, auditor) = busy().await;
    let usage = get(&auditor, "/v1/usage?group_by=subject,model,cost_center").await;
    assert_eq!(usage["total"]["calls"], 3);
    let [group] = &usage["data"].as_array().unwrap()[..] else { panic!("{usage}") };
    assert_eq!((&group["subject"], &group["model"]), (&json!("alice"), &json!("m")));
    assert_eq!(group["cost_center"], Value::Null);
    assert_eq!(group["calls"], 3);
    assert!(group["cost_micro_usd"].as_i64().unwrap() > 0, "{usage}");
    assert_eq!(group["cost_micro_usd"], usage["total"]["cost_micro_usd"]);
    assert_eq!(usage["truncated"], false);
    let none = get(&auditor, "/v1/usage?model=other").await;
    assert_eq!((&none["total"]["calls"], &none["data"]), (&json!(0), &json!([])));
    app.shutdown().await;
}

#[tokio::test]
async fn a_run_is_told_call_by_call() {
    let (app, auditor) = busy().await;
    let run = get(&auditor, "/v1/runs/nightly").await;
    assert_eq!(run["run_id"], "nightly");
    assert_eq!(run["totals"]["calls"], 2);
    assert_eq!(run["totals"]["ok"], 2);
    for call in run["calls"].as_array().unwrap() {
        assert_eq!((&call["status"], &call["kind"]), (&json!("ok"), &json!("model_call")));
        assert_eq!(call["subject"], "alice");
        assert!(call["ended_at"].is_string(), "{call}");
    }
    let response = auditor.get("/v1/runs/none").send().await;
    assert_eq!(response.status, 404);
    assert_eq!(response.json().await["error"]["code"], "run_not_found");
    app.shutdown().await;
}

#[tokio::test]
async fn the_trail_takes_a_capability_and_its_denial_is_in_it() {
    let (app, auditor) = busy().await;
    for path in ["/v1/audit", "/v1/usage", "/v1/runs/nightly"] {
        let response = app.alice().get(path).send().await;
        assert_eq!(response.status, 403, "{path}");
        let body = response.json().await;
        assert_eq!(body["error"]["code"], "capability_denied");
        assert!(body["error"]["message"].as_str().unwrap().contains("`audit:read`"), "{body}");
    }
    app.audit_rows_once(10).await;
    let denied = get(&auditor, "/v1/audit?subject=alice&kind=denied").await;
    assert_eq!(denied["data"].as_array().unwrap().len(), 3);
    assert_eq!(denied["data"][0]["required"], "audit:read");
    app.shutdown().await;
}

#[tokio::test]
async fn a_parameter_at_fault_is_named() {
    let app = TestApp::start().await;
    let auditor = app.caller("auditor", "pro", &READERS);
    for (query, param) in [
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("limit=-1", "limit"),
        ("cursor=abc", "cursor"),
        ("cursor=", "cursor"),
        ("from=yesterday", "from"),
        ("kind=", "kind"),
        ("kind=Settle", "kind"),
        ("trace_id=1", "trace_id"),
        ("colour=red", "colour"),
        ("subject=a&subject=b", "subject"),
        ("Subject=a", "Subject"),
    ] {
        let response = auditor.get(&format!("/v1/audit?{query}")).send().await;
        let message = assert_bad(response, param).await;
        assert!(message.ends_with('.') && message.len() > 20, "{query}: {message}");
    }
    for (query, param) in [("from=1h", "from"), ("group_by=hour", "group_by"), ("day=1", "day")] {
        assert_bad(auditor.get(&format!("/v1/usage?{query}")).send().await, param).await;
    }
    for (query, param) in [("input_hash=1", "input_hash"), ("limit=1", "limit")] {
        assert_bad(auditor.get(&format!("/v1/runs/r?{query}")).send().await, param).await;
    }
    // What a query may hold is any bytes.
    for query in ["subject=%00", "subject=%ff", "model=%27%3B%20DROP%20TABLE%20audit%3B--", "&&"] {
        let list = get(&auditor, &format!("/v1/audit?{query}")).await;
        assert_eq!(list["data"], json!([]), "{query}");
    }
    app.shutdown().await;
}
