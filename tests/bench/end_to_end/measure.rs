//! The parts of the bench: which load, how often, and what is made of it.

use std::{path::Path, time::Duration};

use super::{
    Failure, Outcome,
    audit::{self, Extent},
    gateway::Audit,
    option::{Options, Part},
    payload::{Ask, PACE_MS},
    plan::{GO, Tally, Work},
    process::pause,
    process_usage::{cpu_time, resident_bytes},
    report::{Bar, Report, Row, Values},
    stand::{Load, Side, Stand, Target},
};

/// After a load's end: what a target does a little later, such as writing its audit rows, is
/// part of the price.
const SETTLE: Duration = Duration::from_millis(300);

const REQUEST_CONNECTIONS: usize = 32;
const BURST_CONNECTIONS: usize = 16;
const PACED_STREAMS: usize = 100;
const PER_SECOND: u32 = 300;
const SETTLING_PER_SECOND: u32 = 50;

/// How much of everything.
#[derive(Clone, Copy)]
struct Size {
    rounds: u32,
    requests: u64,
    bursts: u64,
    paced_rounds: u32,
    paced_ms: u64,
    open_rounds: u32,
    open_s: u64,
    held_streams: usize,
    audit_rounds: u32,
    audit_rows: usize,
    question_rows: u64,
    settling_s: u64,
    deadline_s: u64,
}

impl Size {
    const FULL: Self = Self {
        rounds: 5,
        requests: 20_000,
        bursts: 2_000,
        paced_rounds: 5,
        paced_ms: 8_000,
        open_rounds: 3,
        open_s: 5,
        held_streams: 2_000,
        audit_rounds: 3,
        audit_rows: 200_000,
        question_rows: 1_000_000,
        settling_s: 4,
        deadline_s: 120,
    };
    const QUICK: Self = Self {
        rounds: 1,
        requests: 1_000,
        bursts: 100,
        paced_rounds: 1,
        paced_ms: 500,
        open_rounds: 1,
        open_s: 1,
        held_streams: 200,
        audit_rounds: 1,
        audit_rows: 10_000,
        question_rows: 30_000,
        settling_s: 1,
        deadline_s: 60,
    };
}

/// Measures what is wanted, each part with processes of its own.
pub fn run(options: &Options, gateway: Option<&Path>, report: &mut Report) -> Outcome<()> {
    let mut size = if options.quick { Size::QUICK } else { Size::FULL };
    size.held_streams = options.streams.map_or(size.held_streams, usize::from);
    let mut a_request = None;
    if options.wants(Part::Requests) {
        a_request = Some(requests(&Stand::start(gateway)?, size, report)?);
    }
    if options.wants(Part::Bursts) {
        bursts(&Stand::start(gateway)?, size, a_request.as_ref(), report)?;
    }
    if options.wants(Part::Paced) {
        paced(&Stand::start(gateway)?, size, report)?;
    }
    if options.wants(Part::Latency) {
        let names = ["added latency, p50", "added latency, p99"];
        latency(&Stand::start(gateway)?, size, Ask::WHOLE, names, report)?;
    }
    if options.wants(Part::FirstToken) {
        let names = ["added to first event, p50", "added to first event, p99"];
        latency(&Stand::start(gateway)?, size, Ask::BURST, names, report)?;
    }
    if options.wants(Part::Memory) {
        memory(&Stand::start(gateway)?, size, report)?;
    }
    if options.wants(Part::Audit) {
        trail(options, size, gateway, report)?;
    }
    Ok(())
}

/// Returns what a request costs, for the events' net cost.
fn requests(stand: &Stand, size: Size, report: &mut Report) -> Outcome<Values> {
    let work =
        |requests| Work::Closed { ask: Ask::WHOLE, connections: REQUEST_CONNECTIONS, requests };
    let series = Series {
        name: "requests",
        warm_up: work(size.requests / 10),
        work: work(size.requests),
        rounds: size.rounds,
        deadline_s: size.deadline_s,
    };
    let rounds = series.run(stand, &proxies(stand))?;
    let cpu = rounds.values(Sample::cpu_us_a_request);
    let bar = Bar::Times { bar: 5.0, aim: 3.0 };
    report.add(Row::new("CPU a request", "µs", cpu.clone()).with_bar(bar));
    report.add(Row::new("requests a second", "1/s", rounds.values(Sample::requests_a_second)));
    Ok(cpu)
}

