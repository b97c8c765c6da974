//! What a row costs the embedded store.

use std::{fs, time::Duration};

use tokio::runtime::Runtime;
use tollgate::{
    audit::AuditSink as _,
    storage::sqlite::{self, SqliteChain},
};

use super::{
    super::{
        Outcome,
        report::{Bar, Report},
    },
    Directory, Extent, count, cpu, each, row,
    row::{BATCH, Rows},
    verify,
};

/// Microseconds; what a row costs with nothing to find it by, and a quarter more.
const BAR_US: f64 = 7.2;

pub fn sqlite(runtime: &Runtime, extent: &Extent<'_>, report: &mut Report) -> Outcome<()> {
    let (mut costs, mut bytes, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    let rows = extent.rows / BATCH * BATCH;
    for _ in 0..extent.rounds {
        let directory = Directory::new()?;
        let used = runtime.block_on(fill(&directory, rows))?;
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
    Ok(())
}

/// The CPU that writing took, making the rows left out.
async fn fill(directory: &Directory, rows: usize) -> Outcome<Duration> {
    let sink = sqlite::open(&directory.database()).await?;
    let (mut source, mut used) = (Rows::new(), Duration::ZERO);
    for _ in 0..rows / BATCH {
        let batch = source.batch();
        let linked = batch.linked();
        let before = cpu()?;
        sink.append(&linked).await?;
        used += cpu()?.saturating_sub(before);
    }
    Ok(used)
}
