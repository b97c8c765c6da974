//! The database goes, in each way that it can, under load: no call fails, nothing is lost or doubled.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use secrecy::{ExposeSecret, SecretString};
use tokio::task::JoinSet;
use tokio_util::task::TaskTracker;
use tollgate::{
    audit::{
        Audit, Entry,
        spool::{DirectoryDisk, SEGMENT_BYTES, Spool, SpoolSettings},
    },
    config::AuditConfig,
    redact::LiveRedactor,
    storage::postgres,
};

use super::{
    super::support::{TempDir, append, intent, settle},
    Postgres, config,
};
use crate::support::{
    client::eventually,
    postgres::{PostgresServer, run},
    proxy::{Network, Proxy},
};

const PATIENCE: Duration = Duration::from_secs(50);
const CALLERS: usize = 4;
/// Each of them makes a call so often.
const PACE: Duration = Duration::from_millis(5);
/// Calls that are made before, while and after the database is away.
const CALLS: u64 = 300;

/// A gateway's audit trail, its calls, and the network to its database.
struct Load {
    audit: Audit,
    proxy: Proxy,
    callers: JoinSet<Vec<Entry>>,
    made: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    tasks: TaskTracker,
    _directory: TempDir,
}

impl Load {
    /// Soon sure that the database is away.
    async fn start(postgres: &Postgres) -> Self {
        let (connect_timeout_ms, statement_timeout_ms) = (3_000, 1_000);
        let timeouts =
            AuditConfig { connect_timeout_ms, statement_timeout_ms, ..AuditConfig::default() };
        Self::start_with(postgres, &timeouts).await
    }

    async fn start_with(postgres: &Postgres, timeouts: &AuditConfig) -> Self {
        let port = postgres.database.port();
        let proxy = Proxy::start(port).await;
        let config = AuditConfig {
            url: Some(moved(&postgres.database.gateway_url(), port, proxy.port())),
            connect_timeout_ms: timeouts.connect_timeout_ms,
            statement_timeout_ms: timeouts.statement_timeout_ms,
            ..config(&postgres.database)
        };
        postgres::migrate(&config).await.unwrap();
        let directory = TempDir::new();
        let settings =
            SpoolSettings { limit_bytes: 64 << 20, segment_bytes: SEGMENT_BYTES, is_strict: false };
        let disk = Arc::new(DirectoryDisk::open(&directory.path().join("spool")).unwrap());
        let spool = Spool::open(disk, settings).unwrap();
        let (tasks, sink) = (TaskTracker::new(), Arc::new(postgres::sink(&config).unwrap()));
        let audit = Audit::start(spool, sink, LiveRedactor::default(), &tasks).unwrap();
        let (made, is_over) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let mut callers = JoinSet::new();
        for _ in 0..CALLERS {
            callers.spawn(call(audit.clone(), Arc::clone(&made), Arc::clone(&is_over)));
        }
        Self { audit, proxy, callers, made, is_over, tasks, _directory: directory }
    }

    /// Waits until so many more calls were made.
    async fn calls(&self) {
        let target = self.made.load(Ordering::Relaxed) + CALLS;
        eventually(PATIENCE, async || self.made.load(Ordering::Relaxed) >= target).await;
    }

    /// `TEST_OUTAGE_S` makes an outage last: 60 is what users may count on, too long for each day.
    async fn until_over(&self) {
        let lasts = std::env::var("TEST_OUTAGE_S").ok().and_then(|text| text.parse().ok());
        let over = Instant::now() + Duration::from_secs(lasts.unwrap_or(0));
        eventually(PATIENCE * 2, async || Instant::now() >= over).await;
    }

    async fn until_away(&self) {
        eventually(PATIENCE, async || !self.audit.status().is_store_up).await;
    }

    async fn until_back(&self) {
        eventually(PATIENCE, async || self.audit.status().is_store_up).await;
    }

    /// Ends the calls and waits until all is in the store; the calls.
    async fn end(mut self) -> Vec<Entry> {
        assert!(self.audit.healthy(), "calls went on");
        self.is_over.store(true, Ordering::Relaxed);
        let mut calls = Vec::new();
        while let Some(made) = self.callers.join_next().await {
            calls.extend(made.unwrap());
        }
        self.audit.flush(PATIENCE).await.unwrap();
        self.audit.shutdown(PATIENCE).await.unwrap();
        self.tasks.close();
        self.tasks.wait().await;
        calls
    }
}

/// Calls one after the other; none may be refused.
async fn call(audit: Audit, made: Arc<AtomicU64>, is_over: Arc<AtomicBool>) -> Vec<Entry> {
    let mut calls = Vec::new();
    let mut pace = tokio::time::interval(PACE);
    while !is_over.load(Ordering::Relaxed) {
        pace.tick().await;
        let call = intent();
        audit.intent(call.clone()).await.expect("the spool takes it");
        audit.record(settle(&call)).await;
        calls.push(call);
        made.fetch_add(1, Ordering::Relaxed);
    }
    calls
}

pub fn moved(url: &SecretString, from: u16, to: u16) -> SecretString {
    url.expose_secret().replace(&format!(":{from}/"), &format!(":{to}/")).into()
}

