//! A whole gateway on ports of its own, in front of an upstream that does as it is told.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use serde_json::{Value, json};
use tollgate::{
    app::App,
    audit::StoredEntry,
    auth::mint::{SigningKey, TokenSpec, mint},
    config::Config,
    pipeline::{Gateway, SnapshotError},
    redact::LiveRedactor,
    storage::sqlite::AuditReader,
};

use super::{client::Client, client::eventually, upstream::MockUpstream};

pub const ISSUER: &str = "https://issuer.test";
pub const PROVIDER_KEY: &str = "sk-provider-0123456789abcdefghij";
const PATIENCE: Duration = Duration::from_secs(5);

/// `m` and `other` are answered by the mock; only `other` takes `model:embedding`. `fleet_ps` is
/// a tool that takes `fleet:read`. Tier `pro` is generous, `tight` is not, `one` has one slot.
const CONFIG: &str = r#"
[server]
listen = "127.0.0.1:0"
admin_listen = "127.0.0.1:0"
drain_s = 5

[admission]
address_requests_per_second = 100_000
address_burst = 100_000
caller_requests_per_second = 100_000
caller_burst = 100_000

[budget]
queue_wait_ms = 0

[[auth.issuers]]
issuer = "https://issuer.test"
audience = ["tollgate"]
algorithms = ["EdDSA"]
jwks_file = ""

[[providers]]
name = "mock"
kind = "openai"
base_url = ""
api_key = "sk-provider-0123456789abcdefghij"

[[models]]
name = "m"
requires = ["model:reasoning"]
routes = [{ provider = "mock", model = "upstream-m" }]
price = { input = 1.0, output = 2.0 }

[[models]]
name = "other"
requires = ["model:embedding"]
routes = [{ provider = "mock", model = "other" }]

[[tools]]
name = "fleet_ps"
requires = ["fleet:read"]

[[tiers]]
name = "pro"
[[tiers.limits]]
model = "*"
requests_per_minute = 60_000
concurrent = 1_000

[[tiers]]
name = "tight"
[[tiers.limits]]
model = "*"
requests_per_minute = 2

[[tiers]]
name = "one"
[[tiers.limits]]
model = "*"
concurrent = 1
"#;

pub struct TestApp {
    app: Option<App>,
    pub upstream: MockUpstream,
    pub config: Config,
    key: SigningKey,
    dir: PathBuf,
}

impl TestApp {
    pub async fn start() -> Self {
        Self::with(|_| {}).await
    }

    /// With a configuration of the test's own making.
    pub async fn with(change: impl FnOnce(&mut Config)) -> Self {
        Self::with_redactor(change, LiveRedactor::default()).await
    }

    /// As [`TestApp::with`], with the redactor that a test's telemetry has.
    pub async fn with_redactor(change: impl FnOnce(&mut Config), redactor: LiveRedactor) -> Self {
        let dir = std::env::temp_dir().join(format!("tollgate-it-{}", uuid::Uuid::now_v7()));
        std::fs::create_dir_all(&dir).expect("a directory for the test");
        let key = SigningKey::generate_file(&dir.join("issuer.pem")).expect("a key");
        std::fs::write(dir.join("jwks.json"), key.public_jwks().to_string()).expect("a JWKS");
        let upstream = MockUpstream::start().await;
        let mut config: Config = toml::from_str(CONFIG).expect("the tests' configuration");
        config.audit.path = dir.join("audit.db");
        config.auth.issuers[0].jwks_file = Some(dir.join("jwks.json"));
        config.providers[0].base_url = Some(upstream.base_url());
        change(&mut config);
        let app = App::start_with(&config, redactor).await.expect("the gateway starts");
        Self { app: Some(app), upstream, config, key, dir }
    }

    fn app(&self) -> &App {
        self.app.as_ref().expect("the gateway runs")
    }

    pub fn address(&self) -> SocketAddr {
        self.app().address()
    }

    pub fn admin_address(&self) -> SocketAddr {
        self.app().admin_address()
    }

    pub fn gateway(&self) -> &Gateway {
        self.app().gateway()
    }

