//! `tollgate audit verify`: is the audit trail what was written?

use std::{
    io::{self, IsTerminal as _, Write},
    path::PathBuf,
    process::ExitCode,
    sync::Mutex,
    time::{Duration, Instant},
};

use clap::Args;
use jiff::{Timestamp, civil, tz::TimeZone};

use super::{Database, Failure, complain, runtime, say};
use crate::{
    audit::{
        checkpoint::{CheckpointKey, PublicKey, read_public_keys},
        verify::{self, ChainReader, ContentReport, Report},
    },
    config::{AuditConfig, AuditStore, CheckpointTarget},
    storage::{postgres::PostgresChain, sqlite::SqliteChain},
};

/// How often the progress is drawn.
const DRAW_INTERVAL: Duration = Duration::from_millis(100);
const BAR_WIDTH: usize = 30;
/// Writers that are listed one by one for a person; `--json` has all.
const SHOWN_WRITERS: usize = 20;
/// The exit code for what is no finding: a wrong option, or something that can't be read.
const CANNOT: u8 = 2;

#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(flatten)]
    database: Database,
    /// A log of checkpoints; repeatable, one for each gateway [default: audit.checkpoints]
    #[arg(long, value_name = "FILE")]
    checkpoints: Vec<PathBuf>,
    /// PEM of the keys that checkpoints are signed with; repeatable [default: `audit.checkpoint_key`]
    #[arg(long, value_name = "FILE")]
    public_key: Vec<PathBuf>,
    /// The spool of a gateway, whose entries the store may not have yet [default: audit.spool]
    #[arg(long, value_name = "DIRECTORY")]
    spool: Option<PathBuf>,
    /// Look only at what was written since: a time such as 2026-07-01T08:00:00Z, or a day in UTC
    #[arg(long, value_name = "TIME", value_parser = time)]
    from: Option<Timestamp>,
    /// Look only at what was written until then
    #[arg(long, value_name = "TIME", value_parser = time)]
    to: Option<Timestamp>,
    /// Hold what is kept of prompts and answers against its hashes, too
    #[arg(long)]
    content: bool,
    /// JSON instead of sentences
    #[arg(long)]
    json: bool,
}

fn time(text: &str) -> Result<Timestamp, String> {
    if let Ok(time) = text.parse() {
        return Ok(time);
    }
    let day = text.parse::<civil::Date>().and_then(|day| day.to_zoned(TimeZone::UTC));
    day.map(|day| day.timestamp()).map_err(|_| {
        "it is neither a time such as 2026-07-01T08:00:00Z nor a day such as 2026-07-01".to_owned()
    })
}

pub(super) fn run(options: Options) -> ExitCode {
    match verified(options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            complain(&failure);
            ExitCode::from(CANNOT)
        }
    }
}

/// Prints the public half of the signing key.
pub(super) fn public_key(database: &Database) -> Result<(), Failure> {
    let path = database.audit()?.checkpoint_key();
    let key = CheckpointKey::load(&path).map_err(|error| {
        format!("audit.checkpoint_key: {error}; the gateway's first start makes it")
    })?;
    say(&key.public().to_pem().trim_end())
}

fn verified(options: Options) -> Result<bool, Failure> {
    let is_configured = options.database.path.is_none() && options.database.config.is_some();
    let Options { database, checkpoints, public_key, spool, from, to, content, json } = options;
    let config = database.audit()?;
    let mut notes = Vec::new();
    let checkpoints = logs(&config, checkpoints, is_configured, &mut notes);
    let keys = match &checkpoints {
        Some(logs) if !logs.is_empty() => keys(&config, &public_key)?,
        _ => Vec::new(),
    };
    let asked = verify::Options {
        checkpoints,
        keys,
        spool: spool.or_else(|| Some(config.spool()).filter(|spool| spool.is_dir())),
        from,
        to,
        retention_days: config.retention_days,
        contents: content,
        now: Timestamp::now(),
    };
    let started = Instant::now();
    let bar = Bar::new(started);
    let report = runtime()?.block_on(async {
        let mut chain: Box<dyn ChainReader> = match config.store {
            AuditStore::Sqlite => Box::new(SqliteChain::open(&config.path).await?),
            AuditStore::Postgres => Box::new(PostgresChain::open(&config).await?),
        };
        let draw = |done, all| bar.draw(done, all);
        Ok::<_, Failure>(verify::verify(&mut *chain, asked, &draw).await?)
    });
    bar.clear();
    let mut report = report?;
    report.notes.extend(notes);
    let mut out = io::stdout().lock();
    let printed = if json {
        serde_json::to_writer_pretty(&mut out, &report)?;
        writeln!(out)
    } else {
        print(&report, started.elapsed(), &mut out)
    };
    match printed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(report.is_clean),
    }
}

/// The logs to read; `None` where only the chain can be looked at.
fn logs(
    config: &AuditConfig,
    given: Vec<PathBuf>,
    is_configured: bool,
    notes: &mut Vec<String>,
) -> Option<Vec<PathBuf>> {
    if !given.is_empty() {
        return Some(given);
    }
    match config.checkpoints() {
        CheckpointTarget::File(path) if path.exists() => Some(vec![path]),
        // The gateway should have made it: what no checkpoint speaks of is told then.
        CheckpointTarget::File(path) if is_configured => {
            notes.push(format!("there are no checkpoints at {}", path.display()));
            Some(Vec::new())
        }
        CheckpointTarget::File(_) | CheckpointTarget::Stdout => {
            let what = "no checkpoints were given: rows removed from the end, and a chain that was \
                        made anew, are not found without; pass --checkpoints";
            notes.push(what.to_owned());
            None
        }
    }
}

