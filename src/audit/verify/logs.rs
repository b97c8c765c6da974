//! Reading logs of checkpoints: once to check each by itself, and once more beside each writer's
//! rows. Nothing is held of them but a few numbers a writer.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use uuid::Uuid;

use super::{
    Options, VerifyError,
    finding::{Finding, FindingKind, Spot},
    report::{CheckpointReport, Report},
};
use crate::audit::{
    chain::Hash,
    checkpoint::{Checkpoint, Head, MAX_LINE_BYTES, PublicKey, hex},
};

/// Logs that were read and checked.
#[derive(Debug, Default)]
pub(super) struct Logs {
    logs: Vec<Log>,
    keys: Vec<PublicKey>,
}

/// One log, as far as it was written when it was checked.
#[derive(Debug)]
struct Log {
    path: PathBuf,
    length: u64,
    writers: BTreeMap<Uuid, Known>,
}

/// What checkpoints say of a writer in all.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Known {
    pub(super) seq: u64,
    pub(super) stored: u64,
    hash: Hash,
    /// The last head from before the time that is asked for, and the first from after it.
    pub(super) before: Option<u64>,
    pub(super) after: Option<u64>,
}

impl Known {
    fn merge(self, other: Self) -> Self {
        Self {
            seq: self.seq.max(other.seq),
            stored: self.stored.max(other.stored),
            hash: if self.seq < other.seq { other.hash } else { self.hash },
            before: self.before.max(other.before),
            after: self.after.into_iter().chain(other.after).min(),
        }
    }
}

impl Logs {
    /// Reads and checks each file.
    ///
    /// # Errors
    /// If one can't be read.
    pub(super) fn check(
        paths: &[PathBuf],
        keys: &[PublicKey],
        options: &Options,
        report: &mut Report,
    ) -> Result<Self, VerifyError> {
        let mut summary = CheckpointReport { files: paths.len(), ..CheckpointReport::default() };
        let (mut logs, mut firsts, mut lasts) = (Vec::new(), Vec::new(), HashSet::new());
        for path in paths {
            let failed = |source| VerifyError::Checkpoints { path: path.clone(), source };
            let mut check = Check::new(path, keys, options, report, &mut summary);
            let length = check.run().map_err(failed)?;
            let Check { first, last, writers, .. } = check;
            lasts.extend(last.map(|(_, hash)| hash));
            firsts.extend(first.map(|first| (path, first)));
            logs.push(Log { path: path.clone(), length, writers });
        }
        for (path, first) in firsts {
            let is_first = first.number == 1 && first.previous == [0; 32];
            if !is_first && !lasts.contains(&first.previous) {
                let mut spot = spot(path, 1, Some(&first));
                spot.time = Some(first.time);
                let missing = format!(
                    "the log begins with it, so that {} before it are missing",
                    first.number.saturating_sub(1)
                );
                report.find(Finding::new(FindingKind::CheckpointGap, spot, missing));
            }
        }
        report.checkpoints = Some(summary);
        Ok(Self { logs, keys: keys.to_vec() })
    }

    pub(super) fn writers(&self) -> BTreeSet<Uuid> {
        self.logs.iter().flat_map(|log| log.writers.keys().copied()).collect()
    }

    pub(super) fn known(&self, writer: Uuid) -> Option<Known> {
        let known = self.logs.iter().filter_map(|log| log.writers.get(&writer).copied());
        known.reduce(Known::merge)
    }

    /// What checkpoints say of a writer, by number.
    pub(super) fn heads(&self, writer: Uuid) -> Result<Heads, VerifyError> {
        let logs = self.logs.iter().filter(|log| log.writers.contains_key(&writer));
        let open = |log: &Log| {
            let failed = |source| VerifyError::Checkpoints { path: log.path.clone(), source };
            let lines = Lines::open(&log.path, Some(log.length)).map_err(failed)?;
            let keys = self.keys.clone();
            let mut cursor = Cursor { path: log.path.clone(), lines, keys, writer, next: None };
            cursor.advance()?;
            Ok(cursor)
        };
        Ok(Heads { cursors: logs.map(open).collect::<Result<_, VerifyError>>()? })
    }
}

