//! A log line as one JSON object, with the ids of the call that it was written in.
//!
//! The ids are those of the [`scope`] that it is written in; no span's fields are.
//!
//! Each value's secrets are taken out before it is escaped and cut: in a whole line they might
//! hide behind an escape, and half a secret is none that a rule knows.

use std::{
    borrow::Cow,
    fmt::{self, Debug, Write},
};

use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    field::RecordFields,
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::{Format, Writer},
        time::{FormatTime, SystemTime},
    },
    registry::LookupSpan,
};

use super::scope;
use crate::redact::{Depth, LiveRedactor, MAX_CANDIDATE_BYTES};

/// A longer value is cut: what a library prints may be anything.
const MAX_VALUE_BYTES: usize = 4_096;

/// The members that each line has of its own; an event's field of such a name gets a `_`.
const OWN: [&str; 3] = ["timestamp", "level", "target"];

/// The field that an event may bring of its own: then the ids are its own, too.
const TRACE_ID: &str = "trace_id";

/// What a line takes from the spans around it: nothing. They are libraries'.
#[derive(Debug)]
pub(super) struct NoFields;

impl<'writer> FormatFields<'writer> for NoFields {
    fn format_fields<R: RecordFields>(&self, _: Writer<'writer>, _: R) -> fmt::Result {
        Ok(())
    }
}

/// `{"timestamp":…,"level":…,"target":…,"message":…,…,"trace_id":…,"request_id":…}`
#[derive(Debug)]
pub(super) struct JsonLine(pub LiveRedactor);

impl<S> FormatEvent<S, NoFields> for JsonLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, NoFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();
        writer.write_str("{\"timestamp\":\"")?;
        SystemTime.format_time(&mut writer)?;
        write!(writer, "\",\"level\":\"{}\",\"target\":", metadata.level())?;
        write_text(&mut writer, metadata.target(), &self.0)?;
        let out = writer.by_ref();
        let mut visitor = Members { out, redactor: &self.0, has_trace: false, result: Ok(()) };
        event.record(&mut visitor);
        let has_trace = visitor.has_trace;
        visitor.result?;
        scope::ids(|ids| {
            let Some(ids) = ids.filter(|_| !has_trace) else { return Ok(()) };
            write!(writer, ",\"trace_id\":\"{:032x}\",\"request_id\":", ids.trace_id)?;
            write_text(&mut writer, ids.request_id.as_str(), &self.0)
        })?;
        writer.write_str("}\n")
    }
}

/// The text format of `tracing-subscriber`, and the ids behind it.
#[derive(Debug)]
pub(super) struct TextLine(pub Format);

impl<S, F> FormatEvent<S, F> for TextLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    F: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, F>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = String::new();
        self.0.format_event(context, Writer::new(&mut line), event)?;
        writer.write_str(line.trim_end_matches('\n'))?;
        scope::ids(|ids| {
            let Some(ids) = ids else { return Ok(()) };
            write!(writer, " trace_id={:032x} request_id={}", ids.trace_id, ids.request_id)
        })?;
        writer.write_char('\n')
    }
}

/// Writes fields as members of an object, each with a comma before it.
struct Members<'a, 'writer> {
    out: Writer<'writer>,
    redactor: &'a LiveRedactor,
    has_trace: bool,
    result: fmt::Result,
}

impl Members<'_, '_> {
    fn member(&mut self, field: &Field, value: impl FnOnce(&mut Writer<'_>) -> fmt::Result) {
        let name = field.name();
        if self.result.is_err() {
            return;
        }
        self.has_trace |= name == TRACE_ID;
        // A name is a literal of someone's source and needs no escapes.
        let suffix = if OWN.contains(&name) { "_" } else { "" };
        self.result = write!(self.out, ",\"{name}{suffix}\":").and_then(|()| value(&mut self.out));
    }
}

impl Visit for Members<'_, '_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let redactor = self.redactor;
        self.member(field, |out| write_text(out, &shown(value), redactor));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let redactor = self.redactor;
        self.member(field, |out| write_text(out, value, redactor));
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

/// What is looked at of a value: what is kept, and a secret that begins at its end.
const MAX_SEEN_BYTES: usize = MAX_VALUE_BYTES + MAX_CANDIDATE_BYTES;

/// Text that stops growing past [`MAX_SEEN_BYTES`].
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.push_str(text);
        if self.0.len() > MAX_SEEN_BYTES { Err(fmt::Error) } else { Ok(()) }
    }
}

fn shown(value: &dyn Debug) -> String {
    let mut text = Bounded(String::new());
    // The only failure is that it has got too long, and then it is cut.
    let _ = write!(text, "{value:?}");
    text.0
}

/// What may be written of `text`: without its secrets, and cut where it is too long (then true).
fn kept<'a>(text: &'a str, redactor: &LiveRedactor) -> (Cow<'a, str>, bool) {
    let seen = &text[..text.floor_char_boundary(MAX_SEEN_BYTES)];
    let mut kept = redactor.redact(seen, Depth::Formats);
    // At the end of what is seen only in part there may be a part of a secret.
    let unsure = if seen.len() < text.len() { MAX_CANDIDATE_BYTES } else { 0 };
    let most = MAX_VALUE_BYTES.min(kept.len().saturating_sub(unsure));
    let is_cut = most < kept.len();
    if is_cut {
        let most = kept.floor_char_boundary(most);
        kept = match kept {
            Cow::Borrowed(kept) => Cow::Borrowed(&kept[..most]),
            Cow::Owned(kept) => Cow::Owned(kept[..most].to_owned()),
        };
    }
    (kept, is_cut)
}

/// Writes a JSON string.
fn write_text(out: &mut Writer<'_>, text: &str, redactor: &LiveRedactor) -> fmt::Result {
    let (kept, is_cut) = kept(text, redactor);
    let quoted = serde_json::to_string(&kept).map_err(|_| fmt::Error)?;
    if is_cut {
        write!(out, "{}…\"", &quoted[..quoted.len() - 1])
    } else {
        out.write_str(&quoted)
    }
}

/// Writes a field as the text format has it: `name=value`, and the message without its name.
pub(super) fn write_plain(
    out: &mut Writer<'_>,
    name: &str,
    value: &dyn Debug,
    redactor: &LiveRedactor,
) -> fmt::Result {
    let text = shown(value);
    let (kept, is_cut) = kept(&text, redactor);
    let (name, sign) = if name == "message" { ("", "") } else { (name, "=") };
    write!(out, "{name}{sign}{kept}{}", if is_cut { "…" } else { "" })
}
