//! Along one writer's rows, in their order, beside what checkpoints say of them.

use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use super::{
    VerifyError,
    chunk::{ChainChunk, ChainRow},
    finding::{Finding, FindingKind, Spot},
    logs::{Heads, Known, Said},
    report::{Report, WriterReport},
};
use crate::audit::{chain::Hash, checkpoint::hex};

/// A row that is older than this should have a checkpoint after it; one a minute is made.
pub const CHECKPOINT_GRACE: SignedDuration = SignedDuration::from_mins(10);

/// How one writer's rows are to be looked at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Walking {
    pub(super) now: Timestamp,
    /// What a checkpoint proves to be older than this may be gone.
    pub(super) expired_before: Option<Timestamp>,
    /// The number of the first row that should be there, and of the last that is looked at.
    pub(super) first: u64,
    pub(super) until: Option<u64>,
    pub(super) has_checkpoints: bool,
    /// What the checkpoints say of the writer in all.
    pub(super) known: Known,
}

/// Where the walk is.
#[derive(Debug)]
pub(super) struct Walk {
    how: Walking,
    writer: WriterReport,
    heads: Heads,
    /// The number that the next row should have.
    next: u64,
    /// The hash of the row before; `None` where it is not known.
    previous: Option<Hash>,
    /// Where the row before is not as its hash says: the hash that it should have.
    computed: Option<Hash>,
    /// Where two rows have the place before: the hash of the other.
    other: Option<Hash>,
    /// The first row that is behind every checkpoint, and how many there are.
    uncovered: Option<Spot>,
    uncovered_rows: u64,
    /// The rows come from the spool now.
    is_in_spool: bool,
}

impl Walk {
    pub(super) fn new(writer: Uuid, heads: Heads, how: Walking) -> Self {
        let writer = WriterReport { writer, ..WriterReport::default() };
        Self {
            how,
            writer,
            heads,
            next: how.first,
            // Before the first row of all are zeros; before others, what a checkpoint says.
            previous: (how.first == 1).then_some([0; 32]),
            computed: None,
            other: None,
            uncovered: None,
            uncovered_rows: 0,
            is_in_spool: false,
        }
    }

    /// The number that the next row should have.
    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// What comes now is in the gateway's spool and not in the store.
    pub(super) const fn enter_spool(&mut self) {
        self.is_in_spool = true;
    }

    /// Looks at every row of `chunk`.
    pub(super) fn take(
        &mut self,
        chunk: &mut ChainChunk,
        report: &mut Report,
    ) -> Result<(), VerifyError> {
        for at in 0..chunk.len() {
            let row = chunk.rows()[at];
            if row.seq == 0 {
                let spot = self.spot(&row, chunk);
                let flaw = row.flaw.unwrap_or_default();
                report.find(Finding::new(FindingKind::Malformed, spot, flaw));
                continue;
            }
            if row.seq < self.next {
                // Rows come in their order, so it has the number of the one before.
                self.fork(&row, chunk, at, report);
                continue;
            }
            if row.seq > self.next {
                self.gap(&row, chunk, report)?;
            } else if self.previous.is_none() {
                self.anchor(row.seq)?;
            }
            match row.flaw {
                Some(flaw) => {
                    let spot = self.spot(&row, chunk);
                    report.find(Finding::new(FindingKind::Malformed, spot, flaw));
                }
                None => self.check(&row, chunk, report),
            }
            self.count(&row);
            self.compare(&row, chunk, report)?;
            self.previous = row.hash;
            self.next = row.seq.saturating_add(1);
        }
        Ok(())
    }

    fn spot(&self, row: &ChainRow, chunk: &ChainChunk) -> Spot {
        let (entry, time) = chunk.entry(row);
        let (writer, epoch) = (Some(self.writer.writer), Some(row.epoch));
        let seq = Some(row.seq).filter(|seq| *seq > 0);
        Spot { writer, epoch, seq, entry, time, ..Spot::default() }
    }

