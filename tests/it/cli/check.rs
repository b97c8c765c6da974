//! `check-config`, and `serve` where the configuration is bad.

use super::Shell;

pub(super) const GOOD: &str = r#"[server]
listen = "127.0.0.1:0"
admin_listen = "127.0.0.1:0"

[[auth.issuers]]
issuer = "https://issuer.test"
audience = ["tollgate"]
algorithms = ["EdDSA"]
jwks_file = "jwks.json"

[[providers]]
name = "up"
kind = "openai"
base_url = "http://127.0.0.1:9/v1"
api_key = "${UP_KEY}"

[[models]]
name = "m"
requires = ["model:reasoning"]
routes = [{ provider = "up", model = "m" }]

[[tiers]]
name = "pro"
"#;

/// RFC 8037, appendix A.2.
pub(super) const JWKS: &str =
    r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

const BAD: &str = r#"[server]
listen = "nowhere"
lissen = "127.0.0.1:0"

[[providers]]
name = "up"
kind = "openai"

[budget]
store = "redis"
"#;

#[test]
fn a_good_configuration_is_said_to_be_good() {
    let shell = Shell::new().with_env("UP_KEY", "sk-0123456789abcdef");
    shell.write("tollgate.toml", GOOD);
    shell.write("jwks.json", JWKS);
    let out = shell.run(&["check-config"]).ok();
    assert!(out.starts_with("tollgate.toml: ok (1 issuer, 1 provider, 1 model"), "{out}");
    assert!(!out.contains("sk-"), "a secret is shown: {out}");
    // From elsewhere, by each way to name it.
    let elsewhere = shell.path("tollgate.toml").display().to_string();
    shell.run(&["check-config", "--config", &elsewhere]).ok();
    shell.run(&["check-config", "-c", &elsewhere]).ok();
    let by_variable = Shell::new().with_env("TOLLGATE_CONFIG", elsewhere).with_env("UP_KEY", "k");
    by_variable.write("jwks.json", JWKS);
    by_variable.run(&["check-config"]).ok();
}

#[test]
fn a_bad_one_has_each_error_with_its_place_and_key_and_serve_says_the_same() {
    let shell = Shell::new();
    shell.write("bad.toml", BAD);
    let checked = shell.run(&["check-config", "--config", "bad.toml"]).fails(1);
    let expected = [
        "bad.toml:2:1: server.listen: ",
        "bad.toml:3:1: server.lissen: ",
        "providers[0].base_url: ",
        "budget.redis_url: ",
        "auth.issuers: ",
        "models: ",
    ];
    for error in expected {
        let lines = checked.lines().filter(|line| line.contains(error));
        assert_eq!(lines.count(), 1, "{error} in {checked}");
    }
    let errors = checked.lines().count() - 1;
    assert!(checked.ends_with(&format!("\n{errors} errors\n")), "{checked}");
    let served = shell.run(&["serve", "--config", "bad.toml"]).fails(1);
    assert_eq!(served, checked, "serve says what check-config says");
    let migrated = shell.run(&["migrate", "--config", "bad.toml"]).fails(1);
    assert_eq!(migrated, checked);
}

#[test]
fn the_environment_is_part_of_the_configuration() {
    let shell = Shell::new();
    shell.write("tollgate.toml", GOOD);
    let err = shell.run(&["check-config"]).fails(1);
    assert!(err.contains("providers[0].api_key") && err.contains("UP_KEY"), "{err}");
    let shell = Shell::new().with_env("UP_KEY", "k").with_env("TOLLGATE__SERVER__DRAIN_S", "soon");
    shell.write("tollgate.toml", GOOD);
    let err = shell.run(&["check-config"]).fails(1);
    assert!(err.contains("TOLLGATE__SERVER__DRAIN_S: server.drain_s: "), "{err}");
}

#[test]
fn a_file_that_is_not_there_or_no_toml_is_named() {
    let shell = Shell::new();
    for command in ["check-config", "serve"] {
        let err = shell.run(&[command]).fails(1);
        assert!(err.contains("tollgate.toml") && err.contains("--config"), "{command}: {err}");
    }
    shell.write("tollgate.toml", "[server\nlisten = 1");
    let err = shell.run(&["check-config"]).fails(1);
    assert!(err.contains("tollgate.toml:1:"), "{err}");
}

#[test]
fn the_answer_is_the_exit_code_where_nobody_reads() {
    let shell = Shell::new().with_env("UP_KEY", "k");
    shell.write("tollgate.toml", GOOD);
    shell.write("jwks.json", JWKS);
    let mut child =
        shell.command(&["check-config"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn what_serve_would_refuse_is_refused_here() {
    let shell = Shell::new().with_env("UP_KEY", "k");
    let refused = [
        (GOOD.to_owned(), "{}", "jwks_file"),
        (
            GOOD.replace(
                "[[providers]]",
                "[auth.issuers.claims]\nsubject = \"sub|\"\n[[providers]]",
            ),
            JWKS,
            "subject",
        ),
        (
            GOOD.replacen("[[auth", "[auth]\njwks_max_stale_s = 100\n[[auth", 1),
            JWKS,
            "jwks_max_stale_s",
        ),
    ];
    for (config, keys, key) in refused {
        shell.write("tollgate.toml", &config);
        shell.write("jwks.json", keys);
        for command in ["check-config", "serve"] {
            let err = shell.run(&[command]).fails(1);
            assert!(err.contains(key), "{command}: {err}");
        }
    }
}

#[test]
fn wrong_rules_of_redaction_are_told_with_all_else_that_is_wrong() {
    let rules = r#"
[[redaction.rules]]
name = "unclosed"
prefixes = ["ab"]
pattern = "ab[0-9"

[[redaction.rules]]
name = "unread"
prefixes = ["ab"]
patern = "ab[0-9]"

[[redaction.rules]]
name = "jwt"
prefixes = ["ab"]
pattern = "ab[0-9]{20}"

[redaction.allow]
gwt = ["x"]
"#;
    let shell = Shell::new().with_env("UP_KEY", "k");
    shell.write("jwks.json", JWKS);
    shell.write("good.toml", &format!("{GOOD}{}", rules.replace("patern", "pattern")));
    shell.write("bad.toml", &format!("{}{rules}", GOOD.replace("EdDSA", "none")));
    let expected = [
        "bad.toml:8:15: auth.issuers[0].algorithms[0]: ",
        "bad.toml:25:1: redaction.rules[0]: rule `unclosed`: regex parse error: unclosed",
        "bad.toml:33:1: redaction.rules[1].patern: ",
        "redaction.rules[1].pattern: is required",
        "bad.toml:35:1: redaction.rules[2]: rule `jwt`: a built-in rule has this name",
        "bad.toml:40:12: redaction.allow: there is no rule \"gwt\"; did you mean \"jwt\"?",
    ];
    let checked = shell.run(&["check-config", "-c", "bad.toml"]).fails(1);
    for error in expected {
        assert_eq!(checked.matches(error).count(), 1, "{error} in {checked}");
    }
    assert!(checked.ends_with("6 errors\n"), "{checked}");
    assert_eq!(shell.run(&["serve", "-c", "bad.toml"]).fails(1), checked);
    // With nothing else wrong they are told just so.
    let checked = shell.run(&["check-config", "-c", "good.toml"]).fails(1);
    assert!(
        checked.contains("good.toml:25:1: redaction.rules[0]: ") && checked.ends_with("3 errors\n"),
        "{checked}"
    );
}
