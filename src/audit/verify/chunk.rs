//! Rows on their way from a store to the hashing.

use jiff::Timestamp;
use uuid::Uuid;

use crate::audit::{
    Record,
    chain::{self, Hash, Link, PREVIOUS, RECORD},
};

/// How many rows are read, and then hashed, at once; about a mebibyte.
pub const CHUNK_ROWS: usize = 2_048;

/// A row's place in the chain, as its columns say.
#[derive(Debug, Clone, Copy)]
pub struct StoredLink<'a> {
    pub epoch: Option<i64>,
    pub seq: i64,
    pub hash: Option<&'a [u8]>,
}

/// Rows of one writer, each encoded as it was when it was hashed.
#[derive(Debug, Default)]
pub struct ChainChunk {
    writer: Uuid,
    /// For each row what is hashed; the hash of the record before is put in last.
    bytes: Vec<u8>,
    rows: Vec<ChainRow>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct ChainRow {
    pub(super) epoch: u32,
    pub(super) seq: u64,
    /// `None` where the column holds something else.
    pub(super) hash: Option<Hash>,
    /// Why the row is none that was ever written.
    pub(super) flaw: Option<&'static str>,
    start: usize,
    end: usize,
}

impl ChainChunk {
    /// Empties it, for rows of `writer`.
    pub fn begin(&mut self, writer: Uuid) {
        self.writer = writer;
        self.bytes.clear();
        self.rows.clear();
    }

    #[must_use]
    pub const fn len(&self) -> usize {
        self.rows.len()
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Adds a row. `record` has the values of its columns as they are; `None` where one is of
    /// another type than its field.
    pub fn push(&mut self, link: StoredLink<'_>, record: Option<&Record<'_>>) {
        let flaw = match record {
            None => Some("a column holds what was never written"),
            Some(record) if !record.is_clean() => Some("a text is longer than any written"),
            Some(_) => None,
        };
        self.add(link, flaw, |bytes| {
            if let Some(record) = record {
                record.encode(bytes);
            }
        });
    }

    /// Adds a row whose record was stored as it is encoded.
    pub fn push_encoded(&mut self, link: StoredLink<'_>, record: &[u8]) {
        self.add(link, None, |bytes| bytes.extend(record));
    }

    /// Adds a row as it is in a spool.
    pub(super) fn push_spooled(&mut self, link: &Link, record: &[u8]) {
        let (epoch, seq) = (Some(i64::from(link.epoch)), i64::try_from(link.seq).unwrap_or(0));
        self.push_encoded(StoredLink { epoch, seq, hash: Some(&link.hash) }, record);
    }

    fn add(
        &mut self,
        link: StoredLink<'_>,
        flaw: Option<&'static str>,
        encode: impl FnOnce(&mut Vec<u8>),
    ) {
        let epoch = link.epoch.and_then(|epoch| u32::try_from(epoch).ok());
        let seq = u64::try_from(link.seq).ok().filter(|seq| *seq > 0);
        let hash: Option<Hash> = link.hash.and_then(|hash| hash.try_into().ok());
        let flaw = match (epoch, seq, hash) {
            (None, ..) => Some("its epoch is none"),
            (_, None, _) => Some("its number is none"),
            (.., None) => Some("its hash is none"),
            _ => flaw,
        };
        let (epoch, seq) = (epoch.unwrap_or_default(), seq.unwrap_or_default());
        let start = self.bytes.len();
        let place = Link { writer: self.writer, epoch, seq, hash: [0; 32] };
        chain::begin(&place, &[0; 32], &mut self.bytes);
        encode(&mut self.bytes);
        self.rows.push(ChainRow { epoch, seq, hash, flaw, start, end: self.bytes.len() });
    }

    pub(super) fn rows(&self) -> &[ChainRow] {
        &self.rows
    }

    /// The hash that `row` has if it comes after one with the hash `previous`.
    pub(super) fn hash_after(&mut self, row: &ChainRow, previous: &Hash) -> Hash {
        let hashed = &mut self.bytes[row.start..row.end];
        hashed[PREVIOUS..RECORD].copy_from_slice(previous);
        chain::hash(hashed)
    }

    /// The entry's id and time, as far as they can be read.
    pub(super) fn entry(&self, row: &ChainRow) -> (Option<String>, Option<Timestamp>) {
        let Ok(record) = Record::decode(&self.bytes[row.start + RECORD..row.end]) else {
            return (None, None);
        };
        let time = record.get("time_micros").number();
        let time = time.and_then(|time| Timestamp::from_microsecond(time).ok());
        (record.get("id").text().map(str::to_owned), time)
    }
}
