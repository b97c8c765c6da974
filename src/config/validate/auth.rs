//! `[auth]` and `[capabilities]`.

use std::fs::File;

use http::HeaderName;
use secrecy::ExposeSecret;

use super::{bounds, name, server::unreadable, shown, url};
use crate::{
    config::{
        AuthConfig, ClaimDefaults, ClaimsConfig, Config, DenyConfig, IssuerConfig,
        findings::Findings,
    },
    domain::{TrustLevel, Vocabulary},
};

/// Further claims that one issuer may map; each becomes part of every audit row.
const MAX_EXTRA_CLAIMS: usize = 32;

const ASYMMETRIC: [&str; 9] =
    ["EdDSA", "ES256", "ES384", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512"];

/// Each with the least bytes of its secret, the size of its hash (RFC 7518 §3.2).
const HMAC: [(&str, usize); 3] = [("HS256", 32), ("HS384", 48), ("HS512", 64)];

pub(super) fn check(config: &Config, found: &mut Findings) {
    let auth = &config.auth;
    bounds(
        found,
        "auth",
        &[
            ("leeway_s", auth.leeway_s, 0..=300),
            ("max_token_lifetime_s", auth.max_token_lifetime_s, 1..=31_536_000),
            ("jwks_max_stale_s", auth.jwks_max_stale_s, 0..=2_592_000),
            ("jwks_refresh_s", auth.jwks_refresh_s, 1..=86_400),
        ],
    );
    check_vocabulary(&config.capabilities.vocabulary, found);
    check_deny(&auth.deny, found);
    check_issuers(auth, found);
    for (i, issuer) in auth.issuers.iter().enumerate() {
        let key = format!("auth.issuers[{i}]");
        check_keys(issuer, &key, found);
        check_algorithms(issuer, &key, found);
        check_claims(&issuer.claims, &key, found);
        check_defaults(&issuer.defaults, config, &key, found);
    }
}

fn check_vocabulary(vocabulary: &[String], found: &mut Findings) {
    let key_of = |i| format!("capabilities.vocabulary[{i}]");
    for (i, word) in vocabulary.iter().enumerate() {
        let parts = word.split_once(':');
        let shaped = word.len() <= 64
            && parts.is_some_and(|(kind, what)| name::PLAIN.fits(kind) && name::PLAIN.fits(what));
        let message =
            format!("{} is no capability; write word:word, 1 to 64 characters", shown(word));
        found.require(shaped, key_of(i), message);
        found.require(
            !word.starts_with("budget:"),
            key_of(i),
            "budget: capabilities carry a number and are always known; take it out",
        );
    }
    name::check_unique(vocabulary.iter().map(String::as_str), key_of, found);
}

fn check_deny(deny: &DenyConfig, found: &mut Findings) {
    for (list, entries) in [("jti", &deny.jti), ("sub", &deny.sub), ("kid", &deny.kid)] {
        for (i, entry) in entries.iter().enumerate() {
            let key = format!("auth.deny.{list}[{i}]");
            found.require(!entry.is_empty(), key, "is empty and denies nothing; take it out");
        }
    }
}

fn check_issuers(auth: &AuthConfig, found: &mut Findings) {
    let nobody = "nobody could call; add one [[auth.issuers]]";
    found.require(!auth.issuers.is_empty(), "auth.issuers", nobody);
    let key_of = |i| format!("auth.issuers[{i}].issuer");
    name::check_unique(auth.issuers.iter().map(|issuer| issuer.issuer.as_str()), key_of, found);
    for (i, issuer) in auth.issuers.iter().enumerate() {
        found.require(
            !issuer.issuer.is_empty(),
            key_of(i),
            "is empty; give the `iss` of its tokens, exactly",
        );
        let audience = format!("auth.issuers[{i}].audience");
        found.require(
            !issuer.audience.is_empty() && issuer.audience.iter().all(|name| !name.is_empty()),
            audience,
            "must name at least one `aud`, and none that is empty",
        );
        found.require(
            HeaderName::from_bytes(issuer.header.as_bytes()).is_ok(),
            format!("auth.issuers[{i}].header"),
            "is no name of a header; use \"authorization\" or another (RFC 9110 §5.1)",
        );
    }
}

/// Exactly one source of keys, and that one sound.
fn check_keys(issuer: &IssuerConfig, key: &str, found: &mut Findings) {
    let sources =
        [issuer.jwks_url.is_some(), issuer.jwks_file.is_some(), issuer.hmac_secret.is_some()];
    found.require(
        sources.iter().filter(|given| **given).count() == 1,
        key,
        "needs exactly one of jwks_url, jwks_file and hmac_secret",
    );
    if let Some(url) = &issuer.jwks_url {
        let key = format!("{key}.jwks_url");
        match url::parse(url) {
            Ok(url) => found.require(
                url.scheme_str() == Some("https") || url::is_loopback(&url),
                key,
                "must be https; whoever changes the keys on the way signs any token \
                 (plain http only on loopback)",
            ),
            Err(message) => found.add(key, message),
        }
    }
    if let Some(path) = &issuer.jwks_file
        && let Err(source) = File::open(path)
    {
        found.add(format!("{key}.jwks_file"), unreadable(path, &source));
    }
}

fn check_algorithms(issuer: &IssuerConfig, key: &str, found: &mut Findings) {
    found.require(
        !issuer.algorithms.is_empty(),
        format!("{key}.algorithms"),
        "is empty; name the algorithms of its tokens, such as \"EdDSA\"",
    );
    // With none of them given, or several, that is the error.
    let by_secret = issuer.hmac_secret.is_some();
    let by_jwks = issuer.jwks_url.is_some() || issuer.jwks_file.is_some();
    for (i, algorithm) in issuer.algorithms.iter().enumerate() {
        let is_hmac = HMAC.iter().any(|(name, _)| name == algorithm);
        let is_asymmetric = ASYMMETRIC.contains(&algorithm.as_str());
        let problem = match algorithm.as_str() {
            "ES512" => "ES512 is not supported; use ES384 or EdDSA",
            _ if algorithm.eq_ignore_ascii_case("none") => {
                "tokens without a signature are never believed; name a real algorithm"
            }
            _ if is_hmac && !by_secret && by_jwks => {
                "an HMAC algorithm goes with hmac_secret alone, never with a JWKS"
            }
            _ if is_asymmetric && !by_jwks && by_secret => {
                "goes with a JWKS; hmac_secret is for HS256, HS384 and HS512"
            }
            _ if is_hmac || is_asymmetric => continue,
            _ => {
                "is not an algorithm that tollgate verifies; it does EdDSA, ES256, ES384, \
                 RS256, RS384, RS512, PS256, PS384, PS512 and, with hmac_secret, HS256, HS384, \
                 HS512"
            }
        };
        found.add(format!("{key}.algorithms[{i}]"), problem);
    }
    check_secret(issuer, key, found);
}

fn check_secret(issuer: &IssuerConfig, key: &str, found: &mut Findings) {
    let Some(secret) = &issuer.hmac_secret else { return };
    let wanted = HMAC.iter().filter(|(name, _)| issuer.algorithms.iter().any(|a| a == name));
    let least = wanted.map(|(_, bytes)| *bytes).max().unwrap_or(32);
    found.require(
        secret.expose_secret().len() >= least,
        format!("{key}.hmac_secret"),
        format!("is too short for its algorithms; give {least} random bytes or more"),
    );
}

fn check_claims(claims: &ClaimsConfig, key: &str, found: &mut Findings) {
    let own = [
        ("subject", &claims.subject),
        ("tier", &claims.tier),
        ("capabilities", &claims.capabilities),
        ("agent", &claims.agent),
        ("trust", &claims.trust),
    ];
    let message = "is no path to a claim; write a name, or names with dots between them";
    for (fact, path) in own {
        found.require(is_path(path), format!("{key}.claims.{fact}"), message);
    }
    for (fact, path) in &claims.extra {
        let key = format!("{key}.claims.extra.{fact}");
        name::TOOL.check(fact, key.clone(), found);
        found.require(is_path(path), key, message);
    }
    found.require(
        claims.extra.len() <= MAX_EXTRA_CLAIMS,
        format!("{key}.claims.extra"),
        format!("maps more than {MAX_EXTRA_CLAIMS} claims; keep those that you need"),
    );
}

/// Names with dots between them, none empty; a backslash takes the next character as it is.
fn is_path(path: &str) -> bool {
    let mut in_name = false;
    let mut chars = path.chars();
    while let Some(c) = chars.next() {
        match c {
            '.' if !in_name => return false,
            '.' => in_name = false,
            '\\' if chars.next().is_none() => return false,
            _ => in_name = true,
        }
    }
    in_name
}

fn check_defaults(defaults: &ClaimDefaults, config: &Config, key: &str, found: &mut Findings) {
    let key = format!("{key}.defaults");
    if let Some(tier) = &defaults.tier
        && found.knows_names("tiers", config.tiers.len())
        && !config.tiers.iter().any(|known| known.name == *tier)
    {
        let message = format!("there is no tier {}; add it to [[tiers]]", shown(tier));
        found.add(format!("{key}.tier"), message);
    }
    let vocabulary = config.capabilities.vocabulary();
    // `budget:` ones are for `unavailable` to judge.
    check_known(&defaults.capabilities, &vocabulary, &format!("{key}.capabilities"), found);
    if let Some(trust) = &defaults.trust {
        found.require(
            trust.parse::<TrustLevel>().is_ok(),
            format!("{key}.trust"),
            "is no trust level; write L0, L1, L2 or L3",
        );
    }
}

/// Notes each capability that the vocabulary has no word for (DESIGN §6).
pub(super) fn check_known(
    names: &[String],
    vocabulary: &Vocabulary,
    key: &str,
    found: &mut Findings,
) {
    let words = vocabulary.names().count();
    if found.in_hole("capabilities.vocabulary")
        || (0..words).any(|i| found.in_hole(&format!("capabilities.vocabulary[{i}]")))
    {
        return;
    }
    for (i, name) in names.iter().enumerate() {
        if vocabulary.get(name).is_none() {
            let message = format!(
                "{} is not in capabilities.vocabulary; add it there, or use one that is",
                shown(name)
            );
            found.add(format!("{key}[{i}]"), message);
        }
    }
}
