//! Prometheus's text format, version 0.0.4
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>).

use std::fmt::Write as _;

/// How a metric's value moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    Counter,
    Gauge,
}

/// Metrics, written one after the other.
#[derive(Debug, Default)]
pub struct Exposition(String);

impl Exposition {
    pub const CONTENT_TYPE: &'static str = "text/plain; version=0.0.4; charset=utf-8";

    /// Adds a metric with one value.
    pub fn metric(&mut self, kind: MetricKind, name: &str, help: &str, value: u64) {
        self.family(kind, name, help, "", [("", value)]);
    }

    /// Adds a metric with a value for each value of one label. Labels are words of our own: nothing
    /// that a stranger says is ever one.
    pub fn family<'a>(
        &mut self,
        kind: MetricKind,
        name: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (&'a str, u64)>,
    ) {
        let kind = match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
        };
        // Writing into a `String` does not fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (of, value) in values {
            let _ = if label.is_empty() {
                writeln!(self.0, "{name} {value}")
            } else {
                writeln!(self.0, "{name}{{{label}=\"{of}\"}} {value}")
            };
        }
    }

    #[must_use]
    pub fn into_text(self) -> String {
        self.0
    }
}
