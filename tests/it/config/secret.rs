//! Secrets never show.

use std::{fs::Permissions, os::unix::fs::PermissionsExt};

use tollgate::config;

use super::{BASE, TempFile, base_with, load};

const SECRET: &str = "s3cr3t-v4lue";

/// All that `text` is told with `env`, and how it debugs.
fn told(text: &str, env: &[(&str, &str)]) -> String {
    match load(text, env) {
        Ok(config) => format!("{config:?}"),
        Err(errors) => format!("{errors}\n{errors:?}"),
    }
}

#[test]
fn no_error_and_no_debug_output_shows_a_secret() {
    let key = "api_key = \"a-provider-key\"";
    let jwks = "jwks_url = \"https://bff.example/jwks.json\"";
    let texts = [
        base_with(key, &format!("api_key = \"{SECRET}\"")),
        base_with(key, &format!("api_key = \"{SECRET}\\n\"")),
        base_with(key, &format!("api_key = [\"{SECRET}\"]")),
        base_with(key, &format!("api_key = {{ {SECRET} = \"{SECRET}\" }}")),
        base_with(key, &format!("api_key = {SECRET}")),
        base_with(key, &format!("api_key = \"{SECRET}")),
        base_with(key, &format!("api_keys = \"{SECRET}\"")),
        base_with(key, &format!("kinds = \"{SECRET}\"")),
        base_with(jwks, &format!("hmac_secret = \"{SECRET}\"")),
        base_with("https://up.example", &format!("https://u:{SECRET}@up.example")),
        base_with("https://up.example", &format!("{SECRET}://")),
        base_with("https://bff.example/jwks", &format!("http://u:{SECRET}@bff.example/jwks")),
        base_with("[server]", &format!("[budget]\nredis_url = \"{SECRET}\"\n[server]")),
        base_with("[server]", &format!("[budget]\nnotify_secret = \"{SECRET}\"\n[server]")),
        base_with("[server]", &format!("[budget]\nnotify_secret = \"whsec_{SECRET}\"\n[server]")),
        base_with("[server]", &format!("[budget]\nnotify_url = \"http://{SECRET}\"\n[server]")),
        base_with(
            "[server]",
            &format!("[budget]\nnotify_url = \"https://a:{SECRET}@b\"\n[server]"),
        ),
        base_with("[server]", &format!("[audit]\nurl = \"{SECRET}\"\n[server]")),
        base_with("[server]", &format!("[audit]\nurl = \"postgres://u:{SECRET}@h\"\n[server]")),
        base_with("[server]", &format!("[audit]\nurl = \"postgres://u:{SECRET}@h/d\"\n[server]")),
        base_with(
            "[server]",
            &format!("[audit]\nowner_url = \"postgres://u@h/d?x={SECRET}\"\n[server]"),
        ),
    ];
    for text in &texts {
        let told = told(text, &[]);
        assert!(!told.contains(SECRET), "{text}\n---\n{told}");
    }
    let variables = [
        "TOLLGATE__PROVIDERS__0__API_KEY",
        "TOLLGATE__PROVIDERS__0__KIND",
        "TOLLGATE__PROVIDERS__0__BASE_URL",
        "TOLLGATE__SERVER__LISTEN",
        "TOLLGATE__SERVER__DRAIN_S",
        "TOLLGATE__AUTH__ISSUERS__0__HMAC_SECRET",
        "TOLLGATE__AUTH",
        "TOLLGATE__PROVIDERS",
        "TOLLGATE__NONE",
    ];
    for variable in variables {
        let told = told(BASE, &[(variable, SECRET)]);
        assert!(!told.contains(SECRET), "{variable}\n---\n{told}");
    }
}

#[test]
fn an_integer_for_a_secret_is_refused_without_its_digits() {
    let told = told(&base_with("api_key = \"a-provider-key\"", "api_key = 987654321"), &[]);
    assert!(told.contains("providers[0].api_key: must be a string (in quotes), not an integer"));
    assert!(!told.contains("987654321"), "{told}");
}

#[test]
fn a_secret_in_a_file_that_others_can_read_is_a_warning() {
    let file = TempFile::new(BASE);
    let warnings = |mode| {
        std::fs::set_permissions(file.path(), Permissions::from_mode(mode)).unwrap();
        config::inspect(file.path(), []).unwrap().warnings
    };
    let readable = warnings(0o644);
    assert_eq!(readable.len(), 1);
    assert!(readable[0].starts_with("providers[0].api_key: "), "{readable:?}");
    assert!(!readable[0].contains("a-provider-key"), "{readable:?}");
    assert!(warnings(0o640).is_empty());
}

#[test]
fn a_secret_out_of_the_environment_is_no_warning() {
    let file = TempFile::new(&base_with("a-provider-key", "${KEY}"));
    std::fs::set_permissions(file.path(), Permissions::from_mode(0o644)).unwrap();
    let loaded = config::inspect(file.path(), super::pairs(&[("KEY", "k")])).unwrap();
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);

    file.write(BASE);
    let env = super::pairs(&[("TOLLGATE__PROVIDERS__0__API_KEY", "k")]);
    let loaded = config::inspect(file.path(), env).unwrap();
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
}
