//! The examples that people copy.

use std::path::Path;

use super::{load, pairs};

/// DESIGN §4, letter for letter.
const DESIGN: &str = include_str!("design.toml");

const DATABASE: (&str, &str) = ("DATABASE_URL", "postgres://u:p@db/tollgate");
const NOTIFY: (&str, &str) = ("TOLLGATE_NOTIFY_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");

#[test]
fn the_design_s_example_knows_every_key_and_only_lacks_features() {
    let env = [("CEREBRAS_API_KEY", "k"), ("REDIS_URL", "redis://r"), DATABASE, NOTIFY];
    let errors = load(DESIGN, &env).expect_err("features are missing");
    let keys: Vec<&str> = errors.iter().map(|error| error.key.as_str()).collect();
    let expected = ["audit.retention_days", "audit.content"];
    assert_eq!(keys, expected);
    for error in errors.iter() {
        assert!(error.message.contains("is not in this version of tollgate; "), "{error}");
    }
}

#[test]
fn the_design_s_example_without_what_is_missing_is_right() {
    let refused = ["retention_days", "content = "];
    let kept = |line: &&str| !refused.iter().any(|key| line.starts_with(key));
    let text = DESIGN.lines().filter(kept).collect::<Vec<_>>().join("\n");
    let config =
        load(&text, &[("CEREBRAS_API_KEY", "k"), ("REDIS_URL", "redis://r"), DATABASE, NOTIFY])
            .unwrap();
    assert_eq!(config.models[0].routes[0].provider, "cerebras");
    assert_eq!(config.tiers[0].limits[0].concurrent, Some(32));
    assert_eq!(config.audit.spool(), Path::new("data/spool"));
    assert_eq!(config.audit.spool_limit_bytes, 1 << 30);
    assert_eq!(config.budget.notify_url.as_deref(), Some("https://hitl.example/budgets"));
}

#[test]
fn the_production_example_loads_with_the_variables_that_it_names() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/tollgate.toml");
    let env = pairs(&[("CEREBRAS_API_KEY", "k1"), ("GROQ_API_KEY", "k2")]);
    let config = tollgate::config::load(&path, env).unwrap();
    assert_eq!(config.providers.len(), 2);

    let errors = tollgate::config::load(&path, []).expect_err("the variables are not set");
    let keys: Vec<&str> = errors.iter().map(|error| error.key.as_str()).collect();
    assert_eq!(keys, ["providers[0].api_key", "providers[1].api_key"]);
}
