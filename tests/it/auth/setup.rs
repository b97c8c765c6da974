//! Configurations that can't be used, and shared secrets.

use jsonwebtoken::Algorithm;
use tollgate::auth::Reason;

use super::support::{Gate, ISSUER, TestKey, invalid, issuer, jwks};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

async fn refused(toml: &str) -> String {
    match Gate::from_toml(toml).await {
        Ok(_) => panic!("this configuration is taken: {toml}"),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn each_mistake_is_told_by_its_key() {
    let url = "jwks_url = \"https://127.0.0.1:1/jwks.json\"\n";
    let mistakes = [
        (String::new(), "auth.issuers: "),
        (format!("jwks_refresh_s = 0\n{}", issuer(url)), "auth.jwks_refresh_s: "),
        (format!("jwks_max_stale_s = 1\n{}", issuer(url)), "auth.jwks_max_stale_s: "),
        (issuer(url) + &issuer(url), "auth.issuers[1].issuer: "),
        (issuer(url).replace(ISSUER, ""), "auth.issuers[0].issuer: "),
        (issuer(url).replace("\"tollgate\"", ""), "auth.issuers[0].audience: "),
        (issuer(url).replace("\"tollgate\"", "\"\""), "auth.issuers[0].audience: "),
        (issuer(&format!("algorithms = []\n{url}")), "auth.issuers[0].algorithms: "),
        (issuer(&format!("algorithms = [\"none\"]\n{url}")), "auth.issuers[0].algorithms: "),
        (issuer(&format!("algorithms = [\"HS256\"]\n{url}")), "auth.issuers[0].algorithms: "),
        (
            issuer(&format!("algorithms = [\"HS256\", \"EdDSA\"]\nhmac_secret = \"{SECRET}\"\n")),
            "auth.issuers[0].algorithms: ",
        ),
        (issuer(&format!("{url}header = \"two words\"\n")), "auth.issuers[0].header: "),
        (issuer(""), "auth.issuers[0].jwks_url: "),
        (issuer(&format!("{url}jwks_file = \"jwks.json\"\n")), "auth.issuers[0].jwks_url: "),
        (issuer("jwks_file = \"/nowhere/jwks.json\"\n"), "auth.issuers[0].jwks_file: "),
        (
            issuer(&format!("{url}claims = {{ tier = \"a..b\" }}\n")),
            "auth.issuers[0].claims.tier: ",
        ),
        (
            issuer(&format!("{url}defaults = {{ capabilities = [\"root\"] }}\n")),
            "auth.issuers[0].defaults.capabilities: ",
        ),
        (
            issuer(&format!("{url}defaults = {{ trust = \"L9\" }}\n")),
            "auth.issuers[0].defaults.trust: ",
        ),
    ];
    for (toml, expected) in mistakes {
        let error = refused(&toml).await;
        assert!(error.starts_with(expected), "{error}\n{toml}");
    }
}

#[tokio::test]
async fn jwks_come_over_https_or_from_this_machine() {
    let refused_urls = [
        "http://bff.example/jwks.json",
        "http://127.0.0.1.example/jwks.json",
        "http://localhost.example/jwks.json",
        "http://10.0.0.1/jwks.json",
        "http://[2001:db8::1]/jwks.json",
        "ftp://127.0.0.1/jwks.json",
        "file:///etc/passwd",
        "https://user:password@bff.example/jwks.json",
        "jwks.json",
        "",
    ];
    for url in refused_urls {
        let error = refused(&issuer(&format!("jwks_url = \"{url}\""))).await;
        assert!(error.starts_with("auth.issuers[0].jwks_url: "), "{url}: {error}");
        assert!(!error.contains("password@"), "{error}");
    }
    for url in
        ["http://127.0.0.1:1/", "http://127.9.9.9:1/", "http://[::1]:1/", "http://localhost:1/"]
    {
        Gate::from_toml(&issuer(&format!("jwks_url = \"{url}\""))).await.expect(url);
    }
}

#[tokio::test]
async fn a_file_that_is_no_jwk_set_is_told_at_the_start() {
    let secret = r#"{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}"#;
    for text in ["", "{}", "{\"keys\":[]}", secret] {
        let Err(error) = Gate::with_file(text, "").await else { panic!("{text} is taken") };
        assert!(error.to_string().starts_with("auth.issuers[0].jwks_file: "), "{error}");
    }
}

#[tokio::test]
async fn a_configured_secret_verifies_with_the_listed_algorithm_and_any_kid() {
    let toml = issuer(&format!("algorithms = [\"HS256\"]\nhmac_secret = \"{SECRET}\"\n"));
    let gate = Gate::from_toml(&toml).await.unwrap();
    assert_eq!(gate.authenticator.ready(), Ok(()));
    let mut key = TestKey::hmac(SECRET.as_bytes());
    key.jwk = serde_json::json!({});
    gate.try_token(key.token()).await.unwrap();
    gate.try_token(key.draft().header("kid", "dev").sign()).await.unwrap();
    let wrong = TestKey::hmac(b"another secret of thirty-two byte");
    let mut draft = key.draft();
    draft.key = wrong;
    let error = gate.try_token(draft.sign()).await.unwrap_err();
    assert_eq!(error, invalid(Reason::BadSignature));
    let longer = key.clone().with_algorithm(Algorithm::HS512).token();
    let error = gate.try_token(longer).await.unwrap_err();
    assert_eq!(error, invalid(Reason::AlgorithmNotAllowed));
}

#[tokio::test]
async fn a_secret_is_as_long_as_its_hash_and_is_never_shown() {
    for (algorithm, len) in [("HS256", 32), ("HS384", 48), ("HS512", 64)] {
        let of_len = |len: usize| {
            let secret = "s3cr".repeat(16)[..len].to_owned();
            issuer(&format!("algorithms = [\"{algorithm}\"]\nhmac_secret = \"{secret}\"\n"))
        };
        let error = refused(&of_len(len - 1)).await;
        assert!(error.starts_with("auth.issuers[0].hmac_secret: "), "{error}");
        assert!(!error.contains("s3cr"), "{error}");
        let gate = Gate::from_toml(&of_len(len)).await.expect(algorithm);
        assert!(!format!("{:?}", gate.authenticator).contains("s3cr"));
    }
}

#[tokio::test]
async fn background_tasks_end_when_told_to() {
    let key = TestKey::ed25519("one");
    let gate = Gate::with_file(&jwks([&key]), "").await.unwrap();
    gate.try_token(key.token()).await.unwrap();
    gate.shut_down().await;
}
