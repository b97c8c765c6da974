//! Closing the calls whose gateway was lost before their end was written.
//!
//! An intent is closed by a terminal entry of its own: `settle`, with the outcome `unknown`, what the
//! call is as in the intent, and no usage, as nobody knows it. Two rules say when:
//! - An intent of this gateway's own spool, of before it started: at once. The spool's directory is
//!   locked, so nobody can still be making that call, and all that was written of it is in the store
//!   before its end is looked for.
//! - Any other: once it was open in the store for [`Sweeper::new`]'s `after`, which is longer than any
//!   call takes. That time is counted here, by the monotonic clock, and from anew whenever the store
//!   was out of reach: then ends may wait in other gateways' spools. No clock's time is compared.
//!
//! Exactly one terminal entry of a call counts: the first that the store gets. An end that comes after
//! a call was closed (from the spool of a gateway that was cut off for longer) is stored, as the chain
//! has no gaps, and marked as superseded: queries and sums leave it out. It is not the other way round
//! because rows never change.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use jiff::Timestamp;
use tokio::time::Instant;
use uuid::Uuid;

use super::{
    Audit, EntryKind, FIELDS, Link, OpenIntent, OpenIntents, Record, Reservations, SweepError,
    Value, open_intent::Turn, writer::Message,
};
use crate::{domain::CallId, fail_point::FailPoint};

/// The outcome of a call whose end nobody knows.
pub const UNKNOWN: &str = "unknown";
const DETAIL: &str = "the gateway was lost before the call's end was recorded; if the call had left, \
                      its budget is charged with what was reserved";

/// How long what is written may take to be in the store, before the turn is given up.
const PATIENCE: Duration = Duration::from_secs(5);
/// Rows that one statement looks at: answered within some 50 ms, and few enough that a planner looks
/// each of them up rather than read all that there is.
const SPAN_ROWS: i64 = 10_000;
/// Spans in one turn: the first turn in a large store takes several.
const SPANS: usize = 200;
/// Open intents that are remembered; as many calls can't run at once. Beyond it no more are looked for
/// until some of these are closed.
const MAX_OPEN: usize = 1 << 17;
/// Calls that are closed at once.
const CLOSE_AT_ONCE: usize = 500;

/// Finds intents that will have no end of their own, and gives them one.
pub struct Sweeper {
    audit: Audit,
    intents: Arc<dyn OpenIntents>,
    after: Duration,
    /// The last record of this gateway's former lives.
    former: Option<Link>,
    /// Up to which row the store was looked at.
    seen: i64,
    /// The open intents up to there, by their rows.
    open: BTreeMap<i64, Candidate>,
}

#[derive(Debug, Clone, Copy)]
struct Candidate {
    is_former: bool,
    since: Instant,
}

impl std::fmt::Debug for Sweeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sweeper").field("open", &self.open.len()).finish_non_exhaustive()
    }
}

impl Sweeper {
    /// `former` is the last record that the spool held when it was opened
    /// ([`super::spool::SpoolState::head`]), before anything else was written.
    #[must_use]
    pub fn new(
        audit: Audit,
        intents: Arc<dyn OpenIntents>,
        after: Duration,
        former: Option<Link>,
    ) -> Self {
        Self { audit, intents, after, former, seen: 0, open: BTreeMap::new() }
    }

    /// Looks once, and returns how many calls it has closed; `None` if another gateway is at it.
    ///
    /// # Errors
    /// [`SweepError`]; the next time goes on.
    pub async fn sweep(
        &mut self,
        reservations: &dyn Reservations,
    ) -> Result<Option<usize>, SweepError> {
        let swept = self.try_sweep(reservations).await;
        if swept.is_err() {
            // Others may not reach the store either: their ends wait.
            let now = Instant::now();
            self.open.values_mut().for_each(|candidate| candidate.since = now);
        }
        swept
    }

    async fn try_sweep(
        &mut self,
        reservations: &dyn Reservations,
    ) -> Result<Option<usize>, SweepError> {
        // Ends of ours that wait, and those that the turn before gave.
        self.ship().await?;
        let Some(mut turn) = self.intents.turn().await? else { return Ok(None) };
        self.find(&mut *turn).await?;
        let closed = self.close(&mut *turn, reservations).await?;
        let first_open = self.open.first_key_value();
        turn.advance(first_open.map_or(self.seen, |(row, _)| row - 1)).await?;
        Ok(Some(closed))
    }

