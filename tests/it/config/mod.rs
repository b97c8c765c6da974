//! Configuration: loading, the environment, every rule, reloading.

mod check_config;
mod conversion;
mod environment;
mod example;
mod reload;
mod rule;
mod secret;
mod shape;
mod unavailable;

use std::path::{Path, PathBuf};

use tollgate::config::{self, Config, ConfigError, ConfigErrors};

/// The least that is a whole configuration, with every table that tests change.
const BASE: &str = r#"[server]
listen = "127.0.0.1:8080"

[auth]
leeway_s = 30

[[auth.issuers]]
issuer = "https://bff.example"
audience = ["tollgate"]
algorithms = ["EdDSA"]
jwks_url = "https://bff.example/jwks.json"

[capabilities]
vocabulary = ["model:reasoning", "fleet:read"]

[[providers]]
name = "up"
kind = "openai"
base_url = "https://up.example/v1"
api_key = "a-provider-key"

[[models]]
name = "m"
requires = ["model:reasoning"]
routes = [{ provider = "up", model = "upstream-m" }]
price = { input = 1, output = 2.5 }

[[tools]]
name = "fleet_ps"
requires = ["fleet:read"]

[[tiers]]
name = "pro"
[[tiers.limits]]
model = "*"
requests_per_minute = 60
"#;

/// `BASE` with a piece of it replaced.
fn base_with(piece: &str, other: &str) -> String {
    assert!(BASE.contains(piece), "no {piece} in the base");
    BASE.replacen(piece, other, 1)
}

/// Loads `text` from a file of its own, with `env`.
fn load(text: &str, env: &[(&str, &str)]) -> Result<Config, ConfigErrors> {
    let file = TempFile::new(text);
    config::load(file.path(), pairs(env))
}

fn pairs(env: &[(&str, &str)]) -> Vec<(String, String)> {
    env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn errors_of(text: &str) -> Vec<ConfigError> {
    Config::from_toml_str(text).expect_err("should be refused").iter().cloned().collect()
}

/// The keys of all errors of `text`, in order.
fn keys_of(text: &str) -> Vec<String> {
    errors_of(text).into_iter().map(|error| error.key).collect()
}

/// A file that goes away with its test.
struct TempFile(PathBuf);

impl TempFile {
    fn new(text: &str) -> Self {
        let name = format!("tollgate-{}.toml", uuid::Uuid::new_v4());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }

    fn write(&self, text: &str) {
        std::fs::write(&self.0, text).unwrap();
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
