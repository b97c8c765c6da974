//! Whole bodies: where secrets stand in JSON, and that nothing else changes.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use serde_json::{Value, json};
use tollgate::{
    config::RequestRedaction,
    domain::{Kind, ModelCall},
    redact::{Counts, Depth, Engine, PlaceholderKey, RedactError, Redactor, RuleSet},
};

/// Formats that only these tests have: those of real ones are tested elsewhere.
const RULES: &str = r#"
stop_words = ["example"]
[[rule]]
name = "alpha"
prefixes = ["alk_"]
pattern = 'alk_[A-Za-z0-9]{20,60}'
[[rule]]
name = "beta"
prefixes = ["BK"]
pattern = 'BK[A-Z2-7]{18}\b'
[[rule]]
name = "bearer"
prefixes = ["Bearer "]
pattern = 'Bearer (?<secret>[A-Za-z0-9._~+/=-]{16,})'
[[rule]]
name = "block"
prefixes = ["-----BEGIN TEST KEY-----"]
pattern = '-----BEGIN TEST KEY-----[A-Za-z0-9+/=\s]{20,}(-----END TEST KEY-----)?'
[[rule]]
name = "greedy"
prefixes = ["gdy="]
pattern = 'gdy=[^ ]{8,}'
[[context]]
name = "password"
names = ["password", "api_key"]
min = 8
max = 128
entropy = 2.5
"#;

pub const ALPHA: &str = "alk_q7Xw2Lr9Zt4Vb6Nm1Kp8";
pub const BETA: &str = "BKQ3EGR7ZTJ2K5WLMNPD";
/// Its alphabet has characters that some write with escapes.
pub const BEARER: &str = "Bearer abCD+efGH/ijKL=mnOP~qr";
pub const BLOCK: &str = "-----BEGIN TEST KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nAQEFAASCBKcwggSjAgEAAoIB\n-----END TEST KEY-----";
pub const SECRETS: [(&str, &str); 4] =
    [("alpha", ALPHA), ("beta", BETA), ("bearer", BEARER), ("block", BLOCK)];

pub static REDACTOR: LazyLock<Redactor> = LazyLock::new(|| redactor(RequestRedaction::Redact));
static BLOCKING: LazyLock<Redactor> = LazyLock::new(|| redactor(RequestRedaction::Block));

fn redactor(mode: RequestRedaction) -> Redactor {
    let engine = Engine::compile(&RuleSet::parse(RULES).unwrap()).unwrap();
    Redactor::from_parts(Arc::new(engine), PlaceholderKey::from_bytes(&[7; 32]).unwrap(), mode)
}

/// The part that must not stay: `Bearer` itself may.
pub fn hidden(secret: &str) -> &str {
    secret.strip_prefix("Bearer ").unwrap_or(secret)
}

pub fn placeholder(rule: &str, secret: &str) -> String {
    let (shown, counts) = redacted(&Value::from(secret).to_string());
    assert_eq!(counts[rule], 1);
    let shown: String = serde_json::from_str(&shown).unwrap();
    shown.strip_prefix("Bearer ").unwrap_or(&shown).to_owned()
}

pub fn redacted(body: &str) -> (String, Counts) {
    let body = Bytes::from(body.to_owned());
    let (out, counts) = REDACTOR.redact_json(&body, Depth::Complete);
    assert_eq!(counts.is_empty(), out.as_ptr() == body.as_ptr(), "{body:?}");
    (String::from_utf8(out.to_vec()).unwrap(), counts)
}

fn counts<const N: usize>(counts: [(&str, u32); N]) -> Counts {
    counts.map(|(rule, count)| (Arc::from(rule), count)).into()
}

/// A request with `@` wherever a text may be, and much that must not change.
const EVERYWHERE: &str = r#"{ "model": "@", "user":"@",
 "messages" : [
  {"role":"system","content":"@ use \u00e9 \ud83d\ude00 C:\\new\/x \"@\""},
  {"role":"user","content":[{"type":"text","text":"@"},{"type":"input_file","file":{"filename":"@","file_id":"@"}}]},
  {"role":"assistant","content":null,"refusal":"@","reasoning_content":"@","tool_calls":[{"id":"@","type":"function","function":{"name":"@","arguments":"{\"token\": \"@\", \"n\": [1.50, {\"@\": \"x\\n@\"}]}"}}]},
  {"role":"tool","tool_call_id":"c","content":"[\"@\", \"{\\\"deep\\\": \\\"@\\\"}\"]"}
 ],
 "tools":[{"type":"function","function":{"name":"f","description":"@","parameters":{"type":"object","properties":{"@":{"type":"string","description":"@","enum":["@","b"],"default":"@"}},"required":["@"]}}}],
 "metadata":{"@":"a name","tag":"@"}, "stop":["@"], "x-unknown":{"deep":[[["@"]]]},
 "temperature":0.70,"seed":12345678901234567890123,"big":1e400,"logit_bias":{"50256":-100}
}"#;

