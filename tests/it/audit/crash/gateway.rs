//! What is killed, and what it stands on: a provider, a ledger and a store that outlive it.

use std::{path::Path, process::Output, time::Duration};

use secrecy::ExposeSecret;
use tollgate::{
    audit::StoredEntry,
    auth::mint::{SigningKey, TokenSpec, mint},
    budget::{Bucket, Ledger, Limit, Measure, Period, RedisLedger, Scope, Standing},
    storage::{postgres, sqlite},
};

use super::super::postgres::Postgres;
use crate::support::{
    app::ISSUER,
    process::Process,
    redis::RedisServer,
    upstream::{MockUpstream, Recorded, Script, Step, openai},
};

const TIER: &str = "team";
const USD_PER_MONTH: u64 = 1_000;
const MICROS_PER_USD: u64 = 1_000_000;
/// Between the pieces of a stream: some are under way at any moment.
const PACE: Duration = Duration::from_millis(8);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Sqlite,
    Postgres,
}

pub struct Gateway {
    pub process: Process,
    pub redis: RedisServer,
    pub upstream: MockUpstream,
    postgres: Option<Postgres>,
    key: SigningKey,
}

/// A reservation that is open.
#[derive(Debug, Clone, Copy)]
pub struct Open {
    pub has_left: bool,
    pub micro_usd: u64,
}

/// What each caller asks for, in its message.
pub const HANG: &str = "hang";
pub const SLOW: &str = "slow";

/// Two pieces and no end; many pieces, slowly; or what any provider says.
fn answer(request: &Recorded) -> Script {
    if request.contains(HANG) {
        return openai::text_stream(["Hello", " world"]).only(3).then(Step::Stall);
    }
    if request.contains(SLOW) {
        return openai::text_stream(["a"; 12]).paced(PACE);
    }
    openai::answer(request)
}

impl Gateway {
    pub async fn start(kind: Kind) -> Self {
        let redis = RedisServer::start().await;
        let upstream = MockUpstream::start().await;
        upstream.respond_with(answer);
        let postgres = match kind {
            Kind::Sqlite => None,
            Kind::Postgres => Some(Postgres::start().await),
        };
        let mut key = None;
        let process = Process::start(|dir| {
            let made = SigningKey::generate_file(&dir.join("issuer.pem")).expect("a key");
            let jwks = made.public_jwks().to_string();
            std::fs::write(dir.join("jwks.json"), jwks).expect("a JWKS");
            let config = config(dir, &redis, &upstream, postgres.as_ref());
            std::fs::write(dir.join("tollgate.toml"), config).expect("a configuration");
            key = Some(made);
            ["serve", "--config", &path(dir, "tollgate.toml")].map(str::to_owned).to_vec()
        })
        .await;
        Self { process, redis, upstream, postgres, key: key.expect("it was made") }
    }

    pub fn token(&self) -> String {
        let spec = TokenSpec {
            issuer: ISSUER.to_owned(),
            audience: vec!["tollgate".to_owned()],
            subject: "caller".to_owned(),
            tier: Some(TIER.to_owned()),
            capabilities: vec!["model:reasoning".to_owned()],
            ttl: Duration::from_mins(50),
            ..TokenSpec::default()
        };
        mint(&self.key, &spec).expect("a token")
    }

    /// The rows that queries show, oldest first.
    pub async fn rows(&self) -> Vec<StoredEntry> {
        let mut rows: Vec<StoredEntry> = Vec::new();
        let mut in_postgres = match &self.postgres {
            None => None,
            Some(it) => Some(postgres::AuditReader::open(&it.config).await.expect("a database")),
        };
        let path = self.process.dir().join("audit.db");
        loop {
            let last = rows.last().map_or(0, |row| row.seq);
            let more = if let Some(reader) = &mut in_postgres {
                reader.after(last).await.expect("rows")
            } else {
                let reader = sqlite::AuditReader::open(&path).await;
                reader.expect("the database").after(last).await.expect("rows")
            };
            if more.is_empty() {
                return rows;
            }
            rows.extend(more);
        }
    }

    /// Reservations that are neither settled nor ended, by the call's id.
    pub fn open_reservations(&self) -> Vec<(String, Open)> {
        let script = "local out = {} local all = redis.call('HGETALL', KEYS[1]) \
                      for i = 1, #all, 2 do local usd = 0 \
                      for _, entry in ipairs(cmsgpack.unpack(string.sub(all[i + 1], 2))) do \
                      if entry[3] == 'usd' then usd = entry[4] end end \
                      out[#out + 1] = table.concat({ all[i], string.sub(all[i + 1], 1, 1), \
                      string.format('%.0f', usd) }, ' ') end return out";
        let answer = self.redis.command(&["EVAL", script, "1", "{tollgate}:reservations"]);
        assert!(answer.starts_with('*'), "{answer}");
        let lines = answer.lines().filter(|line| !line.starts_with(['*', '$']));
        let open = lines.map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let [id, left, micro_usd] = words[..] else { panic!("{line}") };
            let micro_usd = micro_usd.parse().expect("a number");
            (id.to_owned(), Open { has_left: left == "1", micro_usd })
        });
        open.collect()
    }

    /// What the ledger says that the tier has spent.
    pub async fn spent(&self) -> Standing {
        let ledger = RedisLedger::new(&self.redis.url()).expect("a URL");
        let limit = Limit::Window {
            measure: Measure::MicroUsd,
            period: Period::Month,
            limit: USD_PER_MONTH * MICROS_PER_USD,
        };
        let bucket = Bucket::new(Scope::Tier { tier: TIER.to_owned() }, limit);
        ledger.standings(&[&bucket]).await.expect("a standing")[0]
    }

    /// What its own command says of the trail.
    pub fn verify(&self) -> Output {
        let mut verify = std::process::Command::new(env!("CARGO_BIN_EXE_tollgate"));
        verify.args(["audit", "verify", "--config"]).arg(self.process.dir().join("tollgate.toml"));
        verify.output().expect("it runs")
    }
}

fn path(dir: &Path, name: &str) -> String {
    dir.join(name).display().to_string()
}

fn config(
    dir: &Path,
    redis: &RedisServer,
    upstream: &MockUpstream,
    postgres: Option<&Postgres>,
) -> String {
    let (provider, redis) = (upstream.base_url(), redis.url());
    let redis = redis.expose_secret();
    let (audit, jwks) = (path(dir, "audit.db"), path(dir, "jwks.json"));
    let store = postgres.map_or_else(String::new, |postgres| {
        let (url, owner) = (postgres.database.gateway_url(), postgres.database.owner_url());
        let (url, owner) = (url.expose_secret(), owner.expose_secret());
        format!("store = \"postgres\"\nurl = \"{url}\"\nowner_url = \"{owner}\"")
    });
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
redis_url = "{redis}"

[audit]
path = "{audit}"
{store}

[[auth.issuers]]
issuer = "{ISSUER}"
audience = ["tollgate"]
algorithms = ["EdDSA"]
jwks_file = "{jwks}"

[[providers]]
name = "mock"
kind = "openai"
base_url = "{provider}"
api_key = "sk-provider-0123456789abcdefghij"

[[models]]
name = "m"
requires = ["model:reasoning"]
routes = [{{ provider = "mock", model = "m" }}]
max_output_tokens = 1_000
price = {{ input = 1.0, output = 2.0 }}

[[tiers]]
name = "{TIER}"
usd_per_month = {USD_PER_MONTH}
[[tiers.limits]]
model = "*"
concurrent = 1_000
"#
    )
}
