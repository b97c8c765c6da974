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
        self.labelled(kind, name, help, [], [([], value)]);
    }

    /// Adds a metric with a value for each value of one label.
    pub fn family<'a>(
        &mut self,
        kind: MetricKind,
        name: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (&'a str, u64)>,
    ) {
        self.labelled(kind, name, help, [label], values.into_iter().map(|(of, n)| ([of], n)));
    }

    /// Adds a metric with a value for each set of values of its labels. Labels are words of our own
    /// or of the configuration's: nothing that a stranger says is ever one, and none needs escapes.
    pub fn labelled<'a, const LABELS: usize>(
        &mut self,
        kind: MetricKind,
        name: &str,
        help: &str,
        labels: [&str; LABELS],
        values: impl IntoIterator<Item = ([&'a str; LABELS], u64)>,
    ) {
        let kind = match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
        };
        // Writing into a `String` does not fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (of, value) in values {
            self.0.push_str(name);
            for (index, (label, of)) in labels.iter().zip(of).enumerate() {
                let before = if index == 0 { '{' } else { ',' };
                let _ = write!(self.0, "{before}{label}=\"{of}\"");
            }
            let close = if LABELS == 0 { "" } else { "}" };
            let _ = writeln!(self.0, "{close} {value}");
        }
    }

    #[must_use]
    pub fn into_text(self) -> String {
        self.0
    }
}
