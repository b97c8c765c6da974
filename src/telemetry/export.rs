//! Spans to a collector by OTLP over gRPC, on threads of its own.
//!
//! The SDK's batch processor does the batching. Two thin layers around it say what it keeps to
//! itself: [`Gate`], before it, bounds its queue and counts what does not fit; [`Reporter`],
//! behind it, bounds each export and counts what the collector did not take. A call pays for one
//! `try_send`, whatever the collector does.

use std::{
    borrow::Cow,
    future::poll_fn,
    io, mem,
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use opentelemetry::{
    Array, Context, KeyValue, StringValue, Value,
    trace::{Status, TracerProvider},
};
use opentelemetry_otlp::{ExporterBuildError, WithExportConfig};
use opentelemetry_sdk::{
    Resource,
    error::{OTelSdkError, OTelSdkResult},
    trace::{
        BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracer, SdkTracerProvider, Span,
        SpanData, SpanExporter, SpanProcessor,
    },
};
use tokio::runtime::{self, Runtime};

use super::genai;
use crate::redact::{Depth, LiveRedactor};

/// Finished spans that wait for the collector; beyond it they are dropped.
const QUEUE_LIMIT: usize = 4_096;
/// One batch's way to the collector, connecting and retrying included.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// Losses are logged no more often than this.
const REPORT_INTERVAL: Duration = Duration::from_mins(1);

/// The exporter's handle; [`Exporter::shutdown`] flushes it.
#[derive(Debug)]
pub(super) struct Exporter {
    provider: SdkTracerProvider,
    losses: Arc<Losses>,
}

#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("no thread for the exporter: {0}")]
    Thread(#[source] io::Error),
    #[error("the endpoint is not usable: {0}")]
    Endpoint(#[source] ExporterBuildError),
}

impl Exporter {
    pub(super) fn start(
        endpoint: &str,
        service_name: &str,
        redactor: LiveRedactor,
    ) -> Result<Self, ExportError> {
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("otlp")
            .enable_all()
            .build()
            .map_err(ExportError::Thread)?;
        let exporter = {
            // The channel's worker is spawned where it is built.
            let _guard = runtime.enter();
            opentelemetry_otlp::SpanExporter::builder()
                .with_tonic()
                .with_endpoint(endpoint)
                .with_timeout(EXPORT_TIMEOUT)
                .build()
        };
        let losses = Arc::new(Losses::default());
        let exporter = match exporter {
            Ok(exporter) => exporter,
            Err(error) => {
                // Dropping a runtime blocks, which its caller's thread may not allow.
                runtime.shutdown_background();
                return Err(ExportError::Endpoint(error));
            }
        };
        let queued = Arc::new(AtomicUsize::new(0));
        let reporter = Reporter {
            exporter,
            runtime: Some(runtime),
            redactor,
            queued: Arc::clone(&queued),
            losses: Arc::clone(&losses),
        };
        let batch = BatchConfigBuilder::default().with_max_queue_size(QUEUE_LIMIT).build();
        let batches = BatchSpanProcessor::builder(reporter).with_batch_config(batch).build();
        let provider = SdkTracerProvider::builder()
            .with_span_processor(Gate { batches, queued, losses: Arc::clone(&losses) })
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::AlwaysOn)))
            .with_resource(resource(service_name))
            .build();
        Ok(Self { provider, losses })
    }

    pub(super) fn tracer(&self) -> SdkTracer {
        let scope = opentelemetry::InstrumentationScope::builder("tollgate")
            .with_version(env!("CARGO_PKG_VERSION"))
            .with_schema_url(genai::SCHEMA_URL)
            .build();
        self.provider.tracer_with_scope(scope)
    }

    /// Sends what is queued. Blocks for no longer than `bound`.
    pub(super) fn shutdown(&self, bound: Duration) {
        if let Err(error) = self.provider.shutdown_with_timeout(bound) {
            tracing::warn!(%error, "the last spans were not exported");
        }
        self.losses.report();
    }
}

/// `OTEL_RESOURCE_ATTRIBUTES` counts; the configuration's service name comes before it.
fn resource(service_name: &str) -> Resource {
    Resource::builder()
        .with_service_name(service_name.to_owned())
        .with_attribute(KeyValue::new(genai::SERVICE_VERSION, env!("CARGO_PKG_VERSION")))
        .build()
}

/// Spans that never reached the collector, since the last report.
#[derive(Debug, Default)]
struct Losses {
    queue_full: AtomicU64,
    refused: AtomicU64,
    last: Mutex<LastReport>,
}

