//! Finding out, at the start, what is there.

use std::{collections::HashMap, io};

use uuid::Uuid;

use super::{
    Disk, SpoolError, keep_aside,
    segment::{self, HEADER_BYTES},
    state::Segment,
};
use crate::audit::chain::Link;

/// Where the chain ended when no segment is left.
pub(super) const HEAD: &str = "head";

/// What is to be gone on with.
#[derive(Debug)]
pub(super) struct Recovered {
    /// Oldest first; each holds something.
    pub(super) segments: Vec<Segment>,
    /// The chain's end, its epoch already that of this start.
    pub(super) last: Link,
    /// The chain's end as it was written.
    pub(super) head: Link,
}

pub(super) fn recover(disk: &dyn Disk) -> Result<Recovered, SpoolError> {
    let listed = disk.list().map_err(|source| failed(".", source))?;
    let lengths: HashMap<String, u64> = listed.into_iter().collect();
    let mut firsts: Vec<u64> = lengths.keys().filter_map(|name| segment::first_of(name)).collect();
    firsts.sort_unstable();

    let head = match lengths.get(HEAD) {
        Some(length) => read_head(disk, *length).map_err(|source| failed(HEAD, source))?,
        None => None,
    };
    let (mut last, mut epoch) = (head, head.map_or(0, |link| link.epoch));
    let mut segments = Vec::with_capacity(firsts.len());
    for (index, first) in firsts.iter().enumerate() {
        let name = segment::name(*first);
        let length = lengths.get(&name).copied().unwrap_or_default();
        let found = Found { first: *first, length, is_last: index + 1 == firsts.len() };
        let found = found.recover(disk, &name).map_err(|source| failed(&name, source))?;
        let Some((segment, end)) = found else { continue };
        epoch = epoch.max(end.epoch);
        if let Some(Segment { last: before, .. }) = segments.last()
            && before.seq.saturating_add(1) < *first
        {
            let (from, to) = (before.seq + 1, first - 1);
            tracing::error!(from, to, "records are missing from the audit spool");
        }
        if last.is_none_or(|link| link.seq < end.seq) {
            last = Some(end);
        }
        segments.push(segment);
    }
    let head = last.unwrap_or_else(|| Link::origin(Uuid::now_v7()));
    Ok(Recovered { segments, last: Link { epoch: epoch.saturating_add(1), ..head }, head })
}

fn failed(file: &str, source: io::Error) -> SpoolError {
    SpoolError::Recover { file: file.to_owned(), source }
}

fn read_head(disk: &dyn Disk, length: u64) -> io::Result<Option<Link>> {
    let bytes = read_all(disk, HEAD, length)?;
    refuse_newer(&bytes)?;
    let head = segment::read_head(&bytes);
    if head.is_none() {
        keep_aside(disk, HEAD, &bytes)?;
    }
    Ok(head)
}

fn read_all(disk: &dyn Disk, name: &str, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = usize::try_from(length).map_err(io::Error::other)?;
    disk.read(name, 0, most, &mut bytes)?;
    Ok(bytes)
}

fn refuse_newer(bytes: &[u8]) -> io::Result<()> {
    if segment::is_newer(bytes) {
        let newer = "it was written by a newer tollgate: start that one, and it ships what waits";
        return Err(io::Error::new(io::ErrorKind::Unsupported, newer));
    }
    Ok(())
}

/// A segment that is there.
struct Found {
    first: u64,
    length: u64,
    is_last: bool,
}

impl Found {
    /// Cuts it back to what can be believed; `None` if that is nothing.
    fn recover(&self, disk: &dyn Disk, name: &str) -> io::Result<Option<(Segment, Link)>> {
        let bytes = read_all(disk, name, self.length)?;
        refuse_newer(&bytes)?;
        let scan = segment::scan(&bytes, self.first);
        if scan.good < bytes.len() {
            let bad = &bytes[scan.good..];
            if self.is_last && !scan.is_damaged {
                // The crash that ended the last run came in the middle of a write.
                tracing::warn!(segment = name, bytes = bad.len(), "a torn write is cut off");
            } else {
                keep_aside(disk, name, bad)?;
            }
        }
        let Some(last) = scan.last else {
            disk.remove(name)?;
            return Ok(None);
        };
        let good = scan.good.max(HEADER_BYTES) as u64;
        if good < self.length {
            disk.truncate(name, good)?;
        }
        if self.is_last || good < self.length {
            // What the last run wrote may be in memory only, and what is shipped must not be.
            disk.sync(name)?;
        }
        let segment = Segment { first: self.first, last, bytes: good };
        Ok(Some((segment, last)))
    }
}
