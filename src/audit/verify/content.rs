//! Is what is kept of prompts and answers what the rows have the hashes of?
//!
//! Content is apart from the chain, so that it can be deleted; the rows, whose own hashes are looked
//! at beside this, say what it was. Three things are told apart:
//! - Content that is there and is another: a finding.
//! - Content that is not there, of rows that have a hash of some: a note. It was never kept
//!   (`audit.content` says so), or retention has deleted it, or somebody has.
//! - Content of which only the beginning was kept: its hash is over the whole, so nothing shows a
//!   change of the beginning. That it is as long as it should be is checked; they are counted.

use jiff::Timestamp;
use tokio::task::spawn_blocking;

use super::{ChainReader, Finding, FindingKind, Spot, Verification, VerifyError};
use crate::audit::{ContentDigest, checkpoint::hex, content};

/// Sides of contents that are read at once: 4 MiB at the most.
pub const CONTENT_SIDES: u32 = 64;

/// A side of a content, and what its row says of it.
#[derive(Debug, Clone, Default)]
pub struct KeptSide {
    pub entry_id: String,
    /// `input` or `output`.
    pub side: String,
    pub text: String,
    /// What stands beside the text, for who reads it.
    pub full_bytes: Option<i64>,
    /// `None` where there is no such row.
    pub row: Option<ContentRow>,
}

/// What a row has of a side.
#[derive(Debug, Clone, Default)]
pub struct ContentRow {
    pub hash: Option<String>,
    pub bytes: Option<i64>,
    pub spot: Spot,
}

/// Which contents are looked at.
#[derive(Debug, Clone, Copy, Default)]
pub struct ContentBounds {
    pub from: Option<Timestamp>,
    pub to: Option<Timestamp>,
}

impl ContentBounds {
    /// In microseconds, both included.
    #[must_use]
    pub fn micros(&self) -> (i64, i64) {
        let micros = |time: Option<Timestamp>| time.map(Timestamp::as_microsecond);
        (micros(self.from).unwrap_or(i64::MIN), micros(self.to).unwrap_or(i64::MAX))
    }
}

/// Sides that rows have a hash of and that are not kept.
#[derive(Debug, Clone, Copy, Default)]
pub struct MissingSides {
    /// Of rows older than the retention.
    pub expired: u64,
    pub other: u64,
}

impl Verification {
    /// Looks at every content that is kept.
    pub(super) async fn contents(
        mut self,
        reader: &mut dyn ChainReader,
    ) -> Result<Self, VerifyError> {
        let bounds = ContentBounds { from: self.options.from, to: self.options.to };
        let mut last: Option<(String, String)> = None;
        loop {
            let after = last.as_ref().map(|(entry, side)| (&**entry, &**side));
            let sides = reader.contents(after, bounds).await?;
            let Some(side) = sides.last() else { break };
            last = Some((side.entry_id.clone(), side.side.clone()));
            self = spawn_blocking(move || {
                for side in sides {
                    self.content(side);
                }
                self
            })
            .await?;
        }
        let missing = reader.without_content(self.expired_before(), bounds).await?;
        let contents = self.report.contents.get_or_insert_default();
        (contents.expired, contents.missing) = (missing.expired, missing.other);
        Ok(self)
    }

    fn content(&mut self, side: KeptSide) {
        let KeptSide { entry_id, side, text, full_bytes, row } = side;
        let contents = self.report.contents.get_or_insert_default();
        contents.checked += 1;
        // It comes before its row, and stays where a table did not take that: nobody is shown it.
        let Some(ContentRow { hash, bytes, spot }) = row else {
            contents.without_row += 1;
            return;
        };
        let is_whole = content::full_bytes(&text).is_none();
        contents.truncated += u64::from(!is_whole);
        let length = content::full_bytes(&text).unwrap_or(text.len() as u64);
        let digest = is_whole.then(|| hex(&ContentDigest::of(text.as_bytes()).hash));
        let is_of_row = digest.is_none() || digest == hash;
        let is_as_long = bytes == i64::try_from(length).ok() && full_bytes == bytes;
        if is_of_row && is_as_long && hash.is_some() {
            return;
        }
        let spot = Spot { entry: Some(entry_id), ..spot };
        let why = format!("its {side} is kept, and is another than the row has the hash of");
        let said = |hash: Option<String>, bytes: Option<i64>| {
            let hash = hash.unwrap_or_else(|| "a hash that is not known".to_owned());
            format!("{hash}, {} bytes", bytes.unwrap_or_default())
        };
        let expected = if hash.is_some() { said(hash, bytes) } else { "none".to_owned() };
        let finding = Finding::new(FindingKind::ContentEdited, spot, why);
        self.report.find(finding.expected(expected, said(digest, i64::try_from(length).ok())));
    }
}