#[derive(Debug, Default)]
struct LastReport {
    at: Option<Instant>,
    error: String,
}

impl Losses {
    fn refuse(&self, spans: usize, error: &OTelSdkError) {
        self.refused.fetch_add(spans as u64, Ordering::Relaxed);
        self.last.lock().unwrap_or_else(PoisonError::into_inner).error = error.to_string();
    }

    /// Logs what was lost, the first time at once and then once in an interval.
    fn report_if_due(&self) {
        let now = Instant::now();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let due = last.at.is_none_or(|at| now.duration_since(at) >= REPORT_INTERVAL);
        let spans = self.queue_full.load(Ordering::Relaxed) + self.refused.load(Ordering::Relaxed);
        if due && spans > 0 {
            last.at = Some(now);
            drop(last);
            self.report();
        }
    }

    fn report(&self) {
        let queue_full = self.queue_full.swap(0, Ordering::Relaxed);
        let refused = self.refused.swap(0, Ordering::Relaxed);
        let error = mem::take(&mut self.last.lock().unwrap_or_else(PoisonError::into_inner).error);
        if queue_full + refused > 0 {
            tracing::warn!(queue_full, refused, error, "spans were lost on their way to OTLP");
        }
    }
}

/// Before the batch processor: no span enters a full queue.
#[derive(Debug)]
struct Gate {
    batches: BatchSpanProcessor,
    queued: Arc<AtomicUsize>,
    losses: Arc<Losses>,
}

impl SpanProcessor for Gate {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.batches.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        if self.queued.fetch_add(1, Ordering::AcqRel) < QUEUE_LIMIT {
            self.batches.on_end(span);
        } else {
            self.queued.fetch_sub(1, Ordering::AcqRel);
            self.losses.queue_full.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.batches.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.batches.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.batches.set_resource(resource);
    }
}

/// Behind the batch processor: each batch on its way out.
#[derive(Debug)]
struct Reporter {
    exporter: opentelemetry_otlp::SpanExporter,
    /// Taken when dropped, and only then.
    runtime: Option<Runtime>,
    redactor: LiveRedactor,
    queued: Arc<AtomicUsize>,
    losses: Arc<Losses>,
}

impl SpanExporter for Reporter {
    async fn export(&self, mut batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        self.queued.fetch_sub(spans, Ordering::AcqRel);
        for span in &mut batch {
            redact(span, &self.redactor);
        }
        // The batch processor's thread polls this and knows no runtime; sleeps and sockets are
        // the own runtime's.
        let mut sending = pin!(async {
            let sending = self.exporter.export(batch);
            tokio::time::timeout(EXPORT_TIMEOUT, sending).await
        });
        let outcome = poll_fn(|context| {
            let _guard = self.runtime.as_ref().map(Runtime::enter);
            sending.as_mut().poll(context)
        });
        let result = outcome.await.unwrap_or(Err(OTelSdkError::Timeout(EXPORT_TIMEOUT)));
        if let Err(error) = &result {
            self.losses.refuse(spans, error);
        }
        self.losses.report_if_due();
        result
    }

    fn shutdown(&self) -> OTelSdkResult {
        self.exporter.shutdown()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Takes the secrets out of all that a stranger may have said in a span. Not out of its keys,
/// which are ours.
fn redact(span: &mut SpanData, redactor: &LiveRedactor) {
    redact_text(&mut span.name, redactor);
    redact_attributes(&mut span.attributes, redactor);
    for event in &mut span.events.events {
        redact_text(&mut event.name, redactor);
        redact_attributes(&mut event.attributes, redactor);
    }
    for link in &mut span.links.links {
        redact_attributes(&mut link.attributes, redactor);
    }
    if let Status::Error { description } = &mut span.status {
        redact_text(description, redactor);
    }
}

fn redact_attributes(attributes: &mut [KeyValue], redactor: &LiveRedactor) {
    let redact = |text: &mut StringValue| {
        if let Cow::Owned(redacted) = redactor.redact(text.as_str(), Depth::Complete) {
            *text = redacted.into();
        }
    };
    for KeyValue { value, .. } in attributes {
        match value {
            Value::String(text) => redact(text),
            Value::Array(Array::String(texts)) => texts.iter_mut().for_each(redact),
            _ => {}
        }
    }
}

fn redact_text(text: &mut Cow<'static, str>, redactor: &LiveRedactor) {
    if let Cow::Owned(redacted) = redactor.redact(text, Depth::Complete) {
        *text = Cow::Owned(redacted);
    }
}
