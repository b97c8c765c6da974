//! Looking at what waits in a spool, from beside the gateway that writes it.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Read as _},
    path::{Path, PathBuf},
};

use uuid::Uuid;

use super::{
    recovery::HEAD,
    segment::{self, HEADER_BYTES, Header},
};
use crate::audit::chain::Link;

/// Segments that are held open: as many as a spool of the usual size has, and far fewer than a process
/// may open.
const OPEN_SEGMENTS: usize = 256;

/// The segments that were there when it was opened. Nothing is locked and nothing changed: one that
/// is shipped meanwhile is gone, and what is being written may be seen in part.
#[derive(Debug)]
pub struct Waiting {
    directory: PathBuf,
    writer: Option<Uuid>,
    /// Oldest last. Held open, as far as that goes: what is shipped meanwhile can be read then.
    left: Vec<(u64, Option<File>)>,
    header: Option<Header>,
    bytes: Vec<u8>,
}

impl Waiting {
    /// Looks what is there. Blocks.
    pub fn open(directory: &Path) -> io::Result<Self> {
        let mut firsts = Vec::new();
        for entry in fs::read_dir(directory)? {
            firsts.extend(entry?.file_name().to_str().and_then(segment::first_of));
        }
        firsts.sort_unstable();
        let mut left = Vec::with_capacity(firsts.len());
        for (at, first) in firsts.iter().enumerate() {
            let path = directory.join(segment::name(*first));
            let file = if at < OPEN_SEGMENTS { unless_gone(File::open(path))? } else { None };
            left.push((*first, file));
        }
        left.reverse();
        let (directory, bytes) = (directory.to_owned(), Vec::new());
        let mut waiting = Self { directory, writer: None, left, header: None, bytes };
        let head = unless_gone(fs::read(waiting.directory.join(HEAD)))?;
        waiting.writer = head.and_then(|bytes| segment::read_head(&bytes)).map(|head| head.writer);
        for first in firsts {
            if waiting.writer.is_none() {
                let bytes = waiting.read(first)?.unwrap_or_default();
                waiting.writer = segment::read_header(&bytes).map(|header| header.writer);
            }
        }
        Ok(waiting)
    }

    /// Whose spool it is; `None` where nothing was ever written.
    #[must_use]
    pub const fn writer(&self) -> Option<Uuid> {
        self.writer
    }

    /// Reads the next segment, oldest first; false if there is none. Blocks.
    pub fn next_segment(&mut self) -> io::Result<bool> {
        while let Some((first, open)) = self.left.pop() {
            let bytes = match open {
                Some(mut file) => {
                    let mut bytes = Vec::new();
                    file.read_to_end(&mut bytes).map(|_| Some(bytes))?
                }
                None => self.read(first)?,
            };
            if let Some(bytes) = bytes {
                self.header = segment::read_header(&bytes);
                self.bytes = bytes;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The records of the segment that was read last, as far as they can be believed.
    pub fn records(&self) -> impl Iterator<Item = (Link, &[u8])> {
        let mut rest = self.bytes.get(HEADER_BYTES..).unwrap_or_default();
        let header = self.header;
        std::iter::from_fn(move || {
            let Header { writer, epoch } = header?;
            let frame = segment::read_frame(rest).ok()?;
            rest = &rest[frame.length..];
            Some((Link { writer, epoch, seq: frame.seq, hash: frame.hash }, frame.record))
        })
    }

    fn read(&self, first: u64) -> io::Result<Option<Vec<u8>>> {
        unless_gone(fs::read(self.directory.join(segment::name(first))))
    }
}

fn unless_gone<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
