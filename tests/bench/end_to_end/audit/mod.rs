//! What the audit trail costs: a row in each store, a call, a verification, and a question.

mod append;
mod call;
mod question;
mod row;
mod ship;
mod verify;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::time::ClockId;
use tokio::runtime::Runtime;
use tollgate::config::{AuditConfig, AuditStore};

use super::{
    Outcome,
    report::{Report, Row, Values},
    server::{Database, PostgresServer},
    stand::Side,
};

/// How much of it, and of which gateway.
pub struct Extent<'a> {
    pub rounds: u32,
    pub rows: usize,
    pub calls: usize,
    /// Rows that questions are asked over.
    pub question_rows: u64,
    pub gateway: Option<&'a Path>,
}

/// Measures all but the latency that audit adds.
pub fn run(extent: &Extent<'_>, report: &mut Report) -> Outcome<()> {
    let runtime = Runtime::new()?;
    eprintln!("audit: SQLite");
    append::sqlite(&runtime, extent, report)?;
    eprintln!("audit: calls");
    call::run(&runtime, extent, report)?;
    eprintln!("audit: Postgres");
    ship::postgres(&runtime, extent, report)?;
    question::run(&runtime, extent, report)
}

/// One thing of the gateway's own.
fn row(what: &'static str, unit: &'static str, rounds: Vec<f64>) -> Row {
    let mut values = Values::default();
    for value in rounds {
        values.push(Side::Gateway, value);
    }
    Row::new(what, unit, values)
}

/// CPU that this process has used.
fn cpu() -> Outcome<Duration> {
    Ok(ClockId::CLOCK_PROCESS_CPUTIME_ID.now()?.into())
}

#[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^53")]
const fn count(number: u64) -> f64 {
    number as f64
}

/// Microseconds.
fn each(total: Duration, things: usize) -> f64 {
    total.as_secs_f64() * 1e6 / count(things as u64)
}

fn a_second(things: usize, took: Duration) -> f64 {
    count(things as u64) / took.as_secs_f64()
}

/// A directory that goes away with this value.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Outcome<Self> {
        let name = format!("bench-audit-{}", uuid::Uuid::now_v7());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    fn database(&self) -> PathBuf {
        self.0.join("tollgate.db")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // What stays behind lies in Cargo's temporary directory.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A Postgres of this run's own, on the same cores. It syncs each batch, as in production.
struct Postgres {
    database: Database,
    config: AuditConfig,
    _server: PostgresServer,
}

impl Postgres {
    async fn start() -> Outcome<Self> {
        let server = PostgresServer::start_own(true).await;
        let database = server.database().await;
        let config = AuditConfig {
            store: AuditStore::Postgres,
            url: Some(database.gateway_url()),
            owner_url: Some(database.owner_url()),
            ..AuditConfig::default()
        };
        tollgate::storage::postgres::migrate(&config).await?;
        Ok(Self { database, config, _server: server })
    }
}
