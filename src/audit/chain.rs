//! What ties each record to the one before it, so that none can be changed unseen.
//!
//! A gateway's spool is one writer with one chain for as long as its directory lives. Each start
//! of a process is a new epoch of it. Numbers run on over epochs, and the first record of an epoch
//! is linked to the last of the epoch before.

use aws_lc_rs::digest::{SHA256, digest};
use uuid::Uuid;

use super::{content::KeptContent, record::Record};

/// SHA-256.
pub type Hash = [u8; 32];

/// What is hashed before all else, so that no other hash of ours can be passed off as a link.
const DOMAIN: &[u8; 17] = b"tollgate-audit-1\0";
/// Where the record begins in what is hashed: all before it is of fixed length.
pub(super) const RECORD: usize = PREVIOUS + 32;
/// Where the hash of the record before begins.
pub(super) const PREVIOUS: usize = DOMAIN.len() + 16 + 4 + 8;

/// A record's place in its chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    pub writer: Uuid,
    pub epoch: u32,
    /// The first record of a writer is number 1.
    pub seq: u64,
    /// SHA-256 over `"tollgate-audit-1\0"`, `writer` (16 bytes), `epoch` (4, big-endian), `seq` (8,
    /// big-endian), the hash of the record before (32 zeros for the first), and the record.
    pub hash: Hash,
}

impl Link {
    /// Before a writer's first record.
    #[must_use]
    pub const fn origin(writer: Uuid) -> Self {
        Self { writer, epoch: 0, seq: 0, hash: [0; 32] }
    }
}

/// A record and its place: what stores hold.
#[derive(Debug, Clone, Copy)]
pub struct Linked<'a> {
    pub link: Link,
    pub record: Record<'a>,
    /// Goes with it and is no part of what is hashed: the record has its hash.
    pub content: KeptContent<'a>,
}

/// Links records one after the other.
#[derive(Debug, Clone)]
pub struct Chain {
    last: Link,
    /// What is hashed, so that nothing is allocated for each record.
    hashed: Vec<u8>,
}

impl Chain {
    /// The next record is linked to `last` and is of the epoch that `last` says.
    #[must_use]
    pub fn after(last: Link) -> Self {
        Self { last, hashed: Vec::with_capacity(1_024) }
    }

    #[must_use]
    pub const fn last(&self) -> &Link {
        &self.last
    }

    /// Links the record that `encode` writes; returns it.
    pub fn link(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> (&Link, &[u8]) {
        self.last.seq += 1;
        self.hashed.clear();
        begin(&self.last, &self.last.hash, &mut self.hashed);
        encode(&mut self.hashed);
        self.last.hash = hash(&self.hashed);
        (&self.last, &self.hashed[RECORD..])
    }

    /// Goes back to `last`: what was linked since is not there.
    pub const fn reset(&mut self, last: Link) {
        self.last = last;
    }
}

/// Adds what is hashed before the record: its place, and the hash of the record before.
pub(super) fn begin(place: &Link, previous: &Hash, to: &mut Vec<u8>) {
    to.extend(DOMAIN);
    to.extend(place.writer.as_bytes());
    to.extend(place.epoch.to_be_bytes());
    to.extend(place.seq.to_be_bytes());
    to.extend(previous);
}

pub(super) fn hash(bytes: &[u8]) -> Hash {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
    hash
}
