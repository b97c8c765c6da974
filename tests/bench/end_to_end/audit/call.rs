//! What a call pays for its audit entries: both of them, from their making to the embedded store.

use std::{sync::Arc, time::Duration};

use tokio::{
    runtime::Runtime,
    task::{JoinSet, spawn_blocking},
};
use tokio_util::task::TaskTracker;
use tollgate::{
    audit::{Audit, spool::Spool},
    config::{AuditConfig, Durability},
    redact::LiveRedactor,
    storage::sqlite,
};

use super::{
    super::{Outcome, report::Report},
    Directory, Extent, cpu, each, row,
    row::{caller, entries},
};

/// Calls under way at once.
const CALLERS: usize = 32;
const PATIENCE: Duration = Duration::from_mins(1);

pub fn run(runtime: &Runtime, extent: &Extent<'_>, report: &mut Report) -> Outcome<()> {
    for (what, durability) in [
        ("audit: CPU a call, spool", Durability::Spool),
        ("audit: CPU a call, strict", Durability::Strict),
    ] {
        let mut costs = Vec::new();
        for _ in 0..extent.rounds {
            costs.push(runtime.block_on(cost(durability, extent.calls))?);
        }
        report.add(row(what, "µs", costs));
    }
    Ok(())
}

/// CPU of this process a call, in microseconds.
async fn cost(durability: Durability, calls: usize) -> Outcome<f64> {
    let directory = Directory::new()?;
    let path = directory.database();
    let config = AuditConfig { path, durability, ..AuditConfig::default() };
    let sink = Arc::new(sqlite::open(&config.path).await?);
    let spool = spawn_blocking(move || Spool::of(&config)).await??;
    let audit = Audit::start(spool, sink, LiveRedactor::default(), &TaskTracker::new())?;
    let before = cpu()?;
    let mut callers = JoinSet::new();
    for number in 0..CALLERS {
        let audit = audit.clone();
        callers.spawn(async move {
            let caller = caller(number);
            for number in 0..calls / CALLERS {
                let [intent, end] = entries(&caller, number);
                audit.intent(intent).await?;
                audit.record(end).await;
            }
            Outcome::Ok(())
        });
    }
    while let Some(done) = callers.join_next().await {
        done??;
    }
    audit.flush(PATIENCE).await?;
    let used = cpu()?.saturating_sub(before);
    audit.shutdown(PATIENCE).await?;
    Ok(each(used, calls / CALLERS * CALLERS))
}