fn bursts(
    stand: &Stand,
    size: Size,
    a_request: Option<&Values>,
    report: &mut Report,
) -> Outcome<()> {
    let work =
        |requests| Work::Closed { ask: Ask::BURST, connections: BURST_CONNECTIONS, requests };
    let series = Series {
        name: "bursts",
        warm_up: work(size.bursts / 10),
        work: work(size.bursts),
        rounds: size.rounds,
        deadline_s: size.deadline_s,
    };
    let rounds = series.run(stand, &proxies(stand))?;
    let cpu = rounds.values(Sample::cpu_us_an_event);
    let bar = Bar::Times { bar: 2.0, aim: 1.0 };
    report.add(Row::new("CPU an event in bursts", "µs", cpu.clone()).with_bar(bar));
    if let Some(a_request) = a_request {
        let a_request = a_request.medians();
        let net = cpu.less(&a_request.divided_by(Ask::BURST.events()));
        report.add(Row::new("  net of a request's cost", "µs", net));
    }
    report.add(Row::new(
        "events a second in bursts",
        "1/s",
        rounds.values(Sample::events_a_second),
    ));
    Ok(())
}

fn paced(stand: &Stand, size: Size, report: &mut Report) -> Outcome<()> {
    let work = |ms: u64| Work::Closed {
        ask: Ask::paced(ms / PACE_MS),
        connections: PACED_STREAMS,
        requests: PACED_STREAMS as u64,
    };
    let series = Series {
        name: "paced",
        warm_up: work(size.paced_ms / 10),
        work: work(size.paced_ms),
        rounds: size.paced_rounds,
        deadline_s: size.deadline_s,
    };
    let rounds = series.run(stand, &proxies(stand))?;
    let bar = Bar::Times { bar: 1.5, aim: 1.25 };
    let cpu = rounds.values(Sample::cpu_us_an_event);
    report.add(Row::new("CPU an event paced", "µs", cpu).with_bar(bar));
    Ok(())
}

