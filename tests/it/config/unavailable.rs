//! Features that are not in this version are refused by name.

use super::{BASE, base_with, errors_of};

#[test]
fn each_is_refused_by_name_with_what_to_do() {
    let cases = [
        ("[audit]\nstore = \"postgres\"", "audit.store", "\"postgres\"", "use \"sqlite\""),
        ("[audit]\nurl = \"u\"", "audit.url", "this key", "remove it"),
        ("[audit]\nretention_days = 1", "audit.retention_days", "this key", "remove it"),
        ("[audit]\ncontent = \"redacted\"", "audit.content", "\"redacted\"", "use \"none\""),
        (
            "[stream]\nreplay_store = \"redis\"",
            "stream.replay_store",
            "\"redis\"",
            "use \"memory\"",
        ),
        ("[telemetry]\ncapture_content = true", "telemetry.capture_content", "true", "use false"),
    ];
    for (section, key, what, remedy) in cases {
        let errors = errors_of(&format!("{BASE}\n{section}\n"));
        assert_eq!(errors.len(), 1, "{section}: {errors:?}");
        assert_eq!(errors[0].key, key);
        let message = format!("{what} is not in this version of tollgate; {remedy}");
        assert_eq!(errors[0].message, message);
    }
}

#[test]
fn so_are_those_within_arrays() {
    let errors = errors_of(&base_with("kind = \"openai\"", "kind = \"anthropic\""));
    assert_eq!(
        errors[0].to_string(),
        "18:1: providers[0].kind: \"anthropic\" is not in this version of tollgate; use \"openai\""
    );
}

#[test]
fn the_values_that_are_there_are_taken() {
    let text = format!(
        "{BASE}\n[budget]\nstore = \"memory\"\non_store_failure = \"deny\"\n[audit]\n\
         store = \"sqlite\"\ncontent = \"none\"\ndurability = \"strict\"\n[redaction]\n\
         requests = \"block\"\nresponses = \"redact\"\nrules = []\n[stream]\n\
         replay_store = \"memory\"\n[telemetry]\ncapture_content = false\n"
    );
    tollgate::config::Config::from_toml_str(&text).unwrap();
}

#[test]
fn a_key_whose_variable_is_not_set_is_refused_for_both_at_once() {
    let errors = errors_of(&format!("{BASE}\n[audit]\nurl = \"${{DATABASE_URL}}\"\n"));
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(errors.iter().all(|error| error.key == "audit.url"));
}