fn spot(path: &Path, line: u64, checkpoint: Option<&Checkpoint>) -> Spot {
    Spot {
        file: Some(path.display().to_string()),
        line: Some(line),
        checkpoint: checkpoint.map(|checkpoint| checkpoint.number),
        ..Spot::default()
    }
}

/// The first reading of one log.
struct Check<'a> {
    path: &'a Path,
    keys: &'a [PublicKey],
    options: &'a Options,
    report: &'a mut Report,
    summary: &'a mut CheckpointReport,
    first: Option<Checkpoint>,
    /// The number and the hash of the last good one.
    last: Option<(u64, Hash)>,
    /// The last line was not good: what the next one should be is not known.
    is_lost: bool,
    writers: BTreeMap<Uuid, Known>,
}

impl<'a> Check<'a> {
    fn new(
        path: &'a Path,
        keys: &'a [PublicKey],
        options: &'a Options,
        report: &'a mut Report,
        summary: &'a mut CheckpointReport,
    ) -> Self {
        let (first, last, writers) = (None, None, BTreeMap::new());
        Self { path, keys, options, report, summary, first, last, is_lost: false, writers }
    }

    /// Returns up to where there are whole lines.
    fn run(&mut self) -> io::Result<u64> {
        let mut lines = Lines::open(self.path, None)?;
        while let Some((number, line)) = lines.next()? {
            self.line(line, number);
        }
        if lines.is_torn {
            let path = self.path.display();
            self.report.note(format!("{path}: the last line has no end; it is not counted"));
        }
        Ok(lines.whole)
    }

    fn line(&mut self, line: &str, number: u64) {
        let bad = match Checkpoint::parse(line) {
            Err(error) => Err((None, FindingKind::CheckpointEdited, error.to_string())),
            Ok(checkpoint) => match flaw(&checkpoint, self.keys) {
                Some((kind, why)) => Err((Some(checkpoint), kind, why.to_owned())),
                None => Ok(checkpoint),
            },
        };
        match bad {
            Ok(checkpoint) => self.good(checkpoint, number),
            Err((checkpoint, kind, why)) => {
                let mut spot = spot(self.path, number, checkpoint.as_ref());
                spot.time = checkpoint.map(|checkpoint| checkpoint.time);
                self.report.find(Finding::new(kind, spot, why));
                self.is_lost = true;
            }
        }
    }

    fn good(&mut self, checkpoint: Checkpoint, line: u64) {
        self.summary.checkpoints += 1;
        self.summary.last = self.summary.last.max(Some(checkpoint.time));
        if let Some((last, hash)) = self.last
            && !self.is_lost
            && (checkpoint.number != last + 1 || checkpoint.previous != hash)
        {
            let mut spot = spot(self.path, line, Some(&checkpoint));
            spot.time = Some(checkpoint.time);
            let finding = if checkpoint.number == last + 1 {
                let why = "it is not linked to the one before";
                Finding::new(FindingKind::CheckpointGap, spot, why)
                    .expected(hex(&hash), hex(&checkpoint.previous))
            } else {
                let why = "checkpoints are missing before it, or not in their order";
                Finding::new(FindingKind::CheckpointGap, spot, why)
                    .expected((last + 1).to_string(), checkpoint.number.to_string())
            };
            self.report.find(finding);
        }
        self.is_lost = false;
        self.last = Some((checkpoint.number, checkpoint.hash()));
        for head in &checkpoint.heads {
            self.head(head, &checkpoint, line);
        }
        self.first.get_or_insert(checkpoint);
    }

    fn head(&mut self, head: &Head, checkpoint: &Checkpoint, line: u64) {
        let known = self.writers.entry(head.link.writer).or_default();
        let goes_back = head.link.seq < known.seq;
        if goes_back || (head.link.seq == known.seq && head.link.hash != known.hash) {
            let mut spot = spot(self.path, line, Some(checkpoint));
            spot.writer = Some(head.link.writer);
            (spot.seq, spot.time) = (Some(head.link.seq), Some(checkpoint.time));
            let why = "the chain went back: an earlier checkpoint has it further on, or otherwise";
            self.report.find(Finding::new(FindingKind::CheckpointFork, spot, why));
        }
        let (seq, is_before) = (head.link.seq, |limit: Option<Timestamp>| {
            limit.is_some_and(|limit| checkpoint.time < limit)
        });
        let said = Known {
            seq,
            stored: head.stored,
            hash: head.link.hash,
            before: is_before(self.options.from).then_some(seq),
            after: self.options.to.filter(|to| checkpoint.time > *to).map(|_| seq),
        };
        *known = known.merge(said);
    }
}

