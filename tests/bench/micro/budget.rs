//! What a call's budgets cost: reserve, depart, settle, on both stores.

use std::{
    net::TcpListener,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use criterion::{Criterion, Throughput};
use tokio::{runtime::Runtime, time::Instant};
use tollgate::{
    budget::{
        Bucket, Charge, Ledger, Limit, Measure, MemoryLedger, Period, RedisLedger, Scope, Spent,
    },
    domain::CallId,
};

/// So high that no run reaches it.
const LIMIT: u64 = 1 << 50;
/// Rates bear no more.
const PER_MINUTE: u64 = 60_000_000;
/// Calls whose round trips are counted.
const COUNTED: u32 = 1_000;
/// For a server to start.
const PATIENCE: Duration = Duration::from_secs(5);

/// Six buckets, as a call meets them whose tier and agent have every kind of budget.
fn charges() -> [Charge; 6] {
    let of_model = || Scope::TierModel { tier: "pro".to_owned(), model: "reasoning".to_owned() };
    let agent = || Scope::Agent { issuer: super::ISSUER.to_owned(), agent: "support".to_owned() };
    let tier = Scope::Tier { tier: "pro".to_owned() };
    let rate = |measure| Limit::Rate { measure, per_minute: PER_MINUTE, burst: LIMIT >> 10 };
    let window = |measure, period| Limit::Window { measure, period, limit: LIMIT };
    [
        (of_model(), rate(Measure::Requests), 1),
        (of_model(), rate(Measure::Tokens), 900),
        (of_model(), Limit::Slots(u32::MAX), 1),
        (agent(), window(Measure::Tokens, Period::Day), 900),
        (agent(), window(Measure::MicroUsd, Period::Day), 1_200),
        (tier, window(Measure::MicroUsd, Period::Month), 1_200),
    ]
    .map(|(scope, limit, amount)| Charge { bucket: Arc::new(Bucket::new(scope, limit)), amount })
}

/// A call that spends less than it reserved, as most do.
async fn call(ledger: &dyn Ledger, charges: &[Charge]) {
    let id = CallId::generate();
    ledger.reserve(id, charges).await.expect("there is room");
    ledger.depart(id).await.expect("it is reserved");
    let spent = Spent::Actual { tokens: 430, micro_usd: 198 };
    ledger.settle(id, spent).await.expect("it is settled");
}

/// A call's budgets, one call after the other.
///
/// On Redis that is the wait for three round trips, on loopback and with nothing else to do; how
/// many calls a second it bears is another figure, since calls don't wait for each other.
pub fn budget(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime starts");
    let charges = charges();
    let mut group = criterion.benchmark_group("budget");
    group.throughput(Throughput::Elements(1));
    let memory = MemoryLedger::default();
    group.bench_function("memory", |bencher| {
        bencher.iter(|| runtime.block_on(call(&memory, &charges)));
    });
    if let Some(redis) = Redis::start() {
        let ledger = redis.ledger();
        runtime.block_on(redis.until_it_answers(&ledger, &charges));
        group.bench_function("redis", |bencher| {
            bencher.iter(|| runtime.block_on(call(&ledger, &charges)));
        });
        runtime.block_on(redis.count(&ledger, &charges));
    }
    group.finish();
}

/// A server of the run's own, ended with it.
struct Redis {
    child: Child,
    port: u16,
}

impl Redis {
    /// `None` where there is no `redis-server`.
    fn start() -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let port = port.expect("a free port").port();
        let binary = std::env::var("TEST_REDIS_SERVER");
        let binary = binary.unwrap_or_else(|_| "redis-server".to_owned());
        let child = Command::new(&binary)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        match child {
            Ok(child) => Some(Self { child, port }),
            Err(error) => {
                say(&format!("budget/redis is skipped: no {binary} ({error})"));
                None
            }
        }
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    fn ledger(&self) -> RedisLedger {
        RedisLedger::new(&self.url().into()).expect("it is a URL")
    }

    async fn until_it_answers(&self, ledger: &RedisLedger, charges: &[Charge]) {
        let deadline = Instant::now() + PATIENCE;
        while ledger.standings(&[&charges[0].bucket]).await.is_err() {
            assert!(Instant::now() < deadline, "redis-server does not answer");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // From here on the server knows the scripts, and each connection is up.
        for _ in 0..10 {
            call(ledger, charges).await;
        }
    }

    /// Says how many commands a call has sent, each of which is waited for.
    async fn count(&self, ledger: &RedisLedger, charges: &[Charge]) {
        let before = self.commands().await;
        for _ in 0..COUNTED {
            call(ledger, charges).await;
        }
        let sent = self.commands().await - before;
        let each = f64::from(sent) / f64::from(COUNTED);
        say(&format!("budget/redis                round trips: {each:.2} a call"));
    }

    /// Script calls so far: nothing else is sent for a call.
    async fn commands(&self) -> u32 {
        let client = redis::Client::open(self.url()).expect("it is a URL");
        let connection = client.get_multiplexed_async_connection().await;
        let mut connection = connection.expect("it answers");
        let stats: String = redis::cmd("INFO")
            .arg("commandstats")
            .query_async(&mut connection)
            .await
            .expect("it answers");
        let calls = |line: &str| {
            let line = line.strip_prefix("cmdstat_eval")?;
            let calls = line.split_once(":calls=")?.1.split(',').next()?;
            calls.parse::<u32>().ok()
        };
        stats.lines().filter_map(calls).sum()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[expect(clippy::print_stdout, reason = "a benchmark's figures are its output")]
fn say(line: &str) {
    println!("{line}");
}