fn latency(
    stand: &Stand,
    size: Size,
    ask: Ask,
    names: [&'static str; 2],
    report: &mut Report,
) -> Outcome<()> {
    let work = |seconds: u64| Work::Open {
        ask,
        per_second: PER_SECOND,
        requests: u64::from(PER_SECOND) * seconds,
    };
    let series = Series {
        name: if ask == Ask::WHOLE { "latency" } else { "first event" },
        warm_up: work(1),
        work: work(size.open_s),
        rounds: size.open_rounds,
        deadline_s: size.deadline_s,
    };
    let rounds = series.run(stand, stand.targets())?;
    for (name, hundredths) in names.into_iter().zip([50, 99]) {
        let whole = rounds.values(|sample| sample.latency_us(hundredths));
        report.add(Row::new(name, "µs", whole.added_to_direct()));
    }
    Ok(())
}

fn memory(stand: &Stand, size: Size, report: &mut Report) -> Outcome<()> {
    eprintln!("memory: {} idle streams", size.held_streams);
    let mut values = Values::default();
    for target in proxies(stand) {
        let held = held(stand, target, size).map_err(|error| explained(stand, target, &error))?;
        values.push(target.side, held);
    }
    let bar = Bar::AtMost { bar: 40.0 };
    report.add(Row::new("memory an open stream", "KiB", values).with_bar(bar));
    Ok(())
}

/// KiB that the target grew by for each stream that it holds open.
fn held(stand: &Stand, target: Target, size: Size) -> Outcome<f64> {
    let work = Work::Held { streams: size.held_streams };
    let mut load = stand.load(target, work, size.deadline_s)?;
    let before = settled_bytes(stand, target, size)?;
    let tally = load.run()?;
    let after = settled_bytes(stand, target, size)?;
    // A process that serves streams and does not grow is not the one that serves them.
    let grown = after.checked_sub(before).filter(|grown| *grown > 0);
    let grown = grown.ok_or_else(|| {
        format!("process {} does not grow with its streams: is it a wrapper?", target.pid)
    })?;
    Ok(ratio(grown, tally.requests) / 1_024.0)
}

/// Resident memory after some ordinary requests: an allocator gives back what opening streams took for
/// a moment, but only while it is used, as it is where streams are held for long.
fn settled_bytes(stand: &Stand, target: Target, size: Size) -> Outcome<u64> {
    let work = Work::Open {
        ask: Ask::WHOLE,
        per_second: SETTLING_PER_SECOND,
        requests: u64::from(SETTLING_PER_SECOND) * size.settling_s,
    };
    stand.load(target, work, size.deadline_s)?.run()?;
    pause(SETTLE);
    resident_bytes(target.pid)
}

/// What a call pays for its audit trail, and what can be had of it.
fn trail(
    options: &Options,
    size: Size,
    gateway: Option<&Path>,
    report: &mut Report,
) -> Outcome<()> {
    for (names, settings) in [
        (["added by spool, p50", "added by spool, p99"], Audit::Spool),
        (["added by strict, p50", "added by strict, p99"], Audit::Strict),
    ] {
        latency(&Stand::start_with(gateway, &settings)?, size, Ask::WHOLE, names, report)?;
    }
    let extent = Extent {
        rounds: size.audit_rounds,
        rows: size.audit_rows,
        calls: size.audit_rows / 2,
        question_rows: options.audit_rows.unwrap_or(size.question_rows),
        gateway,
    };
    audit::run(&extent, report)
}

/// All but the upstream itself.
fn proxies(stand: &Stand) -> Vec<Target> {
    stand.targets().iter().copied().filter(|target| target.side != Side::Direct).collect()
}

/// The same load for several targets in turn, some rounds long.
struct Series {
    name: &'static str,
    warm_up: Work,
    work: Work,
    rounds: u32,
    deadline_s: u64,
}

impl Series {
    fn run(&self, stand: &Stand, targets: &[Target]) -> Outcome<Rounds> {
        for target in targets {
            self.sample(stand, *target, self.warm_up)?;
        }
        let mut rounds = Rounds::default();
        let mut order = targets.to_vec();
        for round in 1..=self.rounds {
            eprintln!("{}: round {round} of {}", self.name, self.rounds);
            for target in &order {
                rounds.0.push((target.side, self.sample(stand, *target, self.work)?));
            }
            // A-B, B-A, …: what changes steadily falls on both alike.
            order.reverse();
        }
        Ok(rounds)
    }

    fn sample(&self, stand: &Stand, target: Target, work: Work) -> Outcome<Sample> {
        let measure = || {
            let mut load = stand.load(target, work, self.deadline_s)?;
            let before = cpu_time(target.pid)?;
            let tally = load.run()?;
            pause(SETTLE);
            let cpu = cpu_time(target.pid)?.saturating_sub(before);
            Ok(Sample { cpu, tally })
        };
        measure().map_err(|error| explained(stand, target, &error))
    }
}

fn explained(stand: &Stand, target: Target, error: &Failure) -> Failure {
    let words = if target.side == Side::Gateway { stand.last_words() } else { String::new() };
    format!("{:?}: {error}\n{words}", target.side).into()
}

impl Load {
    fn run(&mut self) -> Outcome<Tally> {
        self.process.send(GO)?;
        Ok(serde_json::from_str(&self.process.line(self.within)?)?)
    }
}

/// One target under one load.
struct Sample {
    cpu: Duration,
    tally: Tally,
}

impl Sample {
    fn cpu_us_a_request(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / count(self.tally.requests)
    }

    fn cpu_us_an_event(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / count(self.tally.events)
    }

    fn requests_a_second(&self) -> f64 {
        ratio(self.tally.requests, self.tally.elapsed_ns) * 1e9
    }

    fn events_a_second(&self) -> f64 {
        ratio(self.tally.events, self.tally.elapsed_ns) * 1e9
    }

    /// The nearest-rank percentile.
    fn latency_us(&self, hundredths: usize) -> f64 {
        let mut sorted = self.tally.latencies_ns.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * hundredths).div_ceil(100).saturating_sub(1);
        sorted.get(rank).map_or(f64::NAN, |nanos| count(*nanos) / 1e3)
    }
}

/// Every sample of a series, in the order in which they were taken.
#[derive(Default)]
struct Rounds(Vec<(Side, Sample)>);

impl Rounds {
    fn values(&self, of: impl Fn(&Sample) -> f64) -> Values {
        let mut values = Values::default();
        for (side, sample) in &self.0 {
            values.push(*side, of(sample));
        }
        values
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    count(part) / count(whole)
}

#[expect(clippy::cast_precision_loss, reason = "counts and nanoseconds here are far below 2^53")]
fn count(number: u64) -> f64 {
    number as f64
}