fn keys(config: &AuditConfig, given: &[PathBuf]) -> Result<Vec<PublicKey>, Failure> {
    let mut keys = Vec::new();
    for path in given {
        keys.extend(read_public_keys(path)?);
    }
    if given.is_empty() {
        let path = config.checkpoint_key();
        let key = CheckpointKey::load(&path).map_err(|error| {
            format!("no key to check the checkpoints with: pass --public-key ({error})")
        })?;
        keys.push(key.public());
    }
    Ok(keys)
}

fn print(report: &Report, took: Duration, out: &mut impl Write) -> io::Result<()> {
    for finding in &report.findings {
        writeln!(out, "{finding}")?;
    }
    let more = report.finding_count.saturating_sub(report.findings.len() as u64);
    if more > 0 {
        writeln!(out, "and {more} more findings")?;
    }
    for writer in report.writers.iter().take(SHOWN_WRITERS) {
        write!(out, "writer {}: {} rows", writer.writer, writer.rows)?;
        if writer.rows > 0 {
            write!(out, ", seq {} to {}", writer.first_seq, writer.last_seq)?;
            write!(out, ", epochs {} to {}", writer.first_epoch, writer.last_epoch)?;
        }
        if report.checkpoints.is_some() {
            write!(out, ", {} checkpoints to seq {}", writer.checkpoints, writer.covered_seq)?;
        }
        if writer.waiting > 0 {
            write!(out, ", {} entries waiting in the spool", writer.waiting)?;
        }
        writeln!(out)?;
    }
    if report.writers.len() > SHOWN_WRITERS {
        writeln!(out, "and {} more writers", report.writers.len() - SHOWN_WRITERS)?;
    }
    if report.unchained_rows > 0 {
        writeln!(out, "{} rows from before the chain: nothing proves them", report.unchained_rows)?;
    }
    if let Some(contents) = &report.contents {
        print_contents(contents, out)?;
    }
    for note in &report.notes {
        writeln!(out, "note: {note}")?;
    }
    summarize(report, took, out)
}

fn print_contents(contents: &ContentReport, out: &mut impl Write) -> io::Result<()> {
    let ContentReport { checked, truncated, without_row, expired, missing } = contents;
    writeln!(out, "content: {checked} sides were held against their hashes")?;
    for (count, what) in [
        (truncated, "are kept in part: the hash of the whole does not prove their beginning"),
        (without_row, "belong to no row, or to one that has not come yet"),
        (expired, "are gone with the retention"),
        (missing, "are not there: not kept (audit.content), or deleted"),
    ] {
        if *count > 0 {
            writeln!(out, "content: {count} sides {what}")?;
        }
    }
    Ok(())
}

fn summarize(report: &Report, took: Duration, out: &mut impl Write) -> io::Result<()> {
    match report.finding_count {
        0 => write!(out, "verified: ")?,
        1 => write!(out, "NOT VERIFIED: 1 finding; ")?,
        count => write!(out, "NOT VERIFIED: {count} findings; ")?,
    }
    let (rows, writers) = (report.rows, report.writers.len());
    write!(out, "{rows} rows of {writers} writers in {:.1} s", took.as_secs_f64())?;
    write!(out, " ({} rows/s)", rate(rows, took))?;
    if let Some(checkpoints) = &report.checkpoints {
        write!(out, ", {} checkpoints", checkpoints.checkpoints)?;
        if let Some(last) = checkpoints.last {
            write!(out, ", the last of {last:.0}")?;
        }
    }
    writeln!(out)?;
    out.flush()
}

/// Rows a second.
fn rate(rows: u64, took: Duration) -> u128 {
    u128::from(rows) * 1_000_000 / took.as_micros().max(1)
}

/// How far it is, on one line of a terminal; nothing where stderr is none.
struct Bar {
    started: Instant,
    drawn: Option<Mutex<Instant>>,
}

impl Bar {
    fn new(started: Instant) -> Self {
        Self { started, drawn: io::stderr().is_terminal().then(|| Mutex::new(started)) }
    }

    fn draw(&self, done: u64, all: u64) {
        let Some(Ok(mut drawn)) = self.drawn.as_ref().map(Mutex::lock) else { return };
        if drawn.elapsed() < DRAW_INTERVAL {
            return;
        }
        *drawn = Instant::now();
        let all = all.max(1);
        let percent = done.saturating_mul(100) / all;
        let full = BAR_WIDTH * usize::try_from(percent).unwrap_or_default() / 100;
        let bar = "#".repeat(full) + &"-".repeat(BAR_WIDTH.saturating_sub(full));
        let rate = rate(done, self.started.elapsed());
        // Where stderr is gone there is nobody to show it to.
        let _ = write!(
            io::stderr(),
            "\r[{bar}] {percent:>3} %, {done} of {all} rows, {rate} rows/s \x1b[K"
        );
    }

    fn clear(&self) {
        if self.drawn.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
