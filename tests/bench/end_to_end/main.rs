//! What a governed call costs beside a bare pass-through, end to end.
//!
//! One run starts, each in a process of its own, a mock upstream, a bare hyper pass-through, the
//! gateway with everything on (JWT, limits, audit) and, round after round, a load generator that
//! drives one of them. The targets take turns, so a drift of the machine meets both alike.
//!
//! - CPU is what the target's process used between the start of the load and a moment after its
//!   end, by its CPU clock: see [`process_usage`].
//! - The cost of an event is the CPU of whole streams, opening them included, divided by the
//!   events that the client received; "net" leaves out what as many plain requests cost.
//! - A round's added latency is its percentile less that of the same load sent straight to the
//!   upstream in the same round.
//! - A row shows the median of its rounds.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "its output is its result")]

mod audit;
mod gateway;
mod identity;
mod listener;
mod load;
mod measure;
mod mock_upstream;
mod option;
mod pass_through;
#[path = "../../it/support/patience.rs"]
mod patience;
mod payload;
mod plan;
mod process;
mod process_usage;
mod report;
#[path = "../../it/support/postgres.rs"]
#[expect(
    dead_code,
    clippy::expect_used,
    clippy::panic,
    reason = "tests do more with a server than start it, and fail by panicking"
)]
mod server;
mod stand;

use std::{
    env,
    error::Error,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Parser;
use option::Options;
use report::Report;

/// What went wrong, in a sentence: nobody here tells errors apart.
type Failure = Box<dyn Error + Send + Sync>;
type Outcome<T> = Result<T, Failure>;

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let outcome = match arguments.next().as_deref() {
        Some("mock-upstream") => mock_upstream::run(),
        Some("pass-through") => arguments.next().ok_or("no upstream".into()).and_then(|upstream| {
            let upstream = upstream.parse()?;
            pass_through::run(upstream)
        }),
        Some("load") => arguments.next().ok_or("no plan".into()).and_then(|plan| load::run(&plan)),
        Some("guard") => gateway::guard(arguments),
        _ => bench(&Options::parse()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("end_to_end: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bench(options: &Options) -> Outcome<()> {
    process_usage::raise_open_files()?;
    let gateway = gateway::binary(&target_directory())?;
    let mut report = Report::new(options.quick, gateway.as_deref());
    report.print_head();
    measure::run(options, gateway.as_deref(), &mut report)?;
    report.print_table();
    let path = target_directory().join("bench/end_to_end.json");
    report.write(&path)?;
    println!("\nwritten to {}", path.display());
    Ok(())
}

/// Cargo's target directory: the parent of the directory that it gives benches.
fn target_directory() -> PathBuf {
    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    temporary.parent().unwrap_or(temporary).to_owned()
}
