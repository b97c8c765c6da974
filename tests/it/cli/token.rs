//! `mint-token`: every way to make a token, and that a gateway takes it.

use std::fs;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use tollgate::auth::mint::SigningKey;

use super::{Shell, check::GOOD, mode};

fn claims(token: &str) -> Value {
    let parts: Vec<&str> = token.trim_end().split('.').collect();
    assert_eq!(parts.len(), 3, "{token}");
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(parts[1]).unwrap()).unwrap()
}

/// A shell where `tollgate dev` has left its key.
fn with_key() -> Shell {
    let shell = Shell::new();
    SigningKey::generate_file(&shell.path("data/dev-issuer.pem")).unwrap();
    shell
}

#[test]
fn without_a_key_it_says_how_to_get_one() {
    let err = Shell::new().run(&["mint-token"]).fails(1);
    for part in ["data/dev-issuer.pem", "`tollgate dev`", "--key"] {
        assert!(err.contains(part), "{part}: {err}");
    }
    let err = Shell::new().run(&["mint-token", "--key", "none.pem"]).fails(1);
    assert!(err.contains("none.pem") && !err.contains("tollgate dev"), "{err}");
}

#[test]
fn the_token_is_one_line_and_says_what_was_asked_for() {
    let shell = with_key();
    let out = shell.run(&["mint-token"]).ok();
    assert_eq!(out.lines().count(), 1, "{out}");
    let plain = claims(&out);
    assert_eq!(plain["iss"], "tollgate-dev");
    assert_eq!(plain["aud"], json!(["tollgate"]));
    assert_eq!((&plain["sub"], &plain["tier"]), (&json!("dev"), &json!("pro")));
    let can: Option<usize> = plain["capabilities"].as_array().map(Vec::len);
    assert!(matches!(can, None | Some(0)), "deny by default: {plain}");
    assert!(plain.get("trust").is_none(), "{plain}");

    let full = [
        "mint-token",
        "--subject",
        "ci",
        "--tier",
        "free",
        "--agent",
        "reviewer",
        "--trust",
        "L1",
        "--capability",
        "model:reasoning",
        "--capability",
        "fleet:read",
        "--issuer",
        "https://bff.example",
        "--audience",
        "a",
        "--audience",
        "b",
        "--ttl",
        "90s",
    ];
    let full = claims(&shell.run(&full).ok());
    let expected = json!({
        "sub": "ci", "tier": "free", "agent": "reviewer", "trust": "L1",
        "capabilities": ["model:reasoning", "fleet:read"], "iss": "https://bff.example",
        "aud": ["a", "b"],
    });
    for (claim, value) in expected.as_object().unwrap() {
        assert_eq!(full[claim], *value, "{claim}");
    }
}

#[test]
fn a_ttl_is_a_number_and_a_unit() {
    let shell = with_key();
    for (ttl, seconds) in [("90s", 90), ("10m", 600), ("8h", 28_800), ("1d", 86_400)] {
        let claims = claims(&shell.run(&["mint-token", "--ttl", ttl]).ok());
        let (exp, iat) = (claims["exp"].as_u64().unwrap(), claims["iat"].as_u64().unwrap());
        assert_eq!(exp - iat, seconds, "{ttl}");
    }
    for ttl in ["", "10", "m", "1w", "-5m", "1.5h", "5 m", "10µ", "99999999999999999999s"] {
        let err = shell.run(&["mint-token", &format!("--ttl={ttl}")]).fails(2);
        assert!(err.contains("--ttl"), "{ttl}: {err}");
    }
    assert!(shell.run(&["mint-token", "--ttl", "0s"]).fails(1).contains("at least a second"));
    let err = shell.run(&["mint-token", "--trust", "L9"]).fails(2);
    assert!(err.contains("L0, L1, L2 or L3"), "{err}");
}

#[test]
fn a_key_that_others_may_read_or_that_is_none_is_refused() {
    let shell = with_key();
    let key = shell.path("data/dev-issuer.pem");
    assert_eq!(mode(&key), 0o600);
    fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    assert!(shell.run(&["mint-token"]).fails(1).contains("chmod 600"));
    shell.write("none.pem", "hello");
    let path = shell.path("none.pem");
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let err = shell.run(&["mint-token", "--key", "none.pem"]).fails(1);
    assert!(err.contains("none.pem") && err.contains("PEM"), "{err}");
}

#[tokio::test]
async fn a_running_dev_gateway_takes_the_tokens_and_what_they_say() {
    let shell = Shell::new();
    let dev = shell.dev(&[]);
    let models = async |args: &[&str]| {
        let token = shell.run(&[&["mint-token"], args].concat()).ok();
        let response = dev.client(token.trim_end()).get("/v1/models").send().await;
        let status = response.status.as_u16();
        let body = response.json().await;
        (status, body["data"].as_array().map(Vec::len), body["error"]["code"].clone())
    };
    assert_eq!(models(&[]).await, (200, Some(0), Value::Null));
    assert_eq!(models(&["--capability", "model:reasoning"]).await, (200, Some(3), Value::Null));
    assert_eq!(models(&["--capability", "fleet:read"]).await.1, Some(0));
    for refused in [["--audience", "other"], ["--issuer", "other"], ["--ttl", "2d"]] {
        assert_eq!(models(&refused).await, (401, None, json!("invalid_token")), "{refused:?}");
    }
    let token =
        shell.run(&["mint-token", "--tier", "none", "--capability", "model:reasoning"]).ok();
    let body = json!({ "model": "demo-fast", "messages": [] });
    let call = dev.client(token.trim_end()).post("/v1/chat/completions").json(&body);
    assert_eq!(call.send().await.json().await["error"]["code"], "unknown_tier");
    dev.stop();
}

#[tokio::test]
async fn a_token_of_ones_own_key_is_taken_where_that_key_is_trusted() {
    let shell = Shell::new().with_env("UP_KEY", "sk-0123456789abcdef");
    let key = SigningKey::generate_file(&shell.path("own.pem")).unwrap();
    shell.write("jwks.json", &key.public_jwks().to_string());
    shell.write("tollgate.toml", GOOD);
    let mut running = shell.start(&["serve"]);
    let line = running.err.until("\"listening\"").last().unwrap().clone();
    let line: Value = serde_json::from_str(&line).unwrap();
    let address = line["address"].as_str().unwrap().parse().unwrap();
    let minted = ["mint-token", "--key", "own.pem", "--issuer", "https://issuer.test"];
    let token = shell.run(&[&minted[..], &["--capability", "model:reasoning"]].concat()).ok();
    let client = crate::support::client::Client::new(address).with_token(token.trim_end());
    let models = client.get("/v1/models").send().await.json().await;
    assert_eq!(models["data"][0]["id"], "m");
    running.stop();
}
