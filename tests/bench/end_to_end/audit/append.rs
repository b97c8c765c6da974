//! What a row costs the embedded store.

use std::{
    fs,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use tokio::runtime::Runtime;
use tollgate::{
    audit::{
        AuditSink as _,
        query::{AuditQuery as _, Filter, Order},
    },
    storage::sqlite::{self, AuditReader, SqliteChain},
};

use super::{
    super::{
        Outcome,
        report::{Bar, Report},
    },
    Directory, Extent, count, cpu, each,
    question::TIMES,
    row,
    row::{BATCH, Rows, trace},
    verify,
};

/// Microseconds; what a row costs with nothing to find it by, and a quarter more.
const BAR_US: f64 = 7.2;

/// Rows that questions are asked of: those that are asked for, and no more than these.
const MOST_QUESTION_ROWS: u64 = 1_000_000;

pub fn sqlite(runtime: &Runtime, extent: &Extent<'_>, report: &mut Report) -> Outcome<()> {
    let (mut costs, mut bytes, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    let rows = extent.rows / BATCH * BATCH;
    for _ in 0..extent.rounds {
        let directory = Directory::new()?;
        let used = runtime.block_on(write(&directory, Rows::new(), rows))?;
        costs.push(each(used, rows));
        let mut chain = runtime.block_on(SqliteChain::open(&directory.database()))?;
        rates.push(verify::rate(runtime, &mut chain, rows)?);
        drop(chain);
        let of = |path| fs::metadata(path).map_or(0, |file| file.len());
        let log = directory.0.join("tollgate.db-wal");
        bytes.push(count(of(directory.database()).max(of(log))) / count(rows as u64));
    }
    let bar = Bar::AtMost { bar: BAR_US };
    report.add(row("SQLite: CPU a row", "µs", costs).with_bar(bar));
    report.add(row("SQLite: a row takes", "B", bytes));
    report.add(row("SQLite: rows verified", "1/s", rates));
    questions(runtime, extent, report)
}

fn questions(runtime: &Runtime, extent: &Extent<'_>, report: &mut Report) -> Outcome<()> {
    let rows = u32::try_from(extent.question_rows.min(MOST_QUESTION_ROWS))?;
    eprintln!("audit: questions over {rows} rows of SQLite");
    let directory = Directory::new()?;
    runtime.block_on(write(&directory, Rows::of_a_day(rows), rows as usize))?;
    let trail = runtime.block_on(AuditReader::open(&directory.database()))?;
    let trace = format!("{:032x}", trace(1));
    for (what, terms) in [
        (
            "SQLite: fleet, arcadedb, 1 h",
            &[("capability", "fleet:write"), ("tool", "arcadedb"), ("from", "1h")][..],
        ),
        (
            "SQLite: what most have, 1 h",
            &[("capability", "model:reasoning"), ("tier", "pro"), ("from", "1h")],
        ),
        ("SQLite: one agent", &[("agent", "agent-3")]),
        ("SQLite: one trace", &[("trace_id", &trace)]),
        ("SQLite: one run", &[("run_id", "run-77")]),
        ("SQLite: what is nowhere", &[("subject", "nobody")]),
    ] {
        let mut filter = Filter::default();
        for (name, value) in terms {
            filter.set(name, value, Timestamp::now())?;
        }
        let mut took = Vec::new();
        for _ in 0..TIMES {
            let started = Instant::now();
            runtime.block_on(trail.page(&filter, Order::NewestFirst, None, 101))?;
            took.push(started.elapsed().as_secs_f64() * 1_000.0);
        }
        report.add(row(what, "ms", took));
    }
    Ok(())
}

/// The CPU that writing took, making the rows left out.
async fn write(directory: &Directory, mut source: Rows, rows: usize) -> Outcome<Duration> {
    let sink = sqlite::open(&directory.database()).await?;
    let mut used = Duration::ZERO;
    for _ in 0..rows / BATCH {
        let batch = source.batch();
        let linked = batch.linked();
        let before = cpu()?;
        sink.append(&linked).await?;
        used += cpu()?.saturating_sub(before);
    }
    Ok(used)
}