    async fn ship(&self) -> Result<(), SweepError> {
        self.audit.flush(PATIENCE).await.map_err(|_| SweepError::Behind)
    }

    /// Remembers the open intents of rows that are new, and forgets those that were closed.
    async fn find(&mut self, turn: &mut dyn Turn) -> Result<(), SweepError> {
        let (swept, last) = turn.span().await?;
        self.seen = self.seen.max(swept);
        let rows: Vec<i64> = self.open.keys().copied().collect();
        let mut still_open = BTreeMap::new();
        for rows in rows.chunks(CLOSE_AT_ONCE) {
            let found = turn.still_open(rows).await?;
            still_open.extend(found.into_iter().filter_map(|row| self.open.remove_entry(&row)));
        }
        self.open = still_open;
        for _ in 0..SPANS {
            if self.seen >= last || self.open.len() >= MAX_OPEN {
                break;
            }
            let to = last.min(self.seen.saturating_add(SPAN_ROWS));
            let since = Instant::now();
            for intent in turn.find(self.seen, to).await? {
                let is_former = self.is_former(&intent);
                self.open.insert(intent.row, Candidate { is_former, since });
            }
            self.seen = to;
        }
        Ok(())
    }

    fn is_former(&self, intent: &OpenIntent) -> bool {
        self.former.is_some_and(|last| {
            let is_before = u64::try_from(intent.chain_seq).is_ok_and(|seq| seq <= last.seq);
            intent.writer == Some(last.writer) && is_before
        })
    }

    /// Gives their end to those whose time is over.
    async fn close(
        &mut self,
        turn: &mut dyn Turn,
        reservations: &dyn Reservations,
    ) -> Result<usize, SweepError> {
        let is_due = |it: &Candidate| it.is_former || it.since.elapsed() >= self.after;
        let due = self.open.iter().filter(|(_, candidate)| is_due(candidate));
        let due: Vec<i64> = due.map(|(row, _)| *row).collect();
        let mut closed = 0;
        for rows in due.chunks(CLOSE_AT_ONCE) {
            let records = turn.records(rows).await?;
            let intents = records.iter().filter_map(|bytes| Record::decode(bytes).ok());
            let intents: Vec<_> = intents.collect();
            let id = |intent: &Record<'_>| intent.get("call_id").text()?.parse::<CallId>().ok();
            // First what they had reserved: whoever is lost in between leaves the call open, and it
            // is all done once more.
            reservations.abandon(&intents.iter().filter_map(id).collect::<Vec<_>>()).await;
            FailPoint::MidSweep.hit();
            for intent in &intents {
                self.audit.append(unknown(intent)).await;
            }
            FailPoint::AfterSweep.hit();
            closed += intents.len();
            self.audit.shared.closed_unknown.fetch_add(intents.len() as u64, Ordering::Relaxed);
            self.ship().await?;
            self.open.retain(|row, _| rows.binary_search(row).is_err());
        }
        Ok(closed)
    }
}

impl Audit {
    /// As [`Audit::record`], of what is encoded already and has no secrets.
    async fn append(&self, record: Box<[u8]>) {
        // Where the writer has ended the call stays open, and is found again.
        if let Ok(room) = self.queue.reserve().await {
            self.put(room, Message::Record(record));
        }
    }
}

/// The end of a call of which there is only this intent, encoded.
fn unknown(intent: &Record<'_>) -> Box<[u8]> {
    let mut id = Uuid::encode_buffer();
    let id = &*Uuid::now_v7().hyphenated().encode_lower(&mut id);
    let mut values = *intent.values();
    for (value, (name, _)) in values.iter_mut().zip(FIELDS) {
        match name {
            "id" => *value = Value::Text(id),
            "time_micros" => *value = Value::Number(Timestamp::now().as_microsecond()),
            "kind" => *value = Value::Text(EntryKind::Settle.as_str()),
            "outcome" => *value = Value::Text(UNKNOWN),
            "detail" => *value = Value::Text(DETAIL),
            // The intent's row says them.
            "input_hash" | "input_bytes" => *value = Value::Null,
            _ => {}
        }
    }
    let mut bytes = Vec::new();
    Record::new(&values).encode(&mut bytes);
    bytes.into()
}