    /// Is the row's hash the one over what it holds?
    fn check(&mut self, row: &ChainRow, chunk: &mut ChainChunk, report: &mut Report) {
        let (other, computed) = (self.other.take(), self.computed.take());
        let (Some(previous), Some(hash)) = (self.previous, row.hash) else { return };
        let right = chunk.hash_after(row, &previous);
        if right == hash || other.is_some_and(|other| chunk.hash_after(row, &other) == hash) {
            return;
        }
        if computed.is_some_and(|computed| chunk.hash_after(row, &computed) == hash) {
            return report.amend_edit();
        }
        let why = "what it holds is not what its hash says";
        let finding = Finding::new(FindingKind::Edited, self.spot(row, chunk), why);
        report.find(finding.expected(hex(&right), hex(&hash)));
        self.computed = Some(right);
    }

    fn count(&mut self, row: &ChainRow) {
        let writer = &mut self.writer;
        if writer.rows + writer.waiting == 0 {
            (writer.first_seq, writer.first_epoch) = (row.seq, row.epoch);
        }
        if self.is_in_spool {
            writer.waiting += 1;
        } else {
            writer.rows += 1;
            writer.last_seq = row.seq;
        }
        writer.last_epoch = row.epoch;
    }

    fn fork(&mut self, row: &ChainRow, chunk: &ChainChunk, at: usize, report: &mut Report) {
        let before = at.checked_sub(1).map(|at| chunk.rows()[at]);
        let before = before.and_then(|row| chunk.entry(&row).0);
        let spot = self.spot(row, chunk);
        let entry = spot.entry.clone().unwrap_or_default();
        let mut finding = Finding::new(FindingKind::Fork, spot, "two rows have this place");
        if let Some(before) = before {
            finding =
                finding.expected(format!("one entry, such as {before}"), format!("{entry} too"));
        }
        report.find(finding);
        self.other = row.hash;
        if !self.is_in_spool {
            self.writer.rows += 1;
        }
    }

    /// Rows are missing before `row`.
    fn gap(
        &mut self,
        row: &ChainRow,
        chunk: &ChainChunk,
        report: &mut Report,
    ) -> Result<(), VerifyError> {
        let (first, last) = (self.next, row.seq - 1);
        let passed = self.anchor(row.seq)?;
        let is_old = |said: &Said| self.how.expired_before.is_some_and(|limit| said.time < limit);
        let proof = passed.as_ref().filter(|said| said.head.link.seq >= last);
        let writer = self.writer.writer;
        if proof.or_else(|| self.heads.peek()).is_some_and(is_old) {
            let count = last - first + 1;
            report.note(format!(
                "writer {writer}: {count} rows ({first} to {last}) are gone, all older than the retention"
            ));
            return Ok(());
        }
        let mut spot = Spot { writer: Some(writer), seq: Some(first), ..Spot::default() };
        spot.last_seq = Some(last);
        let (entry, time) = chunk.entry(row);
        let next = entry.map_or_else(|| format!("seq {}", row.seq), |id| format!("entry {id}"));
        let time = time.map_or_else(String::new, |time| format!(" of {time:.6}"));
        let why = format!("rows are missing; the next one is {next}{time}");
        let finding = Finding::new(FindingKind::Gap, spot, why);
        report.find(finding.expected(first.to_string(), row.seq.to_string()));
        Ok(())
    }

    /// Takes the hash of the row before `seq` from a checkpoint, if one is just there. Returns the
    /// last checkpoint that was passed by.
    fn anchor(&mut self, seq: u64) -> Result<Option<Said>, VerifyError> {
        (self.previous, self.computed, self.other) = (None, None, None);
        let mut passed = None;
        while self.heads.peek().is_some_and(|said| said.head.link.seq < seq) {
            passed = self.heads.pop()?;
        }
        let before = passed.as_ref().filter(|said| said.head.link.seq + 1 == seq);
        self.previous = before.map(|said| said.head.link.hash);
        Ok(passed)
    }

