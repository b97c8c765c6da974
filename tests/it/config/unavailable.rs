//! Features that are not in this version are refused by name.

use super::{BASE, base_with, errors_of};

#[test]
fn each_is_refused_by_name_with_what_to_do() {
    let cases = [
        (
            "[audit]\nretention_days = 1",
            "audit.retention_days",
            "this key with store = \"sqlite\"",
            "remove it",
        ),
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
