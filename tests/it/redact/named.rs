//! Values that their names make secrets.

use bytes::Bytes;
use serde_json::{Value, json};
use tollgate::redact::{Counts, Depth};

use super::request::{ALPHA, redacted};

const PASSWORD: &str = "hunter2-Xq9Lr4Zt";

/// Is the password taken out of this document, and only that?
fn assert_taken(body: &str) {
    assert!(body.contains(PASSWORD));
    let (out, counts) = redacted(body);
    assert_eq!(counts.get("password"), Some(&1), "{body}");
    let start = out.find("[REDACTED:password:").unwrap_or_else(|| panic!("{out}"));
    let end = start + out[start..].find(']').unwrap() + 1;
    assert_eq!(out[..start].to_owned() + PASSWORD + &out[end..], body);
}

#[test]
fn a_name_makes_its_value_a_secret() {
    let named = json!({ "user": "u", "password": PASSWORD, "n": 1 });
    let inner = named.to_string();
    for body in [
        inner.clone(),
        serde_json::to_string_pretty(&named).unwrap(),
        json!({ "DB_PASSWORD": PASSWORD }).to_string(),
        json!({ "apiKey": ["short", PASSWORD] }).to_string(),
        json!({ "arguments": inner }).to_string(),
        json!([json!({ "arguments": inner }).to_string()]).to_string(),
        json!({ "env": [{ "name": "A", "value": "b" }, { "name": "DB_PASSWORD", "value": PASSWORD }] }).to_string(),
        json!({ "content": format!("password = {PASSWORD}\nuser = u") }).to_string(),
        json!({ "content": format!("{{\"password\": \"{PASSWORD}\"") }).to_string(),
        format!(r#"{{"p\u0061ssword" : "{PASSWORD}"}}"#),
    ] {
        assert_taken(&body);
    }
}

#[test]
fn whatever_is_in_a_value_it_ends_where_its_string_does() {
    for password in ["q\"Xq9Lr4Zt7", "Xq9\\Lr4Zt7", "Xq9Lr4'Zt7\"", "Xq9,Lr4;Zt7}"] {
        let (out, counts) = redacted(&json!({ "password": password, "x": "kept" }).to_string());
        assert_eq!(counts.get("password"), Some(&1), "{out}");
        let out: Value = serde_json::from_str(&out).unwrap();
        let shown = out["password"].as_str().unwrap();
        assert!(
            shown.starts_with("[REDACTED:password:") && shown.ends_with(']') && shown.len() < 40
        );
        assert_eq!(out["x"], "kept");
    }
}

#[test]
fn a_format_of_its_own_gives_the_better_name() {
    let (_, counts) = redacted(&json!({ "password": ALPHA }).to_string());
    assert_eq!(counts.keys().map(|rule| &**rule).collect::<Vec<_>>(), ["alpha"]);
}

#[test]
fn a_format_may_have_its_name_in_it() {
    let basic = json!({ "headers": { "Authorization": "Basic cTdYdzJMcjlaOnQ0VmI2Tm0=" } });
    let auth = json!({ "auths": { "registry": { "auth": "cTdYdzJMcjlaOnQ0VmI2Tm0=" } } });
    for body in [basic, auth] {
        let body = Bytes::from(body.to_string());
        let (out, counts) = super::REDACTOR.redact_json(&body, Depth::Complete);
        assert!(memchr::memmem::find(&out, b"cTdYdz").is_none(), "{out:?}");
        assert_eq!(counts.values().sum::<u32>(), 1);
    }
}

#[test]
fn other_names_and_other_values_are_left_alone() {
    for body in [
        json!({ "user": PASSWORD, "compass_words": PASSWORD }),
        json!({ "password": "your password", "api_key": "${API_KEY}" }),
        json!({ "properties": { "password": { "type": "string", "description": PASSWORD } }, "required": ["password", PASSWORD] }),
        json!([{ "password": "short" }, PASSWORD]),
        json!({ "name": "A", "value": PASSWORD, "x": { "name": "password" }, "y": { "value": PASSWORD } }),
        json!({ "password": format!("data:image/png;base64,{}", "QUJD".repeat(30)) }),
        json!({ "password": null, "x": [PASSWORD] }),
        json!({ "password": "x".repeat(4000) }),
    ] {
        let body = body.to_string();
        assert_eq!(redacted(&body), (body.clone(), Counts::new()));
    }
}
