//! A log line as one JSON object, with the ids of the call that it was written in.
//!
//! `tracing-subscriber`'s own JSON format nests the span's fields, and parses and prints a span's
//! JSON again for each field recorded later. Here a span keeps its two ids, as they will be
//! printed, and nothing else.

use std::fmt::{self, Debug, Write};

use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
    span::Record,
};
use tracing_subscriber::{
    field::RecordFields,
    fmt::{
        FmtContext, FormatEvent, FormatFields, FormattedFields,
        format::Writer,
        time::{FormatTime, SystemTime},
    },
    registry::LookupSpan,
};

use super::span::{REQUEST_ID, TRACE_ID};

/// A longer value is cut: what a library prints may be anything.
const MAX_VALUE_BYTES: usize = 4_096;

/// The members that each line has of its own; an event's field of such a name gets a `_`.
const OWN: [&str; 3] = ["timestamp", "level", "target"];

/// What a line takes from a span: `,"trace_id":"…","request_id":"…"`.
#[derive(Debug)]
pub(super) struct SpanIds;

impl<'writer> FormatFields<'writer> for SpanIds {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut visitor = Members { out: writer, ids_only: true, has_trace: false, result: Ok(()) };
        fields.record(&mut visitor);
        visitor.result
    }

    fn add_fields(
        &self,
        current: &'writer mut FormattedFields<Self>,
        fields: &Record<'_>,
    ) -> fmt::Result {
        self.format_fields(current.as_writer(), fields)
    }
}

/// `{"timestamp":…,"level":…,"target":…,"message":…,…,"trace_id":…,"request_id":…}`
#[derive(Debug)]
pub(super) struct JsonLine;

impl<S> FormatEvent<S, SpanIds> for JsonLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, SpanIds>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();
        writer.write_str("{\"timestamp\":\"")?;
        SystemTime.format_time(&mut writer)?;
        write!(writer, "\",\"level\":\"{}\",\"target\":", metadata.level())?;
        write_text(&mut writer, metadata.target())?;
        let mut visitor =
            Members { out: writer.by_ref(), ids_only: false, has_trace: false, result: Ok(()) };
        event.record(&mut visitor);
        let has_trace = visitor.has_trace;
        visitor.result?;
        if !has_trace {
            for span in context.event_scope().into_iter().flatten() {
                let extensions = span.extensions();
                let ids = extensions.get::<FormattedFields<SpanIds>>();
                if let Some(ids) = ids.filter(|ids| !ids.fields.is_empty()) {
                    writer.write_str(&ids.fields)?;
                    break;
                }
            }
        }
        writer.write_str("}\n")
    }
}

/// Writes fields as members of an object, each with a comma before it.
struct Members<'writer> {
    out: Writer<'writer>,
    ids_only: bool,
    has_trace: bool,
    result: fmt::Result,
}

impl Members<'_> {
    fn member(&mut self, field: &Field, value: impl FnOnce(&mut Writer<'_>) -> fmt::Result) {
        let name = field.name();
        let wanted = !self.ids_only || name == TRACE_ID || name == REQUEST_ID;
        if !wanted || self.result.is_err() {
            return;
        }
        self.has_trace |= name == TRACE_ID;
        // A name is a literal of someone's source and needs no escapes.
        let suffix = if OWN.contains(&name) { "_" } else { "" };
        self.result = write!(self.out, ",\"{name}{suffix}\":").and_then(|()| value(&mut self.out));
    }
}

impl Visit for Members<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.member(field, |out| {
            let mut text = Bounded(String::new());
            // The only failure is that it has got too long, and then it is cut.
            let _ = write!(text, "{value:?}");
            write_text(out, &text.0)
        });
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.member(field, |out| write_text(out, value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.member(field, |out| write!(out, "{value}"));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.member(field, |out| write!(out, "{value}"));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.member(field, |out| write!(out, "{value}"));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // JSON has no NaN and no infinity; this writes `null` for them.
        self.member(field, |out| write!(out, "{}", serde_json::Value::from(value)));
    }
}

/// Text that stops growing at [`MAX_VALUE_BYTES`].
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.push_str(text);
        if self.0.len() > MAX_VALUE_BYTES { Err(fmt::Error) } else { Ok(()) }
    }
}

/// Writes a JSON string, cut where it is too long.
fn write_text(out: &mut Writer<'_>, text: &str) -> fmt::Result {
    let kept = &text[..text.floor_char_boundary(MAX_VALUE_BYTES)];
    let quoted = serde_json::to_string(kept).map_err(|_| fmt::Error)?;
    if kept.len() == text.len() {
        return out.write_str(&quoted);
    }
    write!(out, "{}…\"", &quoted[..quoted.len() - 1])
}
