//! `[redaction]`.

use secrecy::SecretString;
use tollgate::config::{Config, decode_redaction_key};

use super::{BASE, base_with, refused, taken};

const PLACE: &str = "[capabilities]";

fn with(redaction: &str) -> String {
    format!("[redaction]\n{redaction}\n\n[capabilities]")
}

#[test]
fn a_key_stands_for_32_bytes_or_more() {
    let decoded = |text: &str| decode_redaction_key(&SecretString::from(text.to_owned()));
    let length = |text: &str| secrecy::ExposeSecret::expose_secret(&decoded(text).unwrap()).len();
    assert_eq!(length(&"0f".repeat(32)), 32);
    assert_eq!(length(&format!(" {}\n", "0F".repeat(32))), 32);
    assert_eq!(length("MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="), 32);
    assert_eq!(length("thirty-two characters, or more, of text"), 39);
    // Hexadecimal digits of fewer bytes are text.
    assert_eq!(length(&"0f".repeat(16)), 32);
    assert!(decoded("short").is_err() && decoded("").is_err());
    assert!(decoded(&"x".repeat(1_025)).is_err());
    refused(PLACE, &with("key = \"short\""), "redaction.key", "is too short");
    taken(PLACE, &with(&format!("key = \"{}\"", "0f".repeat(32))));
}

#[test]
fn the_key_is_given_once() {
    let both = format!("key = \"{}\"\nkey_file = \"data/k\"", "0f".repeat(32));
    refused(PLACE, &with(&both), "redaction.key_file", "is not read beside key");
    refused(PLACE, &with("key_file = \"/\""), "redaction.key_file", "no path of a file");
    taken(PLACE, &with("key_file = \"data/k\""));
}

#[test]
fn own_rules_have_the_fields_of_the_built_in_ones() {
    let rules = "rules = [{ name = \"a\", prefixes = [\"ab\"], pattern = \"ab.\", max = 3, \
                 boundary = false, needs = [\"digit\", \"no-stop-word\"], entropy = 2, \
                 allow = [\"abc\"], source = \"https://a.example\" }]";
    let config = Config::from_toml_str(&base_with(PLACE, &with(rules))).unwrap();
    let rule = &config.redaction.rules[0];
    assert_eq!((rule.max, rule.boundary, rule.entropy), (Some(3), false, Some(2.0)));
    assert!(!format!("{config:?}").contains("abc"), "what passes is a secret all the same");
    let short = "rules = [{ name = \"a\", prefixes = [\"ab\"], pattern = \"ab.\" }]";
    let config = Config::from_toml_str(&base_with(PLACE, &with(short))).unwrap();
    assert!(config.redaction.rules[0].boundary);

    let wrong = short.replace("pattern", "patern");
    let errors = super::errors_of(&base_with(PLACE, &with(&wrong)));
    let told: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert!(told.iter().any(|error| error.contains("redaction.rules[0].patern")), "{told:?}");
    let need = short.replace('}', ", needs = [\"digits\"] }");
    refused(PLACE, &with(&need), "redaction.rules[0].needs[0]", "did you mean \"digit\"?");
}

#[test]
fn an_allow_list_is_bounded() {
    let many = vec!["\"x\""; 65].join(",");
    refused(PLACE, &with(&format!("allow = {{ jwt = [{many}] }}")), "redaction.allow.jwt", "64");
    taken(PLACE, &with("allow = { jwt = [\"x\"] }"));
    assert!(Config::from_toml_str(BASE).unwrap().redaction.allow.is_empty());
}

#[test]
fn a_changed_secret_is_a_change() {
    let parse = |text: &str| Config::from_toml_str(&base_with(PLACE, &with(text))).unwrap();
    let allow = parse("allow = { jwt = [\"x\"] }");
    assert_eq!(allow, parse("allow = { jwt = [\"x\"] }"));
    for other in
        ["allow = { jwt = [\"y\"] }", "allow = { jwt = [] }", "allow = { j = [\"x\"] }", ""]
    {
        assert_ne!(allow, parse(other), "{other}");
    }
}
