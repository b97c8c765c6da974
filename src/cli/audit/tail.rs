//! `tollgate audit tail`: the newest entries of the audit trail, and those to come.

use std::{
    io::{self, Write},
    time::Duration,
};

use super::{AuditError, unless_gone};
use crate::{
    audit::{
        StoredEntry,
        query::{AuditQuery, Cursor, Filter, Order, PAGE_ENTRIES, QueryError},
    },
    domain::MicroUsd,
};

/// How often `--follow` looks for new entries.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// What `tollgate audit tail` was asked for.
#[derive(Debug, Clone)]
pub struct Tail {
    pub filter: Filter,
    /// How many of the newest entries to begin with.
    pub count: u32,
    /// Go on with new ones as they come.
    pub follow: bool,
    /// JSON lines instead of columns.
    pub json: bool,
}

/// Prints what was asked for to `out`. With `follow` it ends when nobody reads `out` any more, or
/// by being dropped.
///
/// # Errors
/// [`AuditError`]; not a reader of `out` that has gone, as `head` does.
pub async fn tail(
    trail: &dyn AuditQuery,
    asked: &Tail,
    out: &mut (impl Write + Send),
) -> Result<(), AuditError> {
    unless_gone(print(trail, asked, out).await)
}

async fn print(
    trail: &dyn AuditQuery,
    asked: &Tail,
    out: &mut (impl Write + Send),
) -> Result<(), AuditError> {
    // What comes after this is shown as it comes; what was there, in its order before.
    let seen = trail.last_arrival().await?;
    if !asked.json {
        print_heading(out).map_err(AuditError::Output)?;
    }
    let mut behind = before_last(trail, asked, seen).await?;
    loop {
        let page = trail.page(&asked.filter, Order::OldestFirst, behind, PAGE_ENTRIES).await?;
        behind = page.last().map(Cursor::from);
        let is_last = page.len() < PAGE_ENTRIES as usize;
        let page = page.iter().filter(|entry| entry.seq <= seen);
        print_entries(page, asked.json, out).map_err(AuditError::Output)?;
        if is_last {
            break;
        }
    }
    if asked.follow { follow(trail, asked, seen, out).await } else { Ok(()) }
}

/// Prints what comes behind the entry numbered `seen`.
async fn follow(
    trail: &dyn AuditQuery,
    asked: &Tail,
    mut seen: i64,
    out: &mut (impl Write + Send),
) -> Result<(), AuditError> {
    loop {
        let arrived = trail.arrivals(&asked.filter, seen, PAGE_ENTRIES).await?;
        print_entries(arrived.entries.iter(), asked.json, out).map_err(AuditError::Output)?;
        seen = arrived.seq;
        // A full page may have more behind it.
        if arrived.entries.len() < PAGE_ENTRIES as usize {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// The place behind which the newest `count` entries are, of those up to the one numbered `last`.
async fn before_last(
    trail: &dyn AuditQuery,
    asked: &Tail,
    last: i64,
) -> Result<Option<Cursor>, QueryError> {
    let mut left = u64::from(asked.count);
    let mut behind = None;
    loop {
        let limit = u32::try_from(left + 1).unwrap_or(u32::MAX).min(PAGE_ENTRIES);
        let page = trail.page(&asked.filter, Order::NewestFirst, behind, limit).await?;
        for entry in &page {
            if entry.seq <= last && left == 0 {
                return Ok(Some(Cursor::from(entry)));
            }
            left -= u64::from(entry.seq <= last);
        }
        if page.len() < limit as usize {
            return Ok(None);
        }
        behind = page.last().map(Cursor::from);
    }
}

fn print_entries<'e>(
    entries: impl Iterator<Item = &'e StoredEntry>,
    json: bool,
    out: &mut impl Write,
) -> io::Result<()> {
    for entry in entries {
        if json {
            serde_json::to_writer(&mut *out, entry)?;
            out.write_all(b"\n")?;
        } else {
            print_line(entry, out)?;
        }
    }
    out.flush()
}

fn print_heading(out: &mut impl Write) -> io::Result<()> {
    print_columns(
        out,
        [
            "TIME", "KIND", "OUTCOME", "SUBJECT", "TIER", "MODEL", "PROVIDER", "TOKENS", "COST",
            "LATENCY", "CALL",
        ]
        .map(str::to_owned),
    )
}

fn print_line(entry: &StoredEntry, out: &mut impl Write) -> io::Result<()> {
    let text = |value: &Option<String>| value.as_deref().map_or("-".to_owned(), printable);
    let tokens = entry
        .input_tokens
        .zip(entry.output_tokens)
        .map(|(input, output)| format!("{input}+{output}"));
    let cost =
        entry.cost_micro_usd.map(|cost| format!("${}", MicroUsd(u64::try_from(cost).unwrap_or(0))));
    let latency = entry.latency_micros.map(|micros| format!("{} ms", micros / 1_000));
    let columns = [
        format!("{:.3}", entry.time),
        printable(&entry.kind),
        text(&entry.outcome),
        text(&entry.subject),
        text(&entry.tier),
        text(&entry.model),
        text(&entry.provider),
        text(&tokens),
        text(&cost),
        text(&latency),
        text(&entry.call_id),
    ];
    print_columns(out, columns)
}

fn print_columns(out: &mut impl Write, columns: [String; 11]) -> io::Result<()> {
    let [time, kind, outcome, subject, tier, model, provider, tokens, cost, latency, call] =
        columns;
    writeln!(
        out,
        "{time:<24}  {kind:<9}  {outcome:<18}  {subject:<16}  {tier:<8}  {model:<20}  \
         {provider:<12}  {tokens:>11}  {cost:>10}  {latency:>9}  {call}"
    )
}

/// Strangers name themselves, models and more: nothing of it may steer the terminal.
pub(in crate::cli) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
