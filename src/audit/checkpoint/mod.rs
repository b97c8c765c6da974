//! Signed statements of how far the chain had come, kept outside the store.
//!
//! The chain alone shows a change in its midst. It does not show that its last records are gone,
//! nor that somebody who may write to the store has made all hashes anew: for that there must be
//! something that they can't write. A checkpoint says, under an Ed25519 signature, which record of
//! each writer was the last one and what its hash was. Each has the hash of the one before.
//!
//! Every gateway writes a log of its own ([`CheckpointLog`]); verifying reads as many as there are.

mod key;
mod log;
mod task;

use std::fmt::Write as _;

use aws_lc_rs::{
    digest::{Context, SHA256},
    signature::{ED25519, UnparsedPublicKey},
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use key::{CheckpointKey, KeyError, PublicKey, read_public_keys};
pub use log::{CheckpointLog, LogError};
pub(super) use task::SealState;
pub use task::{CHECKPOINT_INTERVAL, CheckpointStatus, Checkpointer, SealError};

use super::chain::{Hash, Link};

/// What is signed before all else, so that no other signature of the key can be passed off.
const DOMAIN: &[u8; 22] = b"tollgate-checkpoint-1\0";
/// The version of the lines.
const VERSION: u8 = 1;
/// No line of ours is longer: a checkpoint has one head, or few.
pub const MAX_LINE_BYTES: usize = 64 << 10;

/// Where a writer's chain was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The last record that was on the gateway's disk.
    pub link: Link,
    /// The number of the last record that the store had acknowledged, with all before it.
    pub stored: u64,
}

/// One checkpoint, as it was signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The first of a log is number 1.
    pub number: u64,
    pub time: Timestamp,
    pub heads: Vec<Head>,
    /// The hash of the checkpoint before; zeros for the first.
    pub previous: Hash,
    pub key: PublicKey,
    signature: [u8; 64],
}

/// A line is no checkpoint that this version writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    #[error("a checkpoint of version {0}, which this tollgate does not know")]
    Version(u8),
    #[error("not a checkpoint")]
    Malformed,
}

impl Checkpoint {
    /// Signs what comes after `last`: its number and its hash.
    #[must_use]
    pub fn sign(key: &CheckpointKey, last: Option<(u64, Hash)>, heads: Vec<Head>) -> Self {
        let (number, previous) = last.unwrap_or((0, [0; 32]));
        let now = Timestamp::now();
        let mut checkpoint = Self {
            number: number + 1,
            // What is signed has no more than microseconds.
            time: Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now),
            heads,
            previous,
            key: key.public(),
            signature: [0; 64],
        };
        checkpoint.signature = key.sign(&checkpoint.signed());
        checkpoint
    }

    /// What is signed: `"tollgate-checkpoint-1\0"`, the key (32 bytes), the number (8), the time in
    /// microseconds since 1970 (8), the hash of the one before (32), how many heads (4), and of each
    /// its writer (16), epoch (4), seq (8), hash (32) and `stored` (8). Numbers are big-endian.
    fn signed(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(128 + 68 * self.heads.len());
        bytes.extend(DOMAIN);
        bytes.extend(self.key.as_bytes());
        bytes.extend(self.number.to_be_bytes());
        bytes.extend(self.time.as_microsecond().to_be_bytes());
        bytes.extend(self.previous);
        bytes.extend(u32::try_from(self.heads.len()).unwrap_or(u32::MAX).to_be_bytes());
        for Head { link, stored } in &self.heads {
            bytes.extend(link.writer.as_bytes());
            bytes.extend(link.epoch.to_be_bytes());
            bytes.extend(link.seq.to_be_bytes());
            bytes.extend(link.hash);
            bytes.extend(stored.to_be_bytes());
        }
        bytes
    }

    /// SHA-256 over what is signed and the signature.
    #[must_use]
    pub fn hash(&self) -> Hash {
        let mut context = Context::new(&SHA256);
        context.update(&self.signed());
        context.update(&self.signature);
        let mut hash = [0; 32];
        hash.copy_from_slice(context.finish().as_ref());
        hash
    }

    /// Did the owner of its key sign it as it is?
    #[must_use]
    pub fn is_signed(&self) -> bool {
        let key = UnparsedPublicKey::new(&ED25519, self.key.as_bytes());
        key.verify(&self.signed(), &self.signature).is_ok()
    }

    /// The head of one writer.
    #[must_use]
    pub fn head_of(&self, writer: Uuid) -> Option<&Head> {
        self.heads.iter().find(|head| head.link.writer == writer)
    }

    /// JSON, without the line's end.
    #[must_use]
    pub fn to_line(&self) -> String {
        let head = |head: &Head| LineHead {
            writer: head.link.writer,
            epoch: head.link.epoch,
            seq: head.link.seq,
            hash: hex(&head.link.hash),
            stored: head.stored,
        };
        let line = Line {
            checkpoint: VERSION,
            number: self.number,
            time: self.time,
            heads: self.heads.iter().map(head).collect(),
            previous: hex(&self.previous),
            key: hex(self.key.as_bytes()),
            signature: hex(&self.signature),
        };
        // Texts and numbers are always JSON.
        serde_json::to_string(&line).unwrap_or_default()
    }

    /// Reads what [`Checkpoint::to_line`] wrote, and nothing that differs in a single byte.
    pub fn parse(text: &str) -> Result<Self, LineError> {
        let line: Line = serde_json::from_str(text).map_err(|_| LineError::Malformed)?;
        if line.checkpoint != VERSION {
            return Err(LineError::Version(line.checkpoint));
        }
        let read = Self::from_line(&line).ok_or(LineError::Malformed)?;
        if read.to_line() == text { Ok(read) } else { Err(LineError::Malformed) }
    }

    fn from_line(line: &Line) -> Option<Self> {
        let head = |head: &LineHead| {
            let LineHead { writer, epoch, seq, stored, .. } = *head;
            Some(Head { link: Link { writer, epoch, seq, hash: unhex(&head.hash)? }, stored })
        };
        Some(Self {
            number: line.number,
            time: line.time,
            heads: line.heads.iter().map(head).collect::<Option<_>>()?,
            previous: unhex(&line.previous)?,
            key: PublicKey::new(unhex(&line.key)?),
            signature: unhex(&line.signature)?,
        })
    }
}

/// A line of a log. The order of its members is part of the format.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    checkpoint: u8,
    number: u64,
    time: Timestamp,
    heads: Vec<LineHead>,
    previous: String,
    key: String,
    signature: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LineHead {
    writer: Uuid,
    epoch: u32,
    seq: u64,
    hash: String,
    stored: u64,
}

/// Lower-case hexadecimal digits.
#[must_use]
pub(super) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a string can't fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    let mut bytes = [0; N];
    if digits.len() != N * 2 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}
