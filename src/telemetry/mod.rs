//! Telemetry: log lines to stderr and, where a collector is configured, spans to OTLP.
//!
//! Nothing here may slow or fail a call. Lines and spans go through bounded queues to threads of
//! their own; what does not fit is dropped, counted, and told of once a minute.
//!
//! What strangers said may be in a line or a span, so every value has its secrets taken out before
//! it is written or sent: in `line` and `export`, by [`Telemetry::redactor`].

mod export;
mod exposition;
pub mod genai;
mod line;
mod panic;
mod scope;
mod span;
mod writer;

use std::{
    io::{self, IsTerminal, Write},
    time::Duration,
};

use tracing::{Dispatch, Metadata, Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    field::MakeExt as _,
    filter::{FilterFn, ParseError, filter_fn},
    fmt::{self, format::debug_fn},
    layer::SubscriberExt,
    registry::LookupSpan,
};

pub use export::ExportError;
pub use exposition::{Exposition, MetricKind};
pub use panic::log_panics;
pub use scope::{InScope, Scope};
pub use span::{CallSpan, ModelEnd, ModelStart, ServerStart, model_span, server_span};

use self::{
    export::Exporter,
    line::{JsonLine, NoFields, TextLine},
    span::OtelLayer,
    writer::LineQueue,
};
use crate::{
    config::{LogFormat, TelemetryConfig},
    redact::LiveRedactor,
};

/// What [`Telemetry::shutdown`] waits for the collector.
const FLUSH_SPANS: Duration = Duration::from_secs(3);
/// What the last log lines get to be written in.
const FLUSH_LINES: Duration = Duration::from_millis(500);

/// Telemetry that runs. When dropped, it writes out the log; [`Telemetry::shutdown`] sends the
/// last spans as well.
#[derive(Debug)]
pub struct Telemetry {
    lines: LineQueue,
    exporter: Option<Exporter>,
    redactor: LiveRedactor,
}

/// Why telemetry could not be started.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error("telemetry.log is not a filter: {0}")]
    Filter(#[source] ParseError),
    #[error("telemetry.otlp_endpoint: {0}")]
    Export(#[source] ExportError),
    #[error("no thread for the log: {0}")]
    Thread(#[source] io::Error),
    #[error("telemetry was already started in this process")]
    Started,
}

impl Telemetry {
    /// Sends the process's log to stderr, its panics to the log, and its spans to the collector,
    /// if one is configured. Needs no runtime.
    pub fn start(config: &TelemetryConfig) -> Result<Self, TelemetryError> {
        let (telemetry, dispatch) = Self::build(config, io::stderr(), io::stderr().is_terminal())?;
        tracing::dispatcher::set_global_default(dispatch).map_err(|_| TelemetryError::Started)?;
        log_panics(telemetry.redactor.clone());
        Ok(telemetry)
    }

    /// As [`Telemetry::start`], but with the log to `out`, and for whoever the returned dispatch
    /// is the default of. `colors` is for the text format.
    pub fn build(
        config: &TelemetryConfig,
        out: impl Write + Send + 'static,
        colors: bool,
    ) -> Result<(Self, Dispatch), TelemetryError> {
        let filter = EnvFilter::builder().with_regex(false).parse(&config.log);
        let filter = filter.map_err(TelemetryError::Filter)?;
        let endpoint = config.otlp_endpoint.as_deref();
        let redactor = LiveRedactor::default();
        let exporter = endpoint
            .map(|endpoint| Exporter::start(endpoint, &config.service_name, redactor.clone()))
            .transpose()
            .map_err(TelemetryError::Export)?;
        let lines = LineQueue::start(out).map_err(TelemetryError::Thread)?;
        let spans = exporter.as_ref().map(|exporter| otel_layer(exporter).with_filter(own_spans()));
        let log = log_layer(config.log_format, lines.clone(), colors, redactor.clone());
        let log = log.with_filter(filter);
        let dispatch = Dispatch::new(tracing_subscriber::registry().with(spans).with(log));
        Ok((Self { lines, exporter, redactor }, dispatch))
    }

    /// What takes the secrets out of lines and spans. To be set once there are rules.
    #[must_use]
    pub const fn redactor(&self) -> &LiveRedactor {
        &self.redactor
    }

    /// Sends the last spans and writes the last lines, and gives up on what takes longer than
    /// some seconds.
    pub async fn shutdown(mut self) {
        let Some(exporter) = self.exporter.take() else { return };
        let flushing = tokio::task::spawn_blocking(move || exporter.shutdown(FLUSH_SPANS));
        // It keeps to its bound by itself; a pool without a free thread does not.
        if tokio::time::timeout(FLUSH_SPANS + FLUSH_LINES, flushing).await.is_err() {
            tracing::warn!("the last spans were not exported: no thread was free");
        }
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        self.lines.flush(FLUSH_LINES);
    }
}

fn log_layer<S>(
    format: LogFormat,
    lines: LineQueue,
    colors: bool,
    redactor: LiveRedactor,
) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let layer = fmt::layer().with_writer(lines).log_internal_errors(false);
    match format {
        LogFormat::Json => Box::new(layer.fmt_fields(NoFields).event_format(JsonLine(redactor))),
        LogFormat::Text => {
            let fields = debug_fn(move |out, field, value| {
                line::write_plain(out, field.name(), value, &redactor)
            });
            let line = TextLine(fmt::format().with_ansi(colors));
            Box::new(layer.fmt_fields(fields.delimited(" ")).event_format(line).with_ansi(colors))
        }
    }
}

/// Only what a backend can use: no source locations and threads, and no log lines as events.
fn otel_layer(exporter: &Exporter) -> OtelLayer {
    tracing_opentelemetry::layer::<Registry>()
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        .with_context_activation(false)
        .with_tracer(exporter.tracer())
}

/// Not the spans of libraries: the exporter's own HTTP/2 makes some, and would trace itself.
fn own_spans() -> FilterFn {
    let is_own: fn(&Metadata<'_>) -> bool =
        |metadata| metadata.is_span() && metadata.target() == span::TARGET;
    filter_fn(is_own).with_max_level_hint(LevelFilter::INFO)
}
