//! The table and the file.

use std::{fs, path::Path, thread};

use jiff::Timestamp;
use serde::Serialize;

use super::{Outcome, stand::Side};

/// What was measured, with the circumstances that it depends on.
#[derive(Serialize)]
pub struct Report {
    at: Timestamp,
    quick: bool,
    /// Was the bench, so the pass-through, built with optimisation?
    optimized: bool,
    cores: usize,
    kernel: String,
    gateway: Option<String>,
    rows: Vec<Row>,
}

impl Report {
    pub fn new(quick: bool, gateway: Option<&Path>) -> Self {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            at: Timestamp::now(),
            quick,
            optimized: !cfg!(debug_assertions),
            cores: thread::available_parallelism().map_or(0, usize::from),
            kernel: kernel.trim_end().to_owned(),
            gateway: gateway.map(|path| path.display().to_string()),
            rows: Vec::new(),
        }
    }

    pub fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    pub fn print_head(&self) {
        println!("{} cores, Linux {}", self.cores, self.kernel);
        match &self.gateway {
            Some(path) => println!("gateway: {path}"),
            None => println!(
                "gateway: skipped, there is no target/release/tollgate (or name one by TOLLGATE_BIN)"
            ),
        }
        if !self.optimized {
            println!("the pass-through is a debug build: the ratios mean nothing");
        }
        if self.quick {
            println!("a quick run: the numbers mean little");
        }
    }

    pub fn print_table(&self) {
        println!();
        println!(
            "{:<28}{:>10}{:>14}{:>12}{:>9}{:>11}{:>9}  verdict",
            "", "direct", "pass-through", "gateway", "ratio", "bar", "aim"
        );
        for row in &self.rows {
            row.print();
        }
        println!("\nmedians of rounds; CPU an event = CPU of whole streams / events received;");
        println!("direct = the same load straight to the upstream; added = latency less direct");
    }

    pub fn write(&self, path: &Path) -> Outcome<()> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        Ok(fs::write(path, serde_json::to_string_pretty(self)? + "\n")?)
    }
}

/// What the gateway is held to.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bar {
    /// Times what the pass-through takes.
    Times {
        bar: f64,
        aim: f64,
    },
    /// In the row's unit.
    AtMost {
        bar: f64,
    },
    AtLeast {
        bar: f64,
    },
}

/// One measured thing, round by round and as medians.
#[derive(Serialize)]
pub struct Row {
    what: &'static str,
    unit: &'static str,
    rounds: Values,
    medians: Medians,
    /// Gateway to pass-through.
    ratio: Option<f64>,
    bar: Option<Bar>,
    verdict: Option<&'static str>,
}

impl Row {
    pub fn new(what: &'static str, unit: &'static str, rounds: Values) -> Self {
        let medians = rounds.medians();
        let ratio = medians.gateway.zip(medians.pass_through).map(|(ours, bare)| ours / bare);
        Self { what, unit, rounds, medians, ratio, bar: None, verdict: None }
    }

    pub fn with_bar(mut self, bar: Bar) -> Self {
        self.bar = Some(bar);
        self.verdict = match bar {
            Bar::Times { bar, aim } => self.ratio.map(|ratio| match ratio {
                _ if ratio <= aim => "PASS, aim met",
                _ if ratio <= bar => "PASS",
                _ => "FAIL",
            }),
            Bar::AtMost { bar } => {
                self.medians.gateway.map(|ours| if ours <= bar { "PASS" } else { "FAIL" })
            }
            Bar::AtLeast { bar } => {
                self.medians.gateway.map(|ours| if ours >= bar { "PASS" } else { "FAIL" })
            }
        };
        self
    }

    fn print(&self) {
        let (bar, aim) = match self.bar {
            Some(Bar::Times { bar, aim }) => (format!("<= {bar}x"), format!("{aim}x")),
            Some(Bar::AtMost { bar }) => (format!("<= {bar} {}", self.unit), String::new()),
            Some(Bar::AtLeast { bar }) => (format!(">= {bar}"), String::new()),
            None => (String::new(), String::new()),
        };
        println!(
            "{:<28}{:>10}{:>14}{:>12}{:>9}{:>11}{:>9}  {}",
            format!("{}, {}", self.what, self.unit),
            cell(self.medians.direct),
            cell(self.medians.pass_through),
            cell(self.medians.gateway),
            self.ratio.map(|ratio| format!("{ratio:.2}x")).unwrap_or_default(),
            bar,
            aim,
            self.verdict.unwrap_or_default(),
        );
    }
}

fn cell(value: Option<f64>) -> String {
    value.map(|value| format!("{value:.*}", if value < 100.0 { 2 } else { 0 })).unwrap_or_default()
}

/// One number a round for each side; none for a side that was not driven.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Values {
    direct: Vec<f64>,
    pass_through: Vec<f64>,
    gateway: Vec<f64>,
}

impl Values {
    pub fn push(&mut self, side: Side, value: f64) {
        match side {
            Side::Direct => self.direct.push(value),
            Side::PassThrough => self.pass_through.push(value),
            Side::Gateway => self.gateway.push(value),
        }
    }

    pub fn medians(&self) -> Medians {
        Medians {
            direct: median(&self.direct),
            pass_through: median(&self.pass_through),
            gateway: median(&self.gateway),
        }
    }

    /// Each side's rounds less one number.
    pub fn less(&self, other: &Medians) -> Self {
        let less = |values: &[f64], other: Option<f64>| {
            values.iter().map(|value| value - other.unwrap_or(f64::NAN)).collect()
        };
        Self {
            direct: less(&self.direct, other.direct),
            pass_through: less(&self.pass_through, other.pass_through),
            gateway: less(&self.gateway, other.gateway),
        }
    }

    /// The proxies' rounds less the direct one of the same round.
    pub fn added_to_direct(&self) -> Self {
        let added = |values: &[f64]| {
            values.iter().zip(&self.direct).map(|(value, direct)| value - direct).collect()
        };
        Self {
            direct: self.direct.clone(),
            pass_through: added(&self.pass_through),
            gateway: added(&self.gateway),
        }
    }
}

#[derive(Debug, Clone, Copy, Serialize)]
pub struct Medians {
    direct: Option<f64>,
    pass_through: Option<f64>,
    gateway: Option<f64>,
}

impl Medians {
    #[expect(clippy::cast_precision_loss, reason = "a stream has few events")]
    pub fn divided_by(self, events: u64) -> Self {
        let divided = |value: Option<f64>| value.map(|value| value / events as f64);
        Self {
            direct: divided(self.direct),
            pass_through: divided(self.pass_through),
            gateway: divided(self.gateway),
        }
    }
}

/// `None` of nothing.
fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(sorted[middle - 1], upper))
}
