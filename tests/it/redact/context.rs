//! Tier 2: what is assigned to a name that says that it is secret.

use tollgate::redact::{Counts, Depth};

use super::{SMALL, hits};

/// What stands between `«»` is to be found.
#[test]
fn values_that_look_secret_are_found() {
    for text in [
        "password = «hunter2hunter2»",
        "DB_PASSWORD=«S3cr3t!Pass»\nPORT=5432",
        "export API_KEY=«0a1b2c3d4e5f60718293»",
        "\"password\": \"«hunter2hunter2»\", \"user\": \"me\"",
        "{'password': '«hunter2hunter2»'}",
        "\\\"password\\\": \\\"«hunter2hunter2»\\\"",
        "'password' => '«hunter2hunter2»',",
        "password := \"«hunter2hunter2»\"",
        "dbPassword: «hunter2hunter2»",
        "config[\"password\"] = '«hunter2hunter2»'",
        "const password: string = '«hunter2hunter2»';",
        "X-Api-Key: «0a1b2c3d4e5f60718293»",
        "https://host/path?token=«0a1b2c3d4e5f60718293»&x=1",
        "password = «Tr0ub4dor&3xyzQ», they say",
        "PASSWORD=«q9w8e7r6t5»&&run",
        "https://host/?token=«0a1b2c3d4e5f60718293»&amp;x=1",
        "apiKey = `«q9w8e7r6t5»`",
        "api-key: «q9w8e7r6t5»",
        "client.secret=«q9w8e7r6t5»",
        "secret: «AbCdEfGhIjKlMnOpQrStUv»",
        "pass: «q9w8e7r6t5»",
        "password=«q9w8\u{200b}e7r6t5»",
    ] {
        let plain = text.replace(['«', '»'], "");
        let secret = text.split(['«', '»']).nth(1).unwrap();
        let expected = vec![("password".to_owned(), secret)];
        assert_eq!(hits(&SMALL, &plain, Depth::Complete), expected, "{text}");
        assert_eq!(hits(&SMALL, &plain, Depth::Formats), vec![]);
    }
}

#[test]
fn what_is_no_secret_passes() {
    for text in [
        "password = getPassword()",
        "password = os.environ[\"DB_PASSWORD\"]",
        "password = process.env.DB_PASSWORD_2",
        "password: ${DB_PASSWORD_1}",
        "password: \"${DB_PASSWORD_1}\"",
        "password=$DB_PASSWORD_1",
        "password: <your-password-1>",
        "password: {{ vault.password_1 }}",
        "password=%DB_PASSWORD_1%",
        "password: xxxxxxxxxxxx1",
        "password: ************",
        "token: sk-0123...",
        "password: string",
        "password: String = String::new()",
        "token: Option<String1234567>",
        "\"password\": \"required\"",
        "\"password\": \"The password of the user, at least 8 characters\"",
        "password = \"fake1234fake\"",
        "secret: /run/secrets/db-password",
        "secret: ./secrets/key1.pem",
        "token: https://example.com/token/1234567",
        "secret_name: my-app-secret-v2",
        "token: my-app-token-v2",
        "max_tokens: 1234567890",
        "token = 1234567890",
        "password == \"hunter2hunter2\"",
        "password != \"hunter2hunter2\"",
        "compass = \"hunter2hunter2\"",
        "passwords are like: hunter2hunter2",
        "token::hunter2hunter2",
        "password: short1",
        "password: \n  hunter2hunter2",
        "password = self.password2",
        "password = &password_2",
        "secret: [REDACTED:password:0a1b2c3d]",
        "[REDACTED:token:0a1b2c3d]",
        "[REDACTED:acme-token:0a1b2c3d]",
        "password: \"abc[REDACTED:password:0a1b2c3d]def\"",
        "password=",
        "password",
        "=",
        ":",
        "",
    ] {
        assert_eq!(hits(&SMALL, text, Depth::Complete), vec![], "{text}");
    }
}

#[test]
fn a_known_format_goes_first() {
    let text = "password = ab_ab1ab1 token='x1y2z3w4v5 ab_ab1ab1' secret=q9w8e7r6t5";
    let found = hits(&SMALL, text, Depth::Complete);
    let names: Vec<_> = found.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["exact", "exact", "password"], "{found:?}");
}

#[test]
fn a_value_of_any_characters_is_cut_out_whole() {
    let mut counts = Counts::new();
    let text = "password=«q9w8-e7/r6+t5=» \u{e9} password=\"q9w8\\\"e7r6\"";
    let plain = text.replace(['«', '»'], "");
    let out = SMALL.redact_text(&plain, Depth::Complete, &mut counts);
    assert!(out.starts_with("password=[REDACTED:password:") && out.ends_with("]\""), "{out}");
    assert_eq!(counts["password"], 2);
}