#[test]
fn every_place_of_a_request_is_looked_at() {
    let places = EVERYWHERE.matches('@').count();
    assert!(places > 25);
    for (rule, secret) in [("alpha", ALPHA), ("beta", BETA)] {
        let placeholder = placeholder(rule, secret);
        for place in 0..places {
            let only = |inside: &str| {
                let mut parts = EVERYWHERE.split('@');
                let mut body = parts.next().unwrap().to_owned();
                for (at, part) in parts.enumerate() {
                    body.push_str(if at == place { inside } else { "at" });
                    body.push_str(part);
                }
                body
            };
            assert_eq!(redacted(&only(secret)), (only(&placeholder), counts([(rule, 1)])));
            assert_eq!(redacted(&only("word")), (only("word"), Counts::new()));
        }
        let all = redacted(&EVERYWHERE.replace('@', secret));
        let expected = EVERYWHERE.replace('@', &placeholder);
        assert_eq!(all, (expected, counts([(rule, u32::try_from(places).unwrap())])));
    }
}

#[test]
fn a_call_without_secrets_is_handed_on_as_it_came() {
    let body = Bytes::from_static(
        br#"{ "model":"m" , "messages":[{"content":"\u0041 \/ 1.0"}],"seed":1.50 }"#,
    );
    let call = ModelCall::parse(body.clone()).unwrap();
    let (call, counts) = REDACTOR.redact_call(call).unwrap();
    assert_eq!((call.body().as_ptr(), call.body().len()), (body.as_ptr(), body.len()));
    assert!(counts.is_empty());
}

#[test]
fn a_secret_is_found_whatever_stands_before_it() {
    for (rule, secret) in SECRETS {
        for before in [
            "", " ", "key=", "\\n", "\\t", "\\\"", "\\\\", "é", "\\u00e9", "(", "\\/", "%20",
            "\\\\n", "\\u200b",
        ] {
            let quoted = Value::from(secret).to_string();
            let body = format!("[\"{before}{} after\"]", &quoted[1..quoted.len() - 1]);
            let (out, found) = redacted(&body);
            assert_eq!(found, counts([(rule, 1)]), "{body}");
            let out: Value = serde_json::from_str(&out).expect("it is still JSON");
            assert!(out[0].as_str().unwrap().ends_with("] after"), "{out}");
        }
    }
    for before in ["a", "Z9", "_", "\\u0061"] {
        let body = format!("[\"{before}{ALPHA} after\"]");
        assert_eq!(redacted(&body), (body, Counts::new()));
    }
}

#[test]
fn equal_secrets_have_equal_placeholders() {
    let (out, _) = redacted(&json!([ALPHA, ALPHA.replace('k', "\\u006b"), BETA]).to_string());
    let out: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(out[0], out[1]);
    assert_ne!(out[0], out[2]);
}

#[test]
fn a_secret_ends_where_its_string_does() {
    let body = json!({ "a": "gdy=12345678", "b": "kept", "c": json!({ "d": "gdy=abcdefgh", "e": "kept" }).to_string() });
    let (out, found) = redacted(&body.to_string());
    assert_eq!(found, counts([("greedy", 2)]));
    let out: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(out["b"], "kept");
    let inner: Value = serde_json::from_str(out["c"].as_str().unwrap()).unwrap();
    assert_eq!(inner["e"], "kept");
    assert!(inner["d"].as_str().unwrap().starts_with("[REDACTED:greedy:"));
}

#[test]
fn no_half_of_a_character_is_left() {
    let redactor = {
        let rules = "[[rule]]\nname = 'cut'\nprefixes = ['cut-']\npattern = 'cut-[^ ]{9}'";
        let engine = Engine::compile(&RuleSet::parse(rules).unwrap()).unwrap();
        let key = PlaceholderKey::from_bytes(&[7; 32]).unwrap();
        Redactor::from_parts(Arc::new(engine), key, RequestRedaction::Redact)
    };
    for text in [
        "cut-12345678é after",
        "cut-1234567\u{1F600} after",
        "cut-\u{2014}\u{2014}\u{2014}\u{2014} after",
    ] {
        for body in [format!("\"{text}\""), json!([text]).to_string().replace('é', "\\u00e9")] {
            let (out, _) = redactor.redact_json(&Bytes::from(body), Depth::Complete);
            let out: Value = serde_json::from_slice(&out).expect("it is still JSON");
            let out = out.as_str().or(out[0].as_str()).unwrap();
            assert!(out.starts_with("[REDACTED:cut:"), "{out}");
        }
    }
}

#[test]
fn what_is_no_json_is_one_text() {
    for text in [
        format!("Unauthorized: {ALPHA}."),
        format!("{{\"broken\": \"{ALPHA}\""),
        format!("\"a\" {ALPHA} \"b\""),
        format!("data: {{\"a\":\"{ALPHA}\"}}\n\n"),
        ALPHA.to_owned(),
    ] {
        let (out, found) = redacted(&text);
        assert_eq!(
            (out, found),
            (text.replace(ALPHA, &placeholder("alpha", ALPHA)), counts([("alpha", 1)]))
        );
    }
    let (out, _) = redacted(&format!("{{\"broken\": \"\\u0061{}\"", &ALPHA[1..]));
    assert!(out.starts_with("{\"broken\": \"[REDACTED:alpha:") && out.ends_with("]\""), "{out}");
    let binary = Bytes::from([b"\xFF\xFE ", ALPHA.as_bytes(), b"\x80\xFF"].concat());
    let (out, _) = REDACTOR.redact_json(&binary, Depth::Complete);
    assert!(out.starts_with(b"\xFF\xFE [REDACTED:alpha:"), "{out:?}");
    assert!(redacted("") == (String::new(), Counts::new()));
}

