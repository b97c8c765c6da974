//! `${VAR}` and `TOLLGATE__SECTION__KEY`.

use secrecy::ExposeSecret;
use tollgate::config::{Config, Place};

use super::{BASE, base_with, load};

/// The one error of `text` with `env`.
fn error(text: &str, env: &[(&str, &str)]) -> tollgate::config::ConfigError {
    let errors = load(text, env).expect_err("should be refused");
    assert_eq!(errors.iter().count(), 1, "{errors}");
    errors.iter().next().unwrap().clone()
}

fn api_key(config: &Config) -> &str {
    config.providers[0].api_key.as_ref().unwrap().expose_secret()
}

#[test]
fn a_variable_is_filled_in_anywhere_in_a_string() {
    let text = base_with("https://up.example/v1", "https://${HOST}/${VERSION}");
    let config = load(&text, &[("HOST", "h.example"), ("VERSION", "v2")]).unwrap();
    assert_eq!(config.providers[0].base_url.as_deref(), Some("https://h.example/v2"));
}

#[test]
fn a_variable_s_own_dollars_are_left_alone() {
    let text = base_with("a-provider-key", "${KEY}");
    assert_eq!(api_key(&load(&text, &[("KEY", "a${KEY}b")]).unwrap()), "a${KEY}b");
}

#[test]
fn two_dollars_stand_for_one_before_a_brace() {
    let text = base_with("a-provider-key", "a$${KEY}$b$$c");
    assert_eq!(api_key(&load(&text, &[]).unwrap()), "a${KEY}$b$$c");
}

#[test]
fn a_variable_that_is_not_set_is_named_with_its_key_and_place() {
    let error = error(&base_with("a-provider-key", "${NO_KEY}"), &[("OTHER", "x")]);
    assert_eq!(error.key, "providers[0].api_key");
    assert_eq!(error.place, Some(Place::File { line: 20, column: 1 }));
    assert!(error.message.contains("the environment variable NO_KEY is not set"), "{error}");
}

#[test]
fn a_brace_that_opens_no_variable_is_an_error() {
    for text in ["${", "${}", "${A B}", "${1A}", "x${A"] {
        let error = error(&base_with("a-provider-key", text), &[("A", "x")]);
        assert!(error.message.contains("\"$${\""), "{error}");
    }
}

#[test]
fn a_variable_may_give_a_number() {
    let config = load(&base_with("leeway_s = 30", "leeway_s = \"${LEEWAY}\""), &[("LEEWAY", "7")]);
    assert_eq!(config.unwrap().auth.leeway_s, 7);
}

#[test]
fn the_environment_overrides_every_type_of_value() {
    let env = [
        ("TOLLGATE__SERVER__LISTEN", "0.0.0.0:1234"),
        ("TOLLGATE__SERVER__DRAIN_S", "1_5"),
        ("TOLLGATE__SERVER__TRUSTED_PROXIES", "[\"10.0.0.0/8\"]"),
        ("TOLLGATE__TELEMETRY__LOG_FORMAT", "text"),
        ("TOLLGATE__AUTH__ISSUERS__0__AUDIENCE", "['a', 'b']"),
        ("TOLLGATE__PROVIDERS__0__API_KEY", "12345"),
        ("TOLLGATE__MODELS__0__PRICE", "{ input = 3, output = 4 }"),
        ("TOLLGATE__TIERS__0__LIMITS__0__CONCURRENT", "9"),
        ("TOLLGATE_UNRELATED", "x"),
    ];
    let config = load(BASE, &env).unwrap();
    assert_eq!(config.server.listen.port(), 1234);
    assert_eq!(config.server.drain_s, 15);
    assert_eq!(config.server.trusted_proxies.len(), 1);
    assert_eq!(config.auth.issuers[0].audience, ["a", "b"]);
    assert_eq!(api_key(&config), "12345", "text stays text where text is wanted");
    assert_eq!(config.models[0].price().unwrap().output, 4_000_000);
    assert_eq!(config.tiers[0].limits[0].concurrent, Some(9));
    assert_eq!(config.tiers[0].limits[0].requests_per_minute, Some(60), "the rest stays");
}

