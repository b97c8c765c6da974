//! How fast the chain is verified.

use std::time::Instant;

use jiff::Timestamp;
use tokio::runtime::Runtime;
use tollgate::audit::verify::{self, ChainReader, Options};

use super::{super::Outcome, a_second};

/// Rows a second, all of which must be as they were written.
pub fn rate(runtime: &Runtime, chain: &mut dyn ChainReader, rows: usize) -> Outcome<f64> {
    let options = Options {
        checkpoints: None,
        keys: Vec::new(),
        spool: None,
        from: None,
        to: None,
        retention_days: None,
        contents: false,
        now: Timestamp::now(),
    };
    let started = Instant::now();
    let report = runtime.block_on(verify::verify(chain, options, &|_, _| {}))?;
    if !report.is_clean || usize::try_from(report.rows)? != rows {
        return Err(format!("{} of {rows} rows: {:?}", report.rows, report.findings).into());
    }
    Ok(a_second(rows, started.elapsed()))
}