#[test]
fn formats_alone_are_looked_for_in_strings_as_they_read() {
    let nested = json!({ "a": format!("\n{BEARER}") }).to_string();
    let body = Bytes::from(json!([BEARER, nested, "\u{e9}"]).to_string().replace('/', "\\/"));
    let (out, found) = REDACTOR.redact_json(&body, Depth::Formats);
    // In the inner text the secret is what a stream would have shown of it, too.
    assert_eq!(found, counts([("bearer", 2)]));
    let out: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(out[0], format!("Bearer {}", placeholder("bearer", BEARER)));
    assert_eq!(out[2], "\u{e9}");
}

fn blocked(body: &Value) -> (String, Option<String>, Counts) {
    let call = ModelCall::parse(Bytes::from(body.to_string())).unwrap();
    let error = BLOCKING.redact_call(call).expect_err("it has secrets");
    let RedactError::Blocked { denial, counts } = error else { panic!("{error:?}") };
    assert_eq!(denial.kind, Kind::SecretInRequest);
    for (_, secret) in SECRETS {
        assert!(!denial.message.contains(hidden(secret)), "{denial:?}");
    }
    assert!(denial.message.len() < 2_500, "{}", denial.message.len());
    (denial.message, denial.param, counts)
}

#[test]
fn a_refusal_says_which_rule_and_where() {
    let arguments = json!({ "a": [ALPHA] }).to_string();
    let body = json!({ "messages": [
        { "content": [{ "text": "a" }, { "text": format!("{BETA} and {BETA}, {ALPHA}") }] },
        { "tool_calls": [{ "function": { "arguments": arguments } }] },
    ], "metadata": { ALPHA: "a", "b": { "c d": BETA } }, "model": "m" });
    let (message, param, found) = blocked(&body);
    assert_eq!(
        message,
        "The request holds secrets: beta at `messages[0].content[1].text`, \
         alpha at `messages[0].content[1].text`, \
         alpha at `messages[1].tool_calls[0].function.arguments`, \
         alpha at `metadata.…`, beta at `metadata.b.…`. Take them out."
    );
    assert_eq!(param.as_deref(), Some("messages[0].content[1].text"));
    assert_eq!(found, counts([("alpha", 3), ("beta", 3)]));
}

#[test]
fn what_a_refusal_says_is_bounded_and_shows_no_name_that_could_be_one() {
    let many: Vec<String> = (0..100).map(|_| ALPHA.to_owned()).chain([BETA.to_owned()]).collect();
    let (message, ..) = blocked(&json!({ "model": "m", "messages": many }));
    assert!(
        message.ends_with("alpha at `messages[7]`, and 93 more (beta). Take them out."),
        "{message}"
    );

    let mut deep = json!(ALPHA);
    for _ in 0..60 {
        deep = json!([{ "a_name_that_is_as_long_as_a_name_may_be": [deep] }]);
    }
    let (message, param, _) = blocked(&json!({ "model": "m", "messages": deep }));
    let param = param.unwrap();
    assert!(param.starts_with("messages[0].a_name_") && param.ends_with('…'), "{message}");
    assert!(param.len() < 220, "{param}");

    let name = |name: &str| {
        let (_, param, _) = blocked(&json!({ "model": "m", "messages": [{ name: ALPHA }] }));
        param.unwrap()
    };
    assert_eq!(name("x-y_Z9$"), "messages[0].x-y_Z9$");
    let long = "n".repeat(49);
    let encoded = percent(BETA);
    for hides in ["", "a.b", "a\n", "é", "`", long.as_str(), ALPHA, encoded.as_str()] {
        let param = name(hides);
        assert_eq!(param, "messages[0].…", "{hides}");
    }
}

fn percent(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::new(), |mut out, byte| {
        write!(out, "%{byte:02x}").unwrap();
        out
    })
}

#[test]
fn deep_and_wide_bodies_are_no_matter() {
    let deep = 200_000;
    let body = format!("{}\"{ALPHA}\"{}", "[".repeat(deep), "]".repeat(deep));
    assert_eq!(redacted(&body).1, counts([("alpha", 1)]));
    let body = format!("{{\"messages\":{body},\"model\":\"m\"}}");
    let call = ModelCall::parse(Bytes::from(body)).unwrap();
    let RedactError::Blocked { denial, .. } = BLOCKING.redact_call(call).unwrap_err() else {
        panic!("not blocked")
    };
    assert!(denial.param.unwrap().ends_with("[0]…"));
    let mut nested = ALPHA.to_owned();
    for _ in 0..7 {
        nested = json!([nested]).to_string();
    }
    assert_eq!(redacted(&nested).1, counts([("alpha", 1)]));
}