fn flaw(checkpoint: &Checkpoint, keys: &[PublicKey]) -> Option<(FindingKind, &'static str)> {
    if !keys.contains(&checkpoint.key) {
        let why = "it is signed by a key that is none of those given";
        Some((FindingKind::CheckpointKey, why))
    } else if !checkpoint.is_signed() {
        Some((FindingKind::CheckpointEdited, "its signature is not one of what it says"))
    } else {
        None
    }
}

/// A head, and the checkpoint that it is from.
#[derive(Debug, Clone)]
pub(super) struct Said {
    pub(super) head: Head,
    pub(super) time: Timestamp,
    pub(super) number: u64,
    pub(super) file: String,
}

/// What all logs say of one writer, lowest number first.
#[derive(Debug, Default)]
pub(super) struct Heads {
    cursors: Vec<Cursor>,
}

impl Heads {
    pub(super) fn peek(&self) -> Option<&Said> {
        let said = self.cursors.iter().filter_map(|cursor| cursor.next.as_ref());
        said.min_by_key(|said| said.head.link.seq)
    }

    pub(super) fn pop(&mut self) -> Result<Option<Said>, VerifyError> {
        let seq = |cursor: &&mut Cursor| cursor.next.as_ref().map(|said| said.head.link.seq);
        let cursors = self.cursors.iter_mut().filter(|cursor| cursor.next.is_some());
        cursors.min_by_key(seq).map_or(Ok(None), Cursor::advance)
    }
}

#[derive(Debug)]
struct Cursor {
    path: PathBuf,
    lines: Lines,
    keys: Vec<PublicKey>,
    writer: Uuid,
    next: Option<Said>,
}

impl Cursor {
    /// Goes on to the next checkpoint that is to be believed; returns the one it stood at.
    fn advance(&mut self) -> Result<Option<Said>, VerifyError> {
        let was = self.next.take();
        let failed = |source| VerifyError::Checkpoints { path: self.path.clone(), source };
        while let Some((_, line)) = self.lines.next().map_err(failed)? {
            let Ok(checkpoint) = Checkpoint::parse(line) else { continue };
            if let Some(head) = checkpoint.head_of(self.writer)
                && flaw(&checkpoint, &self.keys).is_none()
            {
                let Checkpoint { time, number, .. } = checkpoint;
                let file = self.path.display().to_string();
                self.next = Some(Said { head: *head, time, number, file });
                break;
            }
        }
        Ok(was)
    }
}

/// The lines of a file, each no longer than ours are.
#[derive(Debug)]
struct Lines {
    file: io::Take<BufReader<File>>,
    line: Vec<u8>,
    /// Of the line that was read last.
    number: u64,
    /// Up to here the lines are whole.
    whole: u64,
    is_torn: bool,
}

impl Lines {
    fn open(path: &Path, length: Option<u64>) -> io::Result<Self> {
        let file = BufReader::new(File::open(path)?).take(length.unwrap_or(u64::MAX));
        Ok(Self { file, line: Vec::new(), number: 0, whole: 0, is_torn: false })
    }

    /// The next line and its number. What is no text, or too long, comes as an empty line.
    fn next(&mut self) -> io::Result<Option<(u64, &str)>> {
        self.line.clear();
        let mut read = 0;
        loop {
            let piece = self.file.fill_buf()?;
            let end = memchr::memchr(b'\n', piece);
            let taken = end.map_or(piece.len(), |end| end + 1);
            let room = (MAX_LINE_BYTES + 1).saturating_sub(self.line.len());
            self.line.extend(&piece[..end.unwrap_or(piece.len()).min(room)]);
            self.file.consume(taken);
            read += taken as u64;
            if end.is_some() {
                break;
            }
            if taken == 0 {
                self.is_torn = read > 0;
                return Ok(None);
            }
        }
        self.number += 1;
        self.whole += read;
        let is_long = self.line.len() > MAX_LINE_BYTES;
        let line = std::str::from_utf8(&self.line).ok().filter(|_| !is_long);
        Ok(Some((self.number, line.unwrap_or_default())))
    }
}
