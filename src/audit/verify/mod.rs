//! Is the trail what was written? The store's rows, the chain through them, and the checkpoints
//! over it are held against each other.
//!
//! What is proven where all is well, and the private key of the checkpoints was in no wrong hands:
//! - Every row up to a writer's last checkpoint is as the gateway wrote it, at its place, and none
//!   is missing between them. The rows after that are a chain in themselves.
//! - No row was removed from the end of what a checkpoint speaks of, nor a whole writer.
//!
//! What is not proven:
//! - That what was written is true, or that all was written: a gateway that lies signs its lies.
//! - Rows since the last checkpoint, against one who may write to the store: the chain has no
//!   secret, so they can make its end anew until the next checkpoint is made, a minute later.
//! - Anything, against one who has the store and the signing key as well. So the key is to be where
//!   the store's administrators are not, and checkpoints go where neither can change them.
//! - What is not hashed: a row's number in its store (`seq`), the mark `superseded` (which is
//!   checked for sense: only a later end of a call may have it), and content. Content's hash is, and
//!   content is held against it where that is asked for ([`Options::contents`]).
//! - Rows from before there was a chain. They are counted.
//!
//! Rows are read in chunks, one being hashed while the next is read, so that memory stays constant
//! whatever the trail's length. Each row is encoded from its columns and hashed with the hash that
//! the row before it has in the store.

mod chunk;
mod content;
mod finding;
mod logs;
mod report;
mod walk;

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    io,
    path::PathBuf,
};

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use tokio::task::spawn_blocking;
use uuid::Uuid;

pub use chunk::{CHUNK_ROWS, ChainChunk, StoredLink};
pub use content::{CONTENT_SIDES, ContentBounds, ContentRow, KeptSide, MissingSides};
pub use finding::{Finding, FindingKind, Spot};
use logs::Logs;
pub use report::{CheckpointReport, ContentReport, MAX_FINDINGS, Report, WriterReport};
pub use walk::CHECKPOINT_GRACE;
use walk::{Walk, Walking};

use super::{checkpoint::PublicKey, spool::Waiting};

/// How much later than it should retention may find a row to be old enough.
const RETENTION_SLACK: SignedDuration = SignedDuration::from_mins(10);

/// One writer's rows in a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// As it stands in the column.
    pub writer: String,
    /// The numbers of its first and last rows.
    pub first: i64,
    pub last: i64,
}

/// Rows that are in no chain.
#[derive(Debug, Clone, Default)]
pub struct Unchained {
    /// From before there was a chain: no column of a link is set, and no row of a chain is older.
    pub before: u64,
    /// Others, and the first of them.
    pub after: u64,
    pub first: Spot,
}

/// A store whose chains can be read.
///
/// The rows are those of before the call to [`ChainReader::spans`] at least. Superseded ones, and
/// what was put elsewhere because a table did not take it, are part of the chain.
#[async_trait]
pub trait ChainReader: Send {
    /// Every writer, in the order of its name.
    async fn spans(&mut self) -> Result<Vec<Span>, ChainError>;
    /// Of a writer's rows the first and the last whose time is within these bounds.
    async fn within(
        &mut self,
        writer: &str,
        from: Option<Timestamp>,
        to: Option<Timestamp>,
    ) -> Result<Option<Span>, ChainError>;
    /// Begins to read the rows of a span.
    async fn open(&mut self, span: &Span) -> Result<(), ChainError>;
    /// Adds the next rows, about [`CHUNK_ROWS`], by their number in the chain; none at the end.
    async fn read(&mut self, chunk: &mut ChainChunk) -> Result<(), ChainError>;
    async fn unchained(&mut self) -> Result<Unchained, ChainError>;
    /// How many rows are marked superseded that are no later end of their call, and the first.
    async fn hidden(&mut self) -> Result<(u64, Spot), ChainError>;
    /// The sides of contents that come after this entry's side, in that order, at most
    /// [`CONTENT_SIDES`]; none at the end.
    async fn contents(
        &mut self,
        after: Option<(&str, &str)>,
        bounds: ContentBounds,
    ) -> Result<Vec<KeptSide>, ChainError>;
    /// How many sides rows have a hash of that are not kept; those older than `expired_before` apart.
    async fn without_content(
        &mut self,
        expired_before: Option<Timestamp>,
        bounds: ContentBounds,
    ) -> Result<MissingSides, ChainError>;
}

