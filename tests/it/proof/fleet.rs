//! Two gateways in processes of their own, one Redis, one provider.

use std::{collections::HashMap, net::SocketAddr, path::Path, time::Duration};

use tollgate::{
    audit::StoredEntry,
    auth::mint::{SigningKey, TokenSpec, mint},
    storage::sqlite::AuditReader,
};

use super::plan::{Account, Cost};
use crate::support::{
    app::ISSUER, client::Client, process::Process, redis::RedisServer, upstream::MockUpstream,
};

pub const TIER: &str = "team";
pub const AGENT: &str = "fleet";
pub const SLOTS: u32 = 1_000;

/// What all callers have together in a day.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    pub micro_usd: u64,
    pub tokens: u64,
}

/// A reservation that is open.
#[derive(Debug, Clone, Copy)]
pub struct Open {
    pub has_left: bool,
    pub reserved: Cost,
}

pub struct Fleet {
    pub first: Process,
    pub second: Process,
    pub redis: RedisServer,
    pub upstream: MockUpstream,
    pub account: Account,
    key: SigningKey,
    budget: Budget,
}

impl Fleet {
    pub async fn start(budget: Budget) -> Self {
        let redis = RedisServer::start().await;
        let upstream = MockUpstream::start().await;
        let account = Account::default();
        let served = account.clone();
        upstream.respond_with(move |request| served.answer(request));
        let mut key = None;
        let config = config(&redis, &upstream, budget);
        let first = Process::start(|dir| {
            let made = SigningKey::generate_file(&dir.join("issuer.pem")).expect("a key");
            let jwks = made.public_jwks().to_string();
            key = Some(made);
            serve(dir, &config, &jwks)
        })
        .await;
        let key = key.expect("it was made");
        let jwks = key.public_jwks().to_string();
        let second = Process::start(|dir| serve(dir, &config, &jwks)).await;
        Self { first, second, redis, upstream, account, key, budget }
    }

    /// Each caller is a subject of its own; the agent is one.
    pub fn token(&self, caller: usize) -> String {
        let spec = TokenSpec {
            issuer: ISSUER.to_owned(),
            audience: vec!["tollgate".to_owned()],
            subject: format!("caller-{caller}"),
            tier: Some(TIER.to_owned()),
            agent: Some(AGENT.to_owned()),
            capabilities: vec![
                "model:reasoning".to_owned(),
                format!("budget:tokens-per-day:{}", self.budget.tokens),
            ],
            ttl: Duration::from_mins(10),
            ..TokenSpec::default()
        };
        mint(&self.key, &spec).expect("a token")
    }

    pub fn client(&self, address: SocketAddr) -> Client {
        Client::new(address).with_token(self.token(0))
    }

    /// Reservations that are neither settled nor expired, by their id; from now on they are past
    /// their time. In one step: what a gateway wrote to Redis and then gave up for its slowness is
    /// done all the same, before this or too late.
    pub fn expire(&self) -> HashMap<String, Open> {
        let script = "local out = {} local all = redis.call('HGETALL', KEYS[1]) \
                      for i = 1, #all, 2 do local taken = { tokens = 0, usd = 0 } \
                      for _, entry in ipairs(cmsgpack.unpack(string.sub(all[i + 1], 2))) do \
                      taken[entry[3]] = entry[4] end \
                      redis.call('ZADD', KEYS[2], 'XX', 0, all[i]) \
                      out[#out + 1] = table.concat({ all[i], string.sub(all[i + 1], 1, 1), \
                      string.format('%.0f', taken.usd), string.format('%.0f', taken.tokens) }, ' ') \
                      end return out";
        let answer = self.redis.command(&[
            "EVAL",
            script,
            "2",
            "{tollgate}:reservations",
            "{tollgate}:expiries",
        ]);
        assert!(answer.starts_with('*'), "{answer}");
        let lines = answer.lines().filter(|line| !line.starts_with(['*', '$']));
        let open = lines.map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let [id, left, micro_usd, tokens] = words[..] else { panic!("{line}") };
            let number = |digits: &str| digits.parse().expect("a number");
            let reserved = Cost { micro_usd: number(micro_usd), tokens: number(tokens) };
            (id.to_owned(), Open { has_left: left == "1", reserved })
        });
        open.collect()
    }
}

fn config(redis: &RedisServer, upstream: &MockUpstream, budget: Budget) -> String {
    let Budget { micro_usd, .. } = budget;
    let (whole, part) = (micro_usd / 1_000_000, micro_usd % 1_000_000);
    let (provider, url) = (upstream.base_url(), redis.url());
    let url = secrecy::ExposeSecret::expose_secret(&url);
    format!(
        r#"
[server]
listen = "127.0.0.1:0"
admin_listen = "127.0.0.1:0"

[admission]
address_requests_per_second = 100_000
address_burst = 100_000
caller_requests_per_second = 100_000
caller_burst = 100_000

[budget]
store = "redis"
redis_url = "{url}"
queue_wait_ms = 0

[audit]
path = "audit.db"

[[auth.issuers]]
issuer = "{ISSUER}"
audience = ["tollgate"]
algorithms = ["EdDSA"]
jwks_file = "jwks.json"

[[providers]]
name = "mock"
kind = "openai"
base_url = "{provider}"
api_key = "sk-provider-0123456789abcdefghij"

[[models]]
name = "m"
requires = ["model:reasoning"]
routes = [{{ provider = "mock", model = "m" }}]
price = {{ input = 1.0, output = 2.0 }}

[[tiers]]
name = "{TIER}"
usd_per_day = {whole}.{part:06}
[[tiers.limits]]
model = "*"
concurrent = {SLOTS}
"#
    )
}

fn serve(dir: &Path, config: &str, jwks: &str) -> Vec<String> {
    let database = dir.join("audit.db").display().to_string();
    let config = config.replace("audit.db", &database);
    let jwks_file = dir.join("jwks.json");
    let config = config.replace("jwks.json", &jwks_file.display().to_string());
    std::fs::write(jwks_file, jwks).expect("a JWKS");
    let file = dir.join("tollgate.toml");
    std::fs::write(&file, config).expect("a configuration");
    ["serve", "--config", &file.display().to_string()].map(str::to_owned).to_vec()
}

/// Every row of a process's audit trail so far, whether it runs or not.
pub async fn audit_rows(process: &Process) -> Vec<StoredEntry> {
    let reader = AuditReader::open(&process.dir().join("audit.db")).await;
    let (mut reader, mut rows) = (reader.expect("the database"), Vec::<StoredEntry>::new());
    loop {
        let more = reader.after(rows.last().map_or(0, |row| row.seq)).await.expect("rows");
        if more.is_empty() {
            return rows;
        }
        rows.extend(more);
    }
}
