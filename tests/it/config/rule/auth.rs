//! `[auth]` and `[capabilities]`.

use tollgate::config::Config;

use super::{refused, taken};
use crate::config::{TempFile, base_with, keys_of};

const JWKS: &str = "jwks_url = \"https://bff.example/jwks.json\"";
const ALGORITHMS: &str = "algorithms = [\"EdDSA\"]";

#[test]
fn an_issuer_has_exactly_one_source_of_keys() {
    let message = "exactly one of";
    refused(JWKS, "", "auth.issuers[0]", message);
    let file = TempFile::new("{}");
    let path = file.path().display();
    refused(JWKS, &format!("{JWKS}\njwks_file = \"{path}\""), "auth.issuers[0]", message);
    taken(JWKS, &format!("jwks_file = \"{path}\""));
    let gone = "jwks_file = \"/nonexistent/jwks.json\"";
    refused(JWKS, gone, "auth.issuers[0].jwks_file", "can't be read");
}

#[test]
fn hmac_and_asymmetric_algorithms_do_not_mix() {
    let key = "auth.issuers[0].algorithms[0]";
    refused(ALGORITHMS, "algorithms = [\"HS256\"]", key, "never with a JWKS");
    let secret = format!("hmac_secret = \"{}\"", "x".repeat(32));
    refused(JWKS, &secret, key, "goes with a JWKS");

    let hs256 = |bytes: usize, algorithm: &str| {
        let secret = format!("hmac_secret = \"{}\"", "x".repeat(bytes));
        base_with(JWKS, &secret).replace("\"EdDSA\"", &format!("\"{algorithm}\""))
    };
    for (algorithm, least) in [("HS256", 32), ("HS384", 48), ("HS512", 64)] {
        Config::from_toml_str(&hs256(least, algorithm)).unwrap();
        assert_eq!(keys_of(&hs256(least - 1, algorithm)), ["auth.issuers[0].hmac_secret"]);
    }
}

#[test]
fn algorithms_are_known_ones() {
    let key = "auth.issuers[0].algorithms[0]";
    for (algorithm, message) in [
        ("none", "without a signature"),
        ("None", "without a signature"),
        ("ES512", "ES512 is not supported"),
        ("eddsa", "is not an algorithm"),
        ("ES256K", "is not an algorithm"),
        ("", "is not an algorithm"),
    ] {
        refused(ALGORITHMS, &format!("algorithms = [\"{algorithm}\"]"), key, message);
    }
    refused(ALGORITHMS, "algorithms = []", "auth.issuers[0].algorithms", "is empty");
    for algorithm in
        ["EdDSA", "ES256", "ES384", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512"]
    {
        taken(ALGORITHMS, &format!("algorithms = [\"{algorithm}\"]"));
    }
}

#[test]
fn a_jwks_comes_over_https_or_loopback() {
    let key = "auth.issuers[0].jwks_url";
    for (url, message) in [
        ("http://bff.example/jwks", "must be https"),
        ("http://127.0.0.1.example/jwks", "must be https"),
        ("http://10.0.0.1/jwks", "must be https"),
        ("https://u:p@bff.example/jwks", "credentials"),
        ("https://bff.example/jwks#x", "fragment"),
        ("ftp://bff.example/jwks", "https:// or http://"),
        ("/jwks", "https:// or http://"),
        ("not a url", "is not a URL"),
        ("https://", "is not a URL"),
        ("https://bff.example:99999/", "port"),
        ("https://bff.example:0/", "port"),
    ] {
        refused(JWKS, &format!("jwks_url = \"{url}\""), key, message);
    }
    for url in [
        "http://localhost:8081/j",
        "http://127.0.0.5/j",
        "http://[::1]:99/j",
        "https://[2001:db8::1]/j?x=1",
    ] {
        taken(JWKS, &format!("jwks_url = \"{url}\""));
    }
}

#[test]
fn an_issuer_s_words_are_there() {
    let issuer = "issuer = \"https://bff.example\"";
    refused(issuer, "issuer = \"\"", "auth.issuers[0].issuer", "is empty");
    let audience = "audience = [\"tollgate\"]";
    refused(audience, "audience = []", "auth.issuers[0].audience", "at least one");
    refused(audience, "audience = [\"a\", \"\"]", "auth.issuers[0].audience", "none that is empty");
    let header = format!("{audience}\nheader = \"no header\"");
    refused(audience, &header, "auth.issuers[0].header", "no name of a header");
    taken(audience, &format!("{audience}\nheader = \"cf-access-jwt-assertion\""));
}

#[test]
fn claims_are_paths() {
    let claims = |line: &str| format!("{JWKS}\n[auth.issuers.claims]\n{line}");
    for path in ["", ".", "a.", ".a", "a..b", "a\\\\"] {
        let line = format!("tier = \"{path}\"");
        refused(JWKS, &claims(&line), "auth.issuers[0].claims.tier", "no path");
    }
    for path in ["tier", "realm_access.roles", "https://x\\\\.example/roles", "a\\\\\\\\"] {
        taken(JWKS, &claims(&format!("capabilities = \"{path}\"")));
    }
    let extra = "auth.issuers[0].claims.extra";
    refused(JWKS, &claims("extra = { division = \"\" }"), &format!("{extra}.division"), "no path");
    let many: Vec<String> = (0..33).map(|n| format!("c{n} = \"c\"")).collect();
    let line = format!("extra = {{ {} }}", many.join(", "));
    refused(JWKS, &claims(&line), extra, "more than 32");
}

#[test]
fn defaults_name_what_there_is() {
    let defaults = |line: &str| format!("{JWKS}\ndefaults = {{ {line} }}");
    let key = "auth.issuers[0].defaults";
    refused(JWKS, &defaults("tier = \"gold\""), &format!("{key}.tier"), "no tier \"gold\"");
    refused(JWKS, &defaults("trust = \"L4\""), &format!("{key}.trust"), "L0, L1, L2 or L3");
    let unknown = "capabilities = [\"fleet:read\", \"fleet:sink\"]";
    let message = "\"fleet:sink\" is not in capabilities.vocabulary";
    refused(JWKS, &defaults(unknown), &format!("{key}.capabilities[1]"), message);
    taken(JWKS, &defaults("tier = \"pro\", trust = \"L1\", capabilities = [\"fleet:read\"]"));
}

#[test]
fn empty_denials_are_refused() {
    let deny = "leeway_s = 30\ndeny = { jti = [\"a\", \"\"] }";
    refused("leeway_s = 30", deny, "auth.deny.jti[1]", "denies nothing");
}

#[test]
fn the_vocabulary_has_words_of_one_shape() {
    let vocabulary = "\"model:reasoning\", \"fleet:read\"";
    let key = "capabilities.vocabulary[2]";
    let long = format!("a:{}", "b".repeat(63));
    for word in ["", "fleet", "fleet:", ":read", "a:b:c", "a b:c", "ä:b", "*", &long] {
        refused(vocabulary, &format!("{vocabulary}, \"{word}\""), key, "write word:word");
    }
    refused(vocabulary, &format!("{vocabulary}, \"budget:x\""), key, "always known");
    refused(vocabulary, &format!("{vocabulary}, \"fleet:read\""), key, "is taken by");
    taken(vocabulary, &format!("{vocabulary}, \"a:{}\"", "b".repeat(62)));
}
