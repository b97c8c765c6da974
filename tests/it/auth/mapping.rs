//! From claims to a caller.

use serde_json::{Value, json};
use tollgate::{
    auth::{ClaimPath, InvalidClaimPath, Reason},
    domain::{Caller, TrustLevel},
};

use super::support::{Gate, ISSUER, TestKey, invalid, passes, refusal};

fn capabilities(caller: &Caller) -> String {
    caller.capabilities.to_string()
}

/// What a token says of its caller where the issuer's TOML is `toml`.
async fn caller_of(toml: &str, claims: Value) -> Result<Caller, tollgate::auth::AuthError> {
    let key = TestKey::ed25519("one");
    let gate = Gate::with_issuer([&key], toml).await;
    let mut draft = key.draft();
    for name in ["tier", "agent", "trust", "capabilities"] {
        draft = draft.without_claim(name);
    }
    for (name, value) in claims.as_object().unwrap() {
        draft.claims[name] = value.clone();
    }
    gate.try_token(draft.sign()).await.map(|caller| (*caller).clone())
}

#[tokio::test]
async fn every_fact_of_a_full_token_is_there() {
    let caller = passes(|draft| draft).await;
    assert_eq!(caller.subject, "user-1");
    assert_eq!(caller.issuer, ISSUER);
    assert_eq!(caller.tier, "pro");
    assert_eq!(caller.agent.as_deref(), Some("coder"));
    assert_eq!(caller.trust, TrustLevel::L2);
    assert_eq!(capabilities(&caller), "code:read model:reasoning");
    assert!(caller.extra.is_empty());
}

#[tokio::test]
async fn a_token_that_says_nothing_gets_nothing() {
    let caller = caller_of("", json!({})).await.unwrap();
    assert_eq!(caller.tier, "");
    assert!(caller.capabilities.is_empty());
    assert_eq!(caller.agent, None);
    assert_eq!(caller.trust, TrustLevel::L0);
}

#[tokio::test]
async fn a_subject_is_required() {
    let error = refusal(|draft| draft.without_claim("sub")).await;
    assert_eq!(error, invalid(Reason::MissingSubject));
    let error = refusal(|draft| draft.claim("sub", "")).await;
    assert_eq!(error, invalid(Reason::MissingSubject));
}

#[tokio::test]
async fn claims_of_the_wrong_kind_are_refused() {
    let wrong = [
        ("tier", json!(1)),
        ("tier", json!(["pro"])),
        ("agent", json!({})),
        ("trust", json!("L4")),
        ("trust", json!("high")),
        ("trust", json!(4)),
        ("trust", json!(-1)),
        ("trust", json!(1.5)),
        ("trust", json!(true)),
        ("capabilities", json!(1)),
        ("capabilities", json!({ "model:reasoning": true })),
        ("capabilities", json!(["model:reasoning", 1])),
        ("capabilities", json!([["model:reasoning"]])),
    ];
    for (name, value) in wrong {
        let error = refusal(|draft| draft.claim(name, value.clone())).await;
        assert_eq!(error, invalid(Reason::BadClaim(name)), "{name}: {value}");
    }
}

#[tokio::test]
async fn control_characters_are_refused() {
    for (name, fact) in [("sub", "subject"), ("tier", "tier"), ("agent", "agent")] {
        for text in ["a\nb", "a\u{0}b", "\u{85}", "a\u{7f}"] {
            let error = refusal(|draft| draft.claim(name, text)).await;
            assert_eq!(error, invalid(Reason::BadClaim(fact)), "{name}: {text:?}");
        }
    }
}

#[tokio::test]
async fn capabilities_may_be_one_text_as_an_oauth_scope_is() {
    let toml = "claims = { capabilities = \"scope\" }";
    let scope = json!({ "scope": "openid  code:read model:reasoning" });
    let caller = caller_of(toml, scope).await.unwrap();
    assert_eq!(capabilities(&caller), "code:read model:reasoning");
}

#[tokio::test]
async fn unknown_capabilities_are_ignored_and_counted() {
    let key = TestKey::ed25519("one");
    let gate = Gate::with_keys([&key]).await;
    let names =
        json!(["model:reasoning", "model:Reasoning", "root", "", "budget:tokens-per-hour:1_000"]);
    let caller = gate.try_token(key.draft().claim("capabilities", names).sign()).await.unwrap();
    assert_eq!(capabilities(&caller), "budget:tokens-per-hour:1_000 model:reasoning");
    assert_eq!(gate.authenticator.unknown_capabilities(), 3);
}

#[tokio::test]
async fn trust_may_be_a_number() {
    for (value, level) in [(json!(0), TrustLevel::L0), (json!(3), TrustLevel::L3)] {
        let caller = passes(|draft| draft.claim("trust", value)).await;
        assert_eq!(caller.trust, level);
    }
}

