//! `tollgate audit export`: every entry that a filter takes, for other programs.

use std::io::{self, BufWriter, Write};

use clap::ValueEnum;
use serde_json::Value;

use super::{AuditError, unless_gone};
use crate::audit::{
    FIELDS, StoredEntry,
    query::{AuditQuery, Cursor, Filter, Order, PAGE_ENTRIES},
};

/// What `tollgate audit export` was asked for.
#[derive(Debug, Clone)]
pub struct Export {
    pub format: Format,
    pub filter: Filter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    // Told of at the option: told of here, they would take the help apart.
    Jsonl,
    Csv,
}

/// Writes the entries to `out`, oldest first, page by page: in constant memory.
///
/// # Errors
/// [`AuditError`]; not a reader of `out` that has gone, as `head` does.
pub async fn export(
    trail: &dyn AuditQuery,
    asked: &Export,
    out: &mut (impl Write + Send),
) -> Result<(), AuditError> {
    unless_gone(write(trail, asked, out).await)
}

async fn write(
    trail: &dyn AuditQuery,
    asked: &Export,
    out: &mut (impl Write + Send),
) -> Result<(), AuditError> {
    let mut out = BufWriter::new(out);
    if asked.format == Format::Csv {
        let names = columns().map(str::to_owned);
        write_row(names, &mut out).map_err(AuditError::Output)?;
    }
    let mut behind = None;
    loop {
        let entries = trail.page(&asked.filter, Order::OldestFirst, behind, PAGE_ENTRIES).await?;
        let written = entries.iter().try_for_each(|entry| match asked.format {
            Format::Jsonl => {
                serde_json::to_writer(&mut out, entry)?;
                out.write_all(b"\n")
            }
            Format::Csv => write_row(values(entry), &mut out),
        });
        written.and_then(|()| out.flush()).map_err(AuditError::Output)?;
        if entries.len() < PAGE_ENTRIES as usize {
            return Ok(());
        }
        behind = entries.last().map(Cursor::from);
    }
}

/// As in the entries' JSON.
fn columns() -> impl Iterator<Item = &'static str> {
    let named = FIELDS.iter().map(|(name, _)| if *name == "time_micros" { "time" } else { *name });
    ["seq"].into_iter().chain(named)
}

fn values(entry: &StoredEntry) -> impl Iterator<Item = String> {
    let json = serde_json::to_value(entry).unwrap_or_default();
    columns().map(move |name| match json.get(name) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) if text.starts_with(['=', '+', '-', '@', '\t', '\r']) => {
            format!("'{text}")
        }
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    })
}

fn write_row(values: impl Iterator<Item = String>, out: &mut impl Write) -> io::Result<()> {
    for (at, value) in values.enumerate() {
        if at > 0 {
            out.write_all(b",")?;
        }
        if value.contains([',', '"', '\r', '\n']) {
            write!(out, "\"{}\"", value.replace('"', "\"\""))?;
        } else {
            out.write_all(value.as_bytes())?;
        }
    }
    out.write_all(b"\r\n")
}
