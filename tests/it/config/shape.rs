//! Syntax, types and keys: what is wrong, where, and all of it at once.

use proptest::prelude::*;
use tollgate::config::{Config, Place};

use super::{BASE, base_with, errors_of, keys_of, load};

#[test]
fn the_base_of_these_tests_is_right() {
    Config::from_toml_str(BASE).unwrap();
}

#[test]
fn syntax_errors_are_placed_and_show_nothing_of_the_file() {
    let text = "[server]\nlisten = sk-live-secret\n";
    let errors = load(text, &[]).expect_err("not TOML");
    let error = errors.iter().next().unwrap();
    assert_eq!(error.place, Some(Place::File { line: 2, column: 10 }));
    assert!(error.message.starts_with("not TOML: "), "{error}");
    assert!(!errors.to_string().contains("sk-live"), "{errors}");
}

#[test]
fn an_empty_file_lacks_an_issuer_a_provider_and_a_model() {
    assert_eq!(keys_of(""), ["auth.issuers", "providers", "models"]);
}

#[test]
fn an_unknown_key_is_an_error_that_suggests_the_nearest() {
    let errors = errors_of(&base_with("base_url", "bse_url"));
    let unknown = errors.iter().find(|e| e.key == "providers[0].bse_url").unwrap();
    assert_eq!(unknown.message, "there is no such key; did you mean \"base_url\"?");
    assert_eq!(unknown.place, Some(Place::File { line: 19, column: 1 }));
}

#[test]
fn an_unknown_key_that_is_like_none_lists_those_that_are_there() {
    let errors = errors_of(&format!("zzzzzzzz = 1\n{BASE}"));
    assert_eq!(errors[0].key, "zzzzzzzz");
    assert!(errors[0].message.contains("known are \"server\", \"admission\""), "{}", errors[0]);
}

#[test]
fn unknown_keys_are_found_in_every_table_at_once() {
    let text = base_with("listen =", "lisen = 1\nlisten =")
        .replace("audience =", "audiense = 1\naudience =")
        .replace("[[tiers.limits]]", "[[tiers.limits]]\nrequest_per_minute = 1")
        .replace("{ input = 1,", "{ input = 1, inputs = 2,");
    let expected = [
        "server.lisen",
        "auth.issuers[0].audiense",
        "models[0].price.inputs",
        "tiers[0].limits[0].request_per_minute",
    ];
    assert_eq!(keys_of(&text), expected);
}

#[test]
fn wrong_types_are_all_reported_and_hide_no_broken_rule() {
    let text = base_with("listen = \"127.0.0.1:8080\"", "listen = \"nowhere\"\ndrain_s = \"x\"")
        .replace("leeway_s = 30", "leeway_s = -1")
        .replace("audience = [\"tollgate\"]", "audience = \"tollgate\"")
        .replace("algorithms = [\"EdDSA\"]", "algorithms = [\"EdDSA\", \"none\"]")
        .replace("kind = \"openai\"", "kind = \"opena\"")
        .replace("requests_per_minute = 60", "requests_per_minute = 0\nconcurrent = true");
    let expected = [
        "server.listen",
        "server.drain_s",
        "auth.leeway_s",
        "auth.issuers[0].audience",
        "auth.issuers[0].algorithms[1]",
        "providers[0].kind",
        "tiers[0].limits[0].requests_per_minute",
        "tiers[0].limits[0].concurrent",
    ];
    assert_eq!(keys_of(&text), expected);
}

#[test]
fn each_wrong_type_says_what_is_wanted() {
    let cases = [
        ("leeway_s = 30", "leeway_s = \"30\"", "must be a whole number, not a string"),
        ("leeway_s = 30", "leeway_s = -1", "must be a whole number from 0 to"),
        ("leeway_s = 30", "leeway_s = 99999999999999999999", "must be a whole number from 0 to"),
        ("name = \"up\"", "name = 1", "must be a string (in quotes), not an integer"),
        ("listen = \"127.0.0.1:8080\"", "listen = \"x\"", "such as \"127.0.0.1:8080\""),
        ("[server]", "[server]\ntrusted_proxies = [\"x\"]", "such as \"10.0.0.0/8\""),
        ("kind = \"openai\"", "kind = \"open-ai\"", "did you mean \"openai\"?"),
        ("input = 1", "input = \"1\"", "must be a number, not a string"),
        ("[capabilities]", "[telemetry]\ncapture_content = 1\n[capabilities]", "true or false"),
        ("[capabilities]\nvocabulary", "capabilities", "must be a table, not an array"),
    ];
    for (piece, other, message) in cases {
        let mut text = base_with(piece, other);
        if other == "capabilities" {
            // A key of the root has to stand before every table.
            text = format!("capabilities = []\n{}", base_with("[capabilities]\nvocabulary", "x"));
            text = text.replace("x = [\"model:reasoning\", \"fleet:read\"]\n", "");
        }
        let errors = errors_of(&text);
        assert_eq!(errors.len(), 1, "{other}: {errors:?}");
        assert!(errors[0].message.contains(message), "{other}: {}", errors[0]);
    }
}

#[test]
fn a_missing_key_is_named_in_its_table() {
    let errors = errors_of(&base_with("name = \"up\"\n", ""));
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(errors[0].to_string(), "16:1: providers[0].name: is required, and missing; add it");
}

#[test]
fn what_follows_from_a_provider_without_a_name_is_not_reported_as_well() {
    let text = base_with("name = \"up\"\nkind = \"openai\"", "kind = 5");
    assert_eq!(keys_of(&text), ["providers[0].name", "providers[0].kind"]);
}