#[tokio::test]
async fn keycloak_puts_roles_into_objects() {
    let toml = "[issuers.claims]\n\
                capabilities = \"realm_access.roles\"\n\
                agent = \"azp\"\n\
                tier = 'resource_access.toll\\.gate.tier'\n";
    let claims = json!({
        "typ": "Bearer", "azp": "web-client", "scope": "openid profile",
        "realm_access": { "roles": ["offline_access", "model:reasoning", "uma_authorization"] },
        "resource_access": { "toll.gate": { "tier": "pro" } },
    });
    let caller = caller_of(toml, claims).await.unwrap();
    assert_eq!(capabilities(&caller), "model:reasoning");
    assert_eq!(caller.agent.as_deref(), Some("web-client"));
    assert_eq!(caller.tier, "pro");
}

#[tokio::test]
async fn cloudflare_access_service_tokens_are_named_by_common_name() {
    let toml = "[issuers.claims]\nsubject = \"sub|common_name\"\n\
                [issuers.defaults]\ntier = \"service\"\ncapabilities = [\"model:reasoning\"]\n\
                trust = \"L1\"\n";
    let service = json!({ "sub": "", "common_name": "e367.access", "type": "app" });
    let caller = caller_of(toml, service).await.unwrap();
    assert_eq!(caller.subject, "e367.access");
    assert_eq!(caller.tier, "service");
    assert_eq!(capabilities(&caller), "model:reasoning");
    assert_eq!(caller.trust, TrustLevel::L1);
    let person = json!({ "sub": "7335d417", "email": "a@example.com", "type": "app" });
    assert_eq!(caller_of(toml, person).await.unwrap().subject, "7335d417");
    let nobody = json!({ "sub": "", "common_name": "" });
    let error = caller_of(toml, nobody).await.unwrap_err();
    assert_eq!(error, invalid(Reason::MissingSubject));
}

#[tokio::test]
async fn a_tokens_own_claims_come_before_the_defaults() {
    let toml =
        "[issuers.defaults]\ntier = \"free\"\ncapabilities = [\"code:read\"]\ntrust = \"L1\"\n";
    let own = json!({ "tier": "pro", "capabilities": ["model:reasoning"], "trust": "L3" });
    let caller = caller_of(toml, own).await.unwrap();
    assert_eq!(caller.tier, "pro");
    assert_eq!(capabilities(&caller), "model:reasoning");
    assert_eq!(caller.trust, TrustLevel::L3);
}

#[tokio::test]
async fn an_empty_list_of_capabilities_is_not_made_up_for_by_the_defaults() {
    let toml = "[issuers.defaults]\ncapabilities = [\"code:read\"]\n";
    for nothing in [json!([]), json!(""), json!(["unknown"])] {
        let caller = caller_of(toml, json!({ "capabilities": nothing })).await.unwrap();
        assert_eq!(capabilities(&caller), "");
    }
    let absent = caller_of(toml, json!({ "capabilities": null })).await.unwrap();
    assert_eq!(capabilities(&absent), "code:read");
}

#[tokio::test]
async fn further_claims_are_kept_as_text() {
    let toml = "[issuers.claims.extra]\ndivision = \"org.division\"\nclearance = \"clearance_level\"\n\
                cost_center = 'https://example\\.com/cc'\nmissing = \"nowhere\"\n";
    let claims = json!({
        "org": { "division": "research" }, "clearance_level": 3, "https://example.com/cc": "4711",
    });
    let extra = caller_of(toml, claims).await.unwrap().extra;
    let extra: Vec<_> = extra.iter().map(|(name, fact)| (name.as_str(), fact.as_str())).collect();
    assert_eq!(extra, [("clearance", "3"), ("cost_center", "4711"), ("division", "research")]);
    let error = caller_of(toml, json!({ "org": { "division": "a\u{0}" } })).await.unwrap_err();
    assert_eq!(error, invalid(Reason::BadClaim("extra")));
}

#[tokio::test]
async fn a_path_through_something_else_than_an_object_finds_nothing() {
    let toml = "[issuers.claims]\nagent = \"a.b.c\"\n";
    for a in [json!("b"), json!({ "b": "c" }), json!([{ "b": 1 }]), json!(null)] {
        let caller = caller_of(toml, json!({ "a": a })).await.unwrap();
        assert_eq!(caller.agent, None);
    }
}

#[test]
fn paths_are_read_strictly() {
    for path in ["", ".", "a.", ".a", "a..b", "|a", "a|", "a.|b"] {
        assert_eq!(path.parse::<ClaimPath>(), Err(InvalidClaimPath::EmptyName), "{path}");
    }
    for path in ["a\\", "a\\b"] {
        assert_eq!(path.parse::<ClaimPath>(), Err(InvalidClaimPath::Escape), "{path}");
    }
    assert_ne!("a\\.b".parse::<ClaimPath>().unwrap(), "a.b".parse().unwrap());
    assert_ne!("a\\|b".parse::<ClaimPath>().unwrap(), "a|b".parse().unwrap());
    "a\\\\".parse::<ClaimPath>().unwrap();
}
