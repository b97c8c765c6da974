//! What is wrong with a trail, and where.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

/// What is wrong. The names are part of what `tollgate audit verify --json` promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// A row is not what it was when it was written: a column, or its place, is another.
    Edited,
    /// A row is as it was, but its hash is another.
    HashEdited,
    /// A row holds what no gateway ever wrote.
    Malformed,
    /// Rows are missing.
    Gap,
    /// Two rows have one place.
    Fork,
    /// Rows are missing at the end.
    Truncated,
    /// The chain is sound in itself, but not the one that a checkpoint speaks of.
    Rewritten,
    /// Rows that a checkpoint should speak of long since, and none does.
    Uncovered,
    /// A row outside of any chain that was added since there is one.
    Unchained,
    /// A row that queries leave out, though it is not a later end of its call.
    Hidden,
    /// What is kept of a prompt or an answer is another than its row has the hash of.
    ContentEdited,
    /// A line of a log is no checkpoint, or not as it was signed.
    CheckpointEdited,
    /// A checkpoint is signed by a key that is none of the given ones.
    CheckpointKey,
    /// Checkpoints are missing, or not in their order.
    CheckpointGap,
    /// Two checkpoints contradict each other.
    CheckpointFork,
    /// There should be checkpoints, and there are none.
    CheckpointsMissing,
}

impl FindingKind {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Edited => "edited",
            Self::HashEdited => "hash edited",
            Self::Malformed => "malformed",
            Self::Gap => "gap",
            Self::Fork => "fork",
            Self::Truncated => "truncated",
            Self::Rewritten => "rewritten",
            Self::Uncovered => "uncovered",
            Self::Unchained => "unchained",
            Self::Hidden => "hidden",
            Self::ContentEdited => "content edited",
            Self::CheckpointEdited => "checkpoint edited",
            Self::CheckpointKey => "checkpoint key",
            Self::CheckpointGap => "checkpoint gap",
            Self::CheckpointFork => "checkpoint fork",
            Self::CheckpointsMissing => "checkpoints missing",
        }
    }
}

/// Where it is: as much of it as is known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Spot {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writer: Option<Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u32>,
    /// The number in the writer's chain; of several, the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// The last of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Timestamp>,
    /// The log of checkpoints, and the line in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<u64>,
}

/// Something is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub kind: FindingKind,
    #[serde(flatten)]
    pub spot: Spot,
    /// A sentence.
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
}

impl Finding {
    pub(super) fn new(kind: FindingKind, spot: Spot, message: impl Into<String>) -> Self {
        Self { kind, spot, message: message.into(), expected: None, found: None }
    }

    pub(super) fn expected(
        mut self,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        (self.expected, self.found) = (Some(expected.into()), Some(found.into()));
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.as_str(), self.spot)?;
        write!(f, ": {}", self.message)?;
        if let (Some(expected), Some(found)) = (&self.expected, &self.found) {
            write!(f, " (expected {expected}, found {found})")?;
        }
        Ok(())
    }
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if let Some(file) = &self.file {
            parts.push(self.line.map_or_else(|| file.clone(), |line| format!("{file}:{line}")));
        }
        parts.extend(self.checkpoint.map(|number| format!("checkpoint {number}")));
        parts.extend(self.writer.map(|writer| format!("writer {writer}")));
        parts.extend(self.epoch.map(|epoch| format!("epoch {epoch}")));
        match (self.seq, self.last_seq) {
            (Some(first), Some(last)) if last > first => {
                parts.push(format!("seq {first} to {last}"));
            }
            (Some(seq), _) => parts.push(format!("seq {seq}")),
            (None, _) => {}
        }
        parts.extend(self.entry.as_ref().map(|id| format!("entry {}", printable(id))));
        parts.extend(self.time.map(|time| format!("{time:.6}")));
        if parts.is_empty() {
            parts.push("the trail".to_owned());
        }
        f.write_str(&parts.join(", "))
    }
}

/// What stands in a column may be anything: nothing of it may steer a terminal.
fn printable(text: &str) -> String {
    text.chars().take(80).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