#[test]
fn a_secret_that_is_not_set_hides_no_name_that_is_wrong() {
    let text = base_with("a-provider-key", "${NO_KEY}").replace("\"up\", model", "\"x\", model");
    assert_eq!(keys_of(&text), ["providers[0].api_key", "models[0].routes[0].provider"]);
}

#[test]
fn names_that_could_not_be_read_make_nothing_else_wrong() {
    let text = base_with("vocabulary = [\"model:reasoning\",", "vocabulary = [1,")
        .replace("name = \"m\"", "name = 1")
        .replace("model = \"*\"", "model = \"m\"");
    assert_eq!(keys_of(&text), ["capabilities.vocabulary[0]", "models[0].name"]);
}

#[test]
fn a_table_that_lacks_a_part_says_which() {
    let text = base_with("[server]", "[server]\ntls = { cert = \"/nonexistent\" }");
    assert_eq!(keys_of(&text), ["server.tls.key", "server.tls.cert"]);
    assert_eq!(keys_of(&base_with("[server]", "[server]\ntls = 3")), ["server.tls"]);
}

#[test]
fn a_whole_section_of_the_wrong_type_is_one_error() {
    for section in ["server", "audit", "budget", "stream", "redaction", "telemetry", "admission"] {
        let text =
            format!("{section} = 5\n{}", base_with("[server]\nlisten = \"127.0.0.1:8080\"\n", ""));
        assert_eq!(keys_of(&text), [section]);
    }
    let text = base_with("[[tools]]\nname = \"fleet_ps\"\nrequires = [\"fleet:read\"]\n", "");
    assert_eq!(keys_of(&format!("tools = [1, 2]\n{text}")), ["tools[0]", "tools[1]"]);
}

#[test]
fn errors_come_one_a_line_with_file_line_and_column() {
    let errors = load(&base_with("leeway_s = 30", "leeway_s = 301\nlewway_s = 1"), &[]);
    let text = errors.expect_err("two errors").to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].contains(".toml:5:1: auth.leeway_s: must be from 0 to 300, not 301"));
    assert!(lines[1].contains(".toml:6:1: auth.lewway_s: there is no such key; did you mean"));
}

#[test]
fn a_file_that_is_not_there_is_an_error_with_its_name() {
    let path = std::path::Path::new("/nonexistent/tollgate.toml");
    let error = tollgate::config::load(path, []).expect_err("no file").to_string();
    assert!(error.starts_with("/nonexistent/tollgate.toml: can't be read: "), "{error}");
}

#[test]
fn two_hundred_errors_end_the_search() {
    let routes = "1, ".repeat(10_000);
    let text = base_with("{ provider = \"up\", model = \"upstream-m\" }", &routes);
    assert_eq!(errors_of(&text).len(), 200);
}

#[test]
fn nesting_without_end_is_refused() {
    for text in [
        "a.".repeat(100_000),
        format!("a = {}", "[".repeat(100_000)),
        format!("[{}a]", "a.".repeat(100_000)),
    ] {
        assert!(Config::from_toml_str(&text).is_err());
    }
}

proptest! {
    #[test]
    fn no_text_panics(text in any::<String>()) {
        let _ = Config::from_toml_str(&text);
    }

    #[test]
    fn no_text_made_of_toml_s_pieces_panics(
        pieces in proptest::collection::vec(prop::sample::select(PIECES), 0..40)
    ) {
        let _ = load(&pieces.concat(), &[("A", "x")]);
    }

    #[test]
    fn no_value_in_the_place_of_another_panics(
        line in 0..BASE.lines().count(),
        value in prop::sample::select(VALUES),
    ) {
        let lines = BASE.lines().enumerate().map(|(n, text)| match text.split_once(" = ") {
            Some((key, _)) if n == line => format!("{key} = {value}"),
            _ => text.to_owned(),
        });
        let _ = Config::from_toml_str(&lines.collect::<Vec<_>>().join("\n"));
    }

    #[test]
    fn no_environment_panics(name in "TOLLGATE__[A-Z0-9_]{0,40}", value in any::<String>()) {
        let _ = load(BASE, &[(&name, &value)]);
    }

    #[test]
    fn no_environment_near_a_real_name_panics(
        name in prop::sample::select(NAMES),
        index in "[0-9]{0,21}|LIMITS|NAME",
        value in prop::sample::select(VALUES),
    ) {
        let _ = load(BASE, &[(&format!("{name}{index}"), value)]);
    }
}

const PIECES: &[&str] = &[
    "[",
    "]",
    "[[",
    "]]",
    "{",
    "}",
    "=",
    ".",
    ",",
    "\n",
    "\"",
    "'",
    "#",
    "server",
    "auth",
    "issuers",
    "providers",
    "models",
    "routes",
    "tiers",
    "price",
    "name",
    "listen",
    "redaction",
    "rules",
    " ",
    "1",
    "-1",
    "1e400",
    "nan",
    "true",
    "\"${A}\"",
    "\"$${A}\"",
    "\"${\"",
    "1979-05-27",
    "0xff",
    "é",
];

const VALUES: &[&str] = &[
    "1",
    "-1",
    "0",
    "18446744073709551616",
    "1e400",
    "nan",
    "-inf",
    "true",
    "\"\"",
    "\"x\"",
    "[]",
    "[1]",
    "[[]]",
    "{}",
    "{ a = 1 }",
    "1979-05-27",
    "\"${NONE}\"",
    "[{}]",
    "\"$\"",
    "\"*\"",
];

const NAMES: &[&str] = &[
    "TOLLGATE__",
    "TOLLGATE__PROVIDERS__",
    "TOLLGATE__PROVIDERS__0__",
    "TOLLGATE__TIERS__0__LIMITS__",
    "TOLLGATE__MODELS__0__PRICE",
    "TOLLGATE__SERVER",
    "TOLLGATE__SERVER__LISTEN__",
];