/// Each call has one intent and one end, and nothing else is there; the sums agree.
async fn expect_each_once(postgres: &Postgres, calls: &[Entry]) {
    let rows: Vec<(String, String, bool)> = postgres
        .rows("SELECT call_id::text, kind, superseded FROM tollgate.audit ORDER BY 1, 2")
        .await;
    let mut expected: Vec<_> = calls
        .iter()
        .filter_map(|call| call.call_id)
        .flat_map(|id| ["intent", "settle"].map(|kind| (id.to_string(), kind.to_owned(), false)))
        .collect();
    expected.sort();
    assert_eq!(rows.len(), expected.len());
    assert!(rows == expected, "other rows");
    let sum = "SELECT sum(calls)::int8 FROM tollgate.audit_usage";
    assert_eq!(postgres.number(sum).await, i64::try_from(calls.len()).unwrap());
    let gaps = "SELECT count(*) FROM (SELECT chain_seq - lag(chain_seq) OVER (PARTITION BY writer \
                ORDER BY chain_seq) AS step FROM tollgate.audit) AS steps WHERE step <> 1";
    assert_eq!(postgres.number(gaps).await, 0);
    assert_eq!(postgres.number("SELECT count(*) FROM tollgate.audit_dead_letter").await, 0);
}

/// Under load: it is there, `away` makes it go, `back` makes it come back.
async fn outage(away: Network) {
    let postgres = Postgres::start().await;
    let load = Load::start(&postgres).await;
    load.calls().await;
    load.proxy.set(away);
    load.until_away().await;
    load.calls().await;
    load.until_over().await;
    load.proxy.set(Network::Works);
    load.until_back().await;
    load.calls().await;
    let calls = load.end().await;
    expect_each_once(&postgres, &calls).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gone() {
    outage(Network::Gone).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn black_holed() {
    outage(Network::Silent).await;
}

/// Each answer comes 2 s later: batches become fewer and larger, and none is given up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_by_two_seconds() {
    let postgres = Postgres::start().await;
    let load = Load::start_with(&postgres, &AuditConfig::default()).await;
    let rows = async || postgres.number("SELECT count(*) FROM tollgate.audit").await;
    eventually(PATIENCE, async || rows().await > 0).await;
    load.proxy.set(Network::Slow(Duration::from_secs(1)));
    let before = rows().await;
    eventually(PATIENCE, async || rows().await >= before + 1_000).await;
    assert!(load.audit.status().is_store_up, "it is slow, and not away");
    load.proxy.set(Network::Works);
    let calls = load.end().await;
    expect_each_once(&postgres, &calls).await;
}

/// With the timeouts that it has by itself.
#[tokio::test]
async fn slow_by_two_seconds_when_a_gateway_starts() {
    let postgres = Postgres::start().await;
    postgres::migrate(&postgres.config).await.unwrap();
    let proxy = Proxy::start(postgres.database.port()).await;
    proxy.set(Network::Slow(Duration::from_secs(1)));
    let url = moved(&postgres.database.gateway_url(), postgres.database.port(), proxy.port());
    let sink = postgres::sink(&AuditConfig { url: Some(url), ..postgres.config.clone() }).unwrap();
    let call = intent();
    append(&sink, &[call.clone(), settle(&call)]).await.unwrap();
    expect_each_once(&postgres, &[call]).await;
}

/// Each time in the middle of something: connections are cut at random moments.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_again_and_again() {
    let postgres = Postgres::start().await;
    let load = Load::start(&postgres).await;
    for _ in 0..10 {
        load.proxy.set(Network::Gone);
        load.until_away().await;
        load.proxy.set(Network::Works);
        load.until_back().await;
    }
    let calls = load.end().await;
    expect_each_once(&postgres, &calls).await;
}

/// Ends all other connections: settings of a database are for new ones.
const END_OTHERS: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                          WHERE datname = current_database() AND pid <> pg_backend_pid()";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_only() {
    let postgres = Postgres::start().await;
    let load = Load::start(&postgres).await;
    load.calls().await;
    let mut superuser = postgres.database.superuser().await;
    let name = postgres.database.name();
    let set = format!("ALTER DATABASE {name} SET default_transaction_read_only = on; {END_OTHERS}");
    run(&mut superuser, &set).await;
    load.until_away().await;
    load.calls().await;
    let reset = format!("ALTER DATABASE {name} RESET default_transaction_read_only; {END_OTHERS}");
    run(&mut superuser, &reset).await;
    load.until_back().await;
    let calls = load.end().await;
    expect_each_once(&postgres, &calls).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn out_of_connections() {
    let postgres = Postgres::start().await;
    let load = Load::start(&postgres).await;
    load.calls().await;
    let mut superuser = postgres.database.superuser().await;
    let name = postgres.database.name();
    run(&mut superuser, &format!("ALTER DATABASE {name} CONNECTION LIMIT 0; {END_OTHERS}")).await;
    load.until_away().await;
    load.calls().await;
    run(&mut superuser, &format!("ALTER DATABASE {name} CONNECTION LIMIT -1")).await;
    load.until_back().await;
    let calls = load.end().await;
    expect_each_once(&postgres, &calls).await;
}

/// The server itself: with its connections, its transactions, and a start that takes a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted() {
    let mut server = PostgresServer::start_own(false).await;
    let postgres = Postgres::on(server.database().await);
    let load = Load::start(&postgres).await;
    load.calls().await;
    for crash in [false, true] {
        server.stop(crash).await;
        load.until_away().await;
        load.calls().await;
        server.start_again().await;
        load.until_back().await;
        load.calls().await;
    }
    let calls = load.end().await;
    expect_each_once(&postgres, &calls).await;
}
