//! The command line.

use clap::{Parser, ValueEnum};

const EXAMPLES: &str = "\
Environment:
  TOLLGATE_BIN  the gateway to measure; without it target/release/tollgate, if it is there

Examples:
  cargo bench --bench end_to_end
  cargo bench --bench end_to_end -- --quick
  cargo bench --bench end_to_end -- --only bursts,paced
  cargo bench --bench end_to_end -- --only memory --streams 8000
  cargo bench --bench end_to_end -- --only audit --audit-rows 10000000";

/// Measures the gateway beside a bare pass-through: CPU, latency and memory. Takes some four
/// minutes. Fails only if something broke, not if a bar was missed.
#[derive(Debug, Parser)]
#[command(name = "end_to_end", after_help = EXAMPLES)]
pub struct Options {
    /// A smoke run of some seconds: shows that everything works; its numbers mean little.
    #[arg(long)]
    pub quick: bool,

    /// Measure only these.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,

    /// How many streams are held open for the memory of one.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub streams: Option<u16>,

    /// How many audit rows questions are asked over [default: 1000000, as 10000000 take some minutes
    /// to make and 10 GB]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1_000..))]
    pub audit_rows: Option<u64>,

    /// Given by `cargo bench`; means nothing here.
    #[arg(long, hide = true)]
    bench: bool,
}

/// One thing to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// CPU a request, not streamed.
    Requests,
    /// CPU an event, the upstream sending as fast as it can.
    Bursts,
    /// CPU an event, a token each 10 ms.
    Paced,
    /// Added latency at 300 requests a second.
    Latency,
    /// Added time to the first event at 300 streams a second.
    FirstToken,
    /// Resident memory an open stream.
    Memory,
    /// The audit trail: a row, a call, a verification and a question, with a Postgres of its own.
    Audit,
}

impl Options {
    pub fn wants(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }
}