#[test]
fn text_that_reads_as_toml_stays_as_it_is_where_text_is_wanted() {
    for text in ["true", "[1]", "\"quoted\"", "a${B}c", "1979-05-27"] {
        let config = load(BASE, &[("TOLLGATE__PROVIDERS__0__API_KEY", text)]).unwrap();
        assert_eq!(api_key(&config), text);
    }
}

#[test]
fn the_next_index_appends_to_an_array() {
    let mut env = vec![];
    let variables: Vec<(String, String)> = (1..12)
        .flat_map(|i| {
            let field =
                |name: &str, value: String| (format!("TOLLGATE__TOOLS__{i}__{name}"), value);
            [field("NAME", format!("tool_{i}")), field("REQUIRES", "['fleet:read']".to_owned())]
        })
        .collect();
    env.extend(variables.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    let config = load(BASE, &env).unwrap();
    assert_eq!(config.tools.len(), 12);
    assert_eq!(config.tools[10].name, "tool_10", "by number, not by letter");
}

#[test]
fn an_index_past_the_next_is_an_error() {
    let error = error(BASE, &[("TOLLGATE__PROVIDERS__2__API_KEY", "k")]);
    assert_eq!(error.place, Some(Place::Environment("TOLLGATE__PROVIDERS__2__API_KEY".to_owned())));
    assert!(error.message.contains("the next index is 1"), "{error}");
}

#[test]
fn a_way_through_something_else_is_an_error() {
    let through_text = error(BASE, &[("TOLLGATE__SERVER__LISTEN__PORT", "1")]);
    assert!(through_text.message.contains("goes through a value that is a string"));
    let without_index = error(BASE, &[("TOLLGATE__PROVIDERS__API_KEY", "1")]);
    assert!(without_index.message.contains("give the entry's index"), "{without_index}");
    let nothing = error(BASE, &[("TOLLGATE____X", "1")]);
    assert!(nothing.message.contains("names no key"), "{nothing}");
}

#[test]
fn a_parent_and_its_child_go_together() {
    let env = [
        ("TOLLGATE__TOOLS", "[{ name = 'a' }, { name = 'b' }]"),
        ("TOLLGATE__TOOLS__1__NAME", "c"),
    ];
    let config = load(BASE, &env).unwrap();
    let names: Vec<&str> = config.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["a", "c"]);
}

#[test]
fn an_unknown_key_of_the_environment_is_an_error_that_names_the_variable() {
    let error = error(BASE, &[("TOLLGATE__SERVER__LISTN", "x")]);
    assert_eq!(
        error.to_string(),
        "TOLLGATE__SERVER__LISTN: server.listn: there is no such key; did you mean \"listen\"?"
    );
}

#[test]
fn a_broken_rule_names_the_variable_that_broke_it() {
    let error = error(BASE, &[("TOLLGATE__AUTH__LEEWAY_S", "999")]);
    assert!(error.to_string().starts_with("TOLLGATE__AUTH__LEEWAY_S: auth.leeway_s: must be"));
}

#[test]
fn a_table_of_the_environment_is_checked_in_depth() {
    let error = error(BASE, &[("TOLLGATE__MODELS__0__PRICE", "{ input = 'x', output = 1 }")]);
    assert_eq!(error.key, "models[0].price.input");
}

#[test]
fn an_override_replaces_a_variable_that_is_not_set() {
    let text = base_with("a-provider-key", "${NO_KEY}");
    let config = load(&text, &[("TOLLGATE__PROVIDERS__0__API_KEY", "k")]).unwrap();
    assert_eq!(api_key(&config), "k");
}

#[test]
fn the_process_s_environment_can_be_listed() {
    assert!(tollgate::config::environment().any(|(name, _)| name == "PATH"));
}
