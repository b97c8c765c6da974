//! What a verification has come to.

use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use super::finding::{Finding, FindingKind};

/// Findings that are told one by one; further ones are counted. One edit of a writer's first row
/// may make a finding of each of its checkpoints.
pub const MAX_FINDINGS: usize = 100;
/// Likewise.
const MAX_NOTES: usize = 100;

/// What was looked at, and what was found.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    pub is_clean: bool,
    /// In the order in which they were found, [`MAX_FINDINGS`] at the most.
    pub findings: Vec<Finding>,
    /// All of them.
    pub finding_count: u64,
    /// Rows whose hash was computed.
    pub rows: u64,
    /// Rows from before there was a chain. Nothing proves them.
    pub unchained_rows: u64,
    pub writers: Vec<WriterReport>,
    /// `None` where none were given: then nothing shows rows removed from the end, nor a chain that
    /// was made anew.
    pub checkpoints: Option<CheckpointReport>,
    /// `None` where contents were not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contents: Option<ContentReport>,
    /// What is to be known and is no finding.
    pub notes: Vec<String>,
}

/// One writer's chain.
#[derive(Debug, Clone, Default, Serialize)]
pub struct WriterReport {
    pub writer: Uuid,
    pub first_epoch: u32,
    pub last_epoch: u32,
    pub first_seq: u64,
    pub last_seq: u64,
    pub rows: u64,
    /// Checkpoints whose hash is the one in the store.
    pub checkpoints: u64,
    /// The last number that a checkpoint vouches for.
    pub covered_seq: u64,
    /// Entries that the gateway has and the store does not: in its spool, or said to be by a
    /// checkpoint.
    pub waiting: u64,
}

/// The logs of checkpoints.
#[derive(Debug, Clone, Default, Serialize)]
pub struct CheckpointReport {
    pub files: usize,
    pub checkpoints: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<Timestamp>,
}

/// What is kept of prompts and answers. Each has two sides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ContentReport {
    /// Sides that are there.
    pub checked: u64,
    /// Of them, those of which the beginning is kept: the hash does not prove it.
    pub truncated: u64,
    /// Of them, those that no row speaks of (yet).
    pub without_row: u64,
    /// Sides that are not there, of rows that are older than the retention.
    pub expired: u64,
    /// Others that are not there: not kept, or deleted.
    pub missing: u64,
}

impl Report {
    pub(super) fn find(&mut self, finding: Finding) {
        self.finding_count += 1;
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(finding);
        }
    }

    pub(super) fn note(&mut self, note: String) {
        if self.notes.len() < MAX_NOTES {
            self.notes.push(note);
        }
    }

    /// The last edit that was found is, as the row after it shows, one of the hash alone.
    pub(super) fn amend_edit(&mut self) {
        let mut findings = self.findings.iter_mut().rev();
        if self.finding_count <= MAX_FINDINGS as u64
            && let Some(edit) = findings.find(|finding| finding.kind == FindingKind::Edited)
        {
            edit.kind = FindingKind::HashEdited;
            "its hash is not the one that the next row is linked to".clone_into(&mut edit.message);
        }
    }

    pub(super) const fn close(&mut self) {
        self.is_clean = self.finding_count == 0;
    }
}
