//! How many rows of the audit trail come to Postgres in a second, and what a row takes up there.

use std::time::Instant;

use tokio::runtime::Runtime;
use tollgate::{
    audit::AuditSink as _,
    storage::postgres::{self, PostgresChain},
};

use super::{
    super::{
        Outcome,
        report::{Bar, Report},
    },
    Extent, Postgres, a_second, count, row,
    row::{BATCH, Rows},
    verify,
};

const SIZES: &str = "\
    SELECT (SELECT count(*) FROM tollgate.audit), \
           (SELECT sum(pg_table_size(inhrelid))::int8 FROM pg_inherits \
            WHERE inhparent = 'tollgate.audit'::regclass), \
           (SELECT sum(pg_indexes_size(inhrelid))::int8 FROM pg_inherits \
            WHERE inhparent = 'tollgate.audit'::regclass) \
               + pg_total_relation_size('tollgate.audit_closed')";

pub fn postgres(runtime: &Runtime, extent: &Extent<'_>, report: &mut Report) -> Outcome<()> {
    let store = runtime.block_on(Postgres::start())?;
    let sink = postgres::sink(&store.config)?;
    let (mut source, mut shipped, mut verified) = (Rows::new(), Vec::new(), Vec::new());
    let rows = extent.rows / BATCH * BATCH;
    for _ in 0..extent.rounds {
        let batches: Vec<_> = (0..rows / BATCH).map(|_| source.batch()).collect();
        let started = Instant::now();
        for batch in &batches {
            runtime.block_on(sink.append(&batch.linked()))?;
        }
        shipped.push(a_second(rows, started.elapsed()));
    }
    let all = rows * usize::try_from(extent.rounds)?;
    for _ in 0..extent.rounds {
        let mut chain = runtime.block_on(PostgresChain::open(&store.config))?;
        verified.push(verify::rate(runtime, &mut chain, all)?);
    }
    let (rows, table, indexes): (i64, i64, i64) = runtime.block_on(async {
        let mut superuser = store.database.superuser().await;
        sqlx::query_as(SIZES).fetch_one(&mut superuser).await
    })?;
    let each = |bytes: i64| vec![count(bytes.unsigned_abs()) / count(rows.unsigned_abs())];
    let bar = Bar::AtLeast { bar: 20_000.0 };
    report.add(row("Postgres: rows shipped", "1/s", shipped).with_bar(bar));
    report.add(row("Postgres: a row takes", "B", each(table)));
    report.add(row("Postgres: its indexes take", "B", each(indexes)));
    let bar = Bar::AtLeast { bar: 200_000.0 };
    report.add(row("Postgres: rows verified", "1/s", verified).with_bar(bar));
    Ok(())
}