    /// Unpacks the tokenizer's vocabulary: a call that has to be counted might give up waiting for
    /// it on a busy machine.
    pub async fn count_once(&self) {
        let counted = self.gateway().meter.counter.count("Hello".to_owned()).await;
        assert_eq!(counted, Some(1));
    }

    pub fn reload(&self, config: &Config) {
        self.app().reloader().reload(config).expect("the configuration is good");
    }

    /// As [`TestApp::reload`], with a configuration that may be none.
    pub fn try_reload(&self, config: &Config) -> Result<(), SnapshotError> {
        self.app().reloader().reload(config)
    }

    /// A client without a token.
    pub fn stranger(&self) -> Client {
        Client::new(self.address())
    }

    /// A client whose subject is `alice`, of tier `pro`, who may use `m`.
    pub fn alice(&self) -> Client {
        self.caller("alice", "pro", &["model:reasoning"])
    }

    pub fn caller(&self, subject: &str, tier: &str, capabilities: &[&str]) -> Client {
        self.stranger().with_token(self.token(subject, tier, capabilities))
    }

    pub fn token(&self, subject: &str, tier: &str, capabilities: &[&str]) -> String {
        self.token_of(ISSUER, subject, tier, capabilities)
    }

    /// Every issuer of a test has the same key.
    pub fn token_of(
        &self,
        issuer: &str,
        subject: &str,
        tier: &str,
        capabilities: &[&str],
    ) -> String {
        let spec = TokenSpec {
            issuer: issuer.to_owned(),
            audience: vec!["tollgate".to_owned()],
            subject: subject.to_owned(),
            tier: Some(tier.to_owned()),
            agent: Some("tester".to_owned()),
            capabilities: capabilities.iter().map(ToString::to_string).collect(),
            ttl: Duration::from_mins(10),
            ..TokenSpec::default()
        };
        mint(&self.key, &spec).expect("a token")
    }

    /// Every row of the audit trail so far, oldest first.
    pub async fn audit_rows(&self) -> Vec<StoredEntry> {
        if let Some(app) = &self.app {
            app.gateway().audit.flush(PATIENCE).await.expect("the store takes what is recorded");
        }
        let mut reader = AuditReader::open(&self.config.audit.path).await.expect("the database");
        let mut rows = Vec::new();
        let mut seq = 0;
        loop {
            let more = reader.after(seq).await.expect("rows");
            let Some(last) = more.last() else { return rows };
            seq = last.seq;
            rows.extend(more);
        }
    }

    /// The rows, once there are at least `count`.
    pub async fn audit_rows_once(&self, count: usize) -> Vec<StoredEntry> {
        eventually(PATIENCE, async || self.audit_rows().await.len() >= count).await;
        self.audit_rows().await
    }

    /// The intent and the terminal row of the one call there was.
    pub async fn the_call(&self) -> (StoredEntry, StoredEntry) {
        let rows = self.audit_rows_once(2).await;
        let [intent, terminal]: [StoredEntry; 2] =
            rows.try_into().expect("just an intent and a terminal row");
        assert_eq!(intent.kind, "intent");
        assert_eq!(intent.call_id, terminal.call_id);
        (intent, terminal)
    }

    /// Waits until nothing runs: no call, no reservation, no upstream.
    pub async fn until_idle(&self) {
        let gateway = self.gateway();
        eventually(PATIENCE, async || {
            gateway.calls.is_empty() && gateway.budgets.open() == 0 && self.upstream.open() == 0
        })
        .await;
    }

    /// Stops the gateway and asserts that nothing is left over.
    pub async fn shutdown(mut self) {
        self.drain().await;
        self.upstream.until(|counts| counts.open == 0).await;
    }

    /// As [`TestApp::shutdown`], and the audit trail can still be read.
    pub async fn drain(&mut self) {
        let app = self.app.take().expect("the gateway runs");
        let leftovers = app.shutdown().await;
        assert!(leftovers.is_clean(), "{leftovers:?}");
    }
}

impl Drop for TestApp {
    fn drop(&mut self) {
        // What can't be removed is in the system's temporary directory.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A chat request to `m`.
pub fn chat(stream: bool) -> Value {
    json!({ "model": "m", "stream": stream, "messages": [{ "role": "user", "content": "Hello" }] })
}