    /// Is the row the one that checkpoints speak of?
    fn compare(
        &mut self,
        row: &ChainRow,
        chunk: &ChainChunk,
        report: &mut Report,
    ) -> Result<(), VerifyError> {
        while self.heads.peek().is_some_and(|said| said.head.link.seq <= row.seq) {
            let Some(said) = self.heads.pop()? else { break };
            let link = said.head.link;
            if link.seq < row.seq {
                continue;
            }
            if row.hash == Some(link.hash) && row.epoch == link.epoch {
                self.writer.checkpoints += 1;
                self.writer.covered_seq = link.seq;
                continue;
            }
            let mut spot = self.spot(row, chunk);
            (spot.file, spot.checkpoint) = (Some(said.file), Some(said.number));
            let why = format!(
                "the row is another than the one of which the checkpoint of {:.6} was made: rows \
                 after seq {} were made anew",
                said.time, self.writer.covered_seq
            );
            let found = row.hash.map_or_else(|| "none".to_owned(), |hash| hex(&hash));
            let finding = Finding::new(FindingKind::Rewritten, spot, why);
            report.find(finding.expected(hex(&link.hash), found));
        }
        if self.how.has_checkpoints && row.seq > self.how.known.seq {
            self.uncovered_rows += 1;
            if self.uncovered.is_none() {
                self.uncovered = Some(self.spot(row, chunk));
            }
        }
        Ok(())
    }

    /// After the last row. `has_spool`: what the gateway's spool has of it was looked at, too.
    pub(super) fn end(mut self, has_spool: bool, report: &mut Report) -> Result<(), VerifyError> {
        if self.how.until.is_none() {
            self.look_behind(has_spool, report)?;
        }
        if let Some(spot) = self.uncovered.take() {
            let age = spot.time.map(|time| self.how.now.duration_since(time));
            if age.is_some_and(|age| age.abs() <= CHECKPOINT_GRACE) {
                report.note(format!(
                    "writer {}: {} rows since {} wait for the next checkpoint",
                    self.writer.writer, self.uncovered_rows, spot
                ));
            } else {
                let rows = self.uncovered_rows;
                let whose = if self.how.known.seq == 0 { "the writer" } else { "them" };
                let why = format!(
                    "no checkpoint speaks of {whose}, from here on {rows} rows: they were added, \
                     or checkpoints were removed, or the gateway has died and was not started since"
                );
                report.find(Finding::new(FindingKind::Uncovered, spot, why));
            }
        }
        if self.writer.covered_seq == 0 && self.writer.rows == 0 && self.writer.waiting == 0 {
            return Ok(());
        }
        report.rows += self.writer.rows;
        report.writers.push(self.writer);
        Ok(())
    }

    /// Does a checkpoint speak of what is not there?
    fn look_behind(&mut self, has_spool: bool, report: &mut Report) -> Result<(), VerifyError> {
        let (Known { seq, stored, .. }, next) = (self.how.known, self.next);
        if seq < next {
            return Ok(());
        }
        // Up to there the store has said that it has them; beyond, they may be in the spool.
        let proven = if has_spool { seq } else { stored };
        let mut proof = None;
        while let Some(said) = self.heads.pop()? {
            proof = Some(said);
        }
        let writer = self.writer.writer;
        let is_old = |said: &Said| self.how.expired_before.is_some_and(|limit| said.time < limit);
        if proof.as_ref().is_some_and(is_old) {
            report
                .note(format!("writer {writer}: its rows are gone, all older than the retention"));
            return Ok(());
        }
        if proven >= next {
            let mut spot = Spot { writer: Some(writer), seq: Some(next), ..Spot::default() };
            spot.last_seq = Some(proven);
            let mut why = "rows are missing at the end".to_owned();
            if let Some(Said { time, number, file, .. }) = proof {
                why = format!("{why}; the checkpoint of {time:.6} speaks of them");
                (spot.file, spot.checkpoint) = (Some(file), Some(number));
            }
            let found = format!("no row after seq {}", next - 1);
            let finding = Finding::new(FindingKind::Truncated, spot, why);
            report.find(finding.expected(format!("rows to seq {proven}"), found));
        }
        let waiting = seq.saturating_sub(proven.max(next - 1));
        if waiting > 0 {
            self.writer.waiting += waiting;
            report.note(format!(
                "writer {writer}: {waiting} entries (to seq {seq}) were in the gateway's spool at its \
                 last checkpoint and are not in the store: unless they come, they were removed. \
                 --spool looks there"
            ));
        }
        Ok(())
    }
}