/// The store could not be read.
#[derive(Debug, thiserror::Error)]
#[error("can't read the audit store: {0}")]
pub struct ChainError(#[source] Box<dyn Error + Send + Sync>);

impl ChainError {
    pub fn new(source: impl Error + Send + Sync + 'static) -> Self {
        Self(Box::new(source))
    }
}

/// The trail could not be looked at.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error(transparent)]
    Store(#[from] ChainError),
    #[error("can't read the checkpoints in {}: {source}", path.display())]
    Checkpoints { path: PathBuf, source: io::Error },
    #[error("can't read the spool {}: {source}", path.display())]
    Spool { path: PathBuf, source: io::Error },
    #[error("the verification was cut off: {0}")]
    Lost(#[from] tokio::task::JoinError),
}

/// What is to be looked at, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// Logs of checkpoints; `None` for the chain alone.
    pub checkpoints: Option<Vec<PathBuf>>,
    /// The keys that sign them.
    pub keys: Vec<PublicKey>,
    /// The directory of a gateway's spool: what is there is missing nowhere.
    pub spool: Option<PathBuf>,
    /// Only what was written in this time, and what is around it.
    pub from: Option<Timestamp>,
    pub to: Option<Timestamp>,
    /// Rows older than this may be gone.
    pub retention_days: Option<u32>,
    /// Are contents to be held against their hashes, too?
    pub contents: bool,
    pub now: Timestamp,
}

/// How far it is: rows looked at, of so many.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Send + Sync);

/// Holds the store, the chain and the checkpoints against each other.
///
/// # Errors
/// [`VerifyError`] where something can't be read. What is wrong with the trail is in the report.
pub async fn verify(
    reader: &mut dyn ChainReader,
    options: Options,
    progress: Progress<'_>,
) -> Result<Report, VerifyError> {
    // In this order: what a checkpoint speaks of is in the spool or, later, in the store.
    let checked = spawn_blocking(move || {
        let mut report = Report::default();
        let logs = match &options.checkpoints {
            Some(paths) => Logs::check(paths, &options.keys, &options, &mut report)?,
            None => Logs::default(),
        };
        let waiting = options.spool.as_deref().map(Waiting::open).transpose();
        let path = options.spool.clone().unwrap_or_default();
        let waiting = waiting.map_err(|source| VerifyError::Spool { path, source })?;
        Ok::<_, VerifyError>(Verification { report, logs, options, waiting })
    });
    let mut verification = checked.await??;
    let mut spans = verification.spans(reader).await?;
    let total = spans.values().flatten().map(rows_of).sum();
    let mut done = 0;
    while let Some((writer, span)) = spans.pop_first() {
        verification =
            verification.writer(writer, span, reader, &mut done, total, progress).await?;
    }
    verification.unchained(reader).await?;
    verification.hidden(reader).await?;
    if verification.options.contents {
        verification = verification.contents(reader).await?;
    }
    verification.report.close();
    Ok(verification.report)
}

fn rows_of(span: &Span) -> u64 {
    u64::try_from(span.last.saturating_sub(span.first).saturating_add(1)).unwrap_or(0)
}

#[derive(Debug)]
struct Verification {
    report: Report,
    logs: Logs,
    options: Options,
    waiting: Option<Waiting>,
}

impl Verification {
    const fn is_whole(&self) -> bool {
        self.options.from.is_none() && self.options.to.is_none()
    }

    /// What there is to read of each writer that the store, a checkpoint or the spool knows.
    async fn spans(
        &mut self,
        reader: &mut dyn ChainReader,
    ) -> Result<BTreeMap<Uuid, Option<Span>>, VerifyError> {
        let mut spans = BTreeMap::new();
        for span in reader.spans().await? {
            // As we write it, for otherwise it would be a second name of the same writer.
            let writer = Uuid::try_parse(&span.writer).ok();
            let Some(writer) = writer.filter(|id| id.to_string() == span.writer) else {
                let why = "its writer is none";
                let found: String = span.writer.chars().take(80).map(printable).collect();
                let spot = Spot { seq: u64::try_from(span.first).ok(), ..Spot::default() };
                let finding = Finding::new(FindingKind::Malformed, spot, why);
                self.report.find(finding.expected("a UUID in lower case", found));
                continue;
            };
            let span =
                if self.is_whole() { Some(span) } else { self.part(&span, writer, reader).await? };
            spans.insert(writer, span);
        }
        if self.is_whole() {
            let spooled = self.waiting.as_ref().and_then(Waiting::writer);
            let known: BTreeSet<Uuid> = self.logs.writers().into_iter().chain(spooled).collect();
            for writer in known {
                spans.entry(writer).or_insert(None);
            }
        }
        Ok(spans)
    }

    /// Of a writer's rows those that were written in the time that is asked for. Where a row says
    /// it was written at another time, checkpoints still say between which numbers it must be.
    async fn part(
        &self,
        span: &Span,
        writer: Uuid,
        reader: &mut dyn ChainReader,
    ) -> Result<Option<Span>, VerifyError> {
        let Options { from, to, .. } = self.options;
        let found = reader.within(&span.writer, from, to).await?;
        let known = self.logs.known(writer).unwrap_or_default();
        let number = |seq: u64| i64::try_from(seq).unwrap_or(i64::MAX);
        let mut part = found.clone().unwrap_or_else(|| span.clone());
        let bounds = (known.before.map(number), known.after.map(number));
        // Where no row says that it is of that time, there are those between two checkpoints.
        let is_between = bounds.0.is_some() && (to.is_none() || bounds.1.is_some());
        if found.is_none() && !is_between {
            return Ok(None);
        }
        if let Some(before) = bounds.0 {
            part.first = if found.is_some() { part.first.min(before + 1) } else { before + 1 };
        }
        if let Some(after) = bounds.1 {
            part.last = if found.is_some() { part.last.max(after) } else { after };
        }
        Ok(Some(part).filter(|part| part.first <= part.last))
    }

    /// Looks at one writer's rows.
    async fn writer(
        mut self,
        writer: Uuid,
        span: Option<Span>,
        reader: &mut dyn ChainReader,
        done: &mut u64,
        total: u64,
        progress: Progress<'_>,
    ) -> Result<Self, VerifyError> {
        if span.is_none() && !self.is_whole() {
            return Ok(self);
        }
        let mut walk = self.walk(writer, span.as_ref())?;
        if let Some(span) = span {
            reader.open(&span).await?;
            let (mut full, mut spare) = (ChainChunk::default(), ChainChunk::default());
            full.begin(writer);
            reader.read(&mut full).await?;
            while !full.is_empty() {
                let rows = full.len() as u64;
                let hashing = spawn_blocking(move || {
                    let taken = walk.take(&mut full, &mut self.report);
                    (self, walk, full, taken)
                });
                spare.begin(writer);
                let read = reader.read(&mut spare).await;
                let (back, walked, used, taken) = hashing.await?;
                (self, walk) = (back, walked);
                taken?;
                read?;
                (full, spare) = (spare, used);
                *done += rows;
                progress((*done).min(total), total);
            }
        }
        spawn_blocking(move || self.end(walk, writer)).await?
    }

    /// What is older than this may be gone.
    fn expired_before(&self) -> Option<Timestamp> {
        let Options { now, retention_days, .. } = self.options;
        let kept = SignedDuration::from_hours(24 * i64::from(retention_days?));
        now.checked_sub(kept - RETENTION_SLACK).ok()
    }

    fn walk(&self, writer: Uuid, span: Option<&Span>) -> Result<Walk, VerifyError> {
        let Options { from, to, now, .. } = self.options;
        let first = span.and_then(|span| u64::try_from(span.first).ok()).unwrap_or(1);
        let last = span.and_then(|span| u64::try_from(span.last).ok());
        let how = Walking {
            now,
            expired_before: self.expired_before(),
            first: if from.is_some() { first.max(1) } else { 1 },
            until: to.and(last),
            has_checkpoints: self.options.checkpoints.is_some(),
            known: self.logs.known(writer).unwrap_or_default(),
        };
        Ok(Walk::new(writer, self.logs.heads(writer)?, how))
    }

    /// Goes on through what waits in the spool, and looks at what is behind it.
    fn end(mut self, mut walk: Walk, writer: Uuid) -> Result<Self, VerifyError> {
        let mut has_spool = false;
        if let Some(mut waiting) = self.waiting.take_if(|waiting| waiting.writer() == Some(writer))
        {
            has_spool = true;
            walk.enter_spool();
            let path = self.options.spool.clone().unwrap_or_default();
            let failed = |source| VerifyError::Spool { path: path.clone(), source };
            let mut chunk = ChainChunk::default();
            while self.is_whole() && waiting.next_segment().map_err(failed)? {
                chunk.begin(writer);
                for (link, record) in waiting.records() {
                    if link.seq >= walk.next() {
                        chunk.push_spooled(&link, record);
                    }
                }
                walk.take(&mut chunk, &mut self.report)?;
            }
        }
        walk.end(has_spool, &mut self.report)?;
        Ok(self)
    }

    async fn unchained(&mut self, reader: &mut dyn ChainReader) -> Result<(), VerifyError> {
        let Unchained { before, after, first } = reader.unchained().await?;
        self.report.unchained_rows = before;
        if after > 0 {
            let why = format!("{after} rows are in no chain, and yet newer than one that is");
            self.report.find(Finding::new(FindingKind::Unchained, first, why));
        }
        Ok(())
    }

    async fn hidden(&mut self, reader: &mut dyn ChainReader) -> Result<(), VerifyError> {
        let (count, first) = reader.hidden().await?;
        if count > 0 {
            let why = format!(
                "{count} rows are marked as superseded, and thus left out of queries, that are no \
                 later ends of their calls"
            );
            self.report.find(Finding::new(FindingKind::Hidden, first, why));
        }
        Ok(())
    }
}

fn printable(c: char) -> char {
    if c.is_control() { '\u{fffd}' } else { c }
}
