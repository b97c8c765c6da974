//! The files that records wait in.
//!
//! A segment is a header (8 bytes of magic and version, the writer's 16, the epoch's 4, CRC32C of
//! those), then frames: the record's length (4), CRC32C of the rest (4), its number (8), its hash
//! (32), the record. All numbers are little-endian.

use uuid::Uuid;

use crate::audit::{MAX_RECORD_BYTES, chain::Link};

pub(super) const HEADER_BYTES: usize = 32;
const FRAME_BYTES: usize = 48;
/// No frame is longer.
pub(super) const MAX_FRAME_BYTES: usize = FRAME_BYTES + MAX_RECORD_BYTES;
const MAGIC: &[u8; 8] = b"TGAUDIT\x01";
const HEAD_MAGIC: &[u8; 8] = b"TGHEAD\0\x01";
const HEAD_BYTES: usize = 72;
const EXTENSION: &str = ".segment";

/// Who wrote a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub writer: Uuid,
    pub epoch: u32,
}

/// A record as it stands in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    pub seq: u64,
    pub hash: [u8; 32],
    pub record: &'a [u8],
    /// Of the whole frame.
    pub length: usize,
}

/// Why there is no frame at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameError {
    /// The bytes end before the frame does.
    Short,
    /// These bytes were never written as they are.
    Bad,
}

/// What a segment holds, as far as it can be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scan {
    pub header: Option<Header>,
    /// The last good record.
    pub last: Option<Link>,
    /// All up to here is good.
    pub good: usize,
    /// Behind what is bad something is good: so it is no write that was cut short.
    pub is_damaged: bool,
}

/// Names sort as their first records do.
pub(super) fn name(first: u64) -> String {
    format!("{first:020}{EXTENSION}")
}

/// The number of a segment's first record, or `None` where it is a file of another kind.
pub(super) fn first_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(EXTENSION)?;
    let is_ours = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_ours)
}

pub(super) fn header(header: Header) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..24].copy_from_slice(header.writer.as_bytes());
    bytes[24..28].copy_from_slice(&header.epoch.to_le_bytes());
    let check = crc32c::crc32c(&bytes[..28]);
    bytes[28..].copy_from_slice(&check.to_le_bytes());
    bytes
}

pub(super) fn read_header(bytes: &[u8]) -> Option<Header> {
    let (checked, rest) = bytes.split_first_chunk::<28>()?;
    let check = u32::from_le_bytes(*rest.first_chunk()?);
    let (magic, rest) = checked.split_first_chunk::<8>()?;
    let (writer, epoch) = rest.split_first_chunk::<16>()?;
    let is_sound = magic == MAGIC && crc32c::crc32c(checked) == check;
    let epoch = u32::from_le_bytes(*epoch.first_chunk()?);
    is_sound.then_some(Header { writer: Uuid::from_bytes(*writer), epoch })
}

/// Adds a frame.
pub(super) fn push_frame(link: &Link, record: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    // Records are bounded far below this.
    out.extend(u32::try_from(record.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend([0; 4]);
    out.extend(link.seq.to_le_bytes());
    out.extend(link.hash);
    out.extend(record);
    let check = crc32c::crc32c(&out[start + 8..]);
    out[start + 4..start + 8].copy_from_slice(&check.to_le_bytes());
}

/// The frame that `bytes` begin with.
pub fn read_frame(bytes: &[u8]) -> Result<Frame<'_>, FrameError> {
    let (length, rest) = bytes.split_first_chunk::<4>().ok_or(FrameError::Short)?;
    let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
    if length == 0 || length > MAX_RECORD_BYTES {
        return Err(FrameError::Bad);
    }
    let (check, rest) = rest.split_first_chunk::<4>().ok_or(FrameError::Short)?;
    let checked = rest.get(..40 + length).ok_or(FrameError::Short)?;
    if crc32c::crc32c(checked) != u32::from_le_bytes(*check) {
        return Err(FrameError::Bad);
    }
    let (seq, rest) = checked.split_first_chunk::<8>().ok_or(FrameError::Short)?;
    let (hash, record) = rest.split_first_chunk::<32>().ok_or(FrameError::Short)?;
    let seq = u64::from_le_bytes(*seq);
    Ok(Frame { seq, hash: *hash, record, length: FRAME_BYTES + length })
}

/// Are these frames, from the first byte to the last?
pub(super) fn is_whole(mut bytes: &[u8]) -> bool {
    while let Ok(frame) = read_frame(bytes) {
        bytes = &bytes[frame.length..];
    }
    bytes.is_empty()
}

/// Was it begun by a version that knows more than this one?
pub(super) fn is_newer(bytes: &[u8]) -> bool {
    [MAGIC, HEAD_MAGIC]
        .into_iter()
        .any(|magic| bytes.strip_prefix(&magic[..7]).and_then(<[u8]>::first) > Some(&magic[7]))
}

/// Reads a whole segment whose first record is number `first`.
#[must_use]
pub fn scan(bytes: &[u8], first: u64) -> Scan {
    let Some(header) = read_header(bytes) else {
        let is_damaged = bytes.len() >= HEADER_BYTES;
        return Scan { header: None, last: None, good: 0, is_damaged };
    };
    let (mut good, mut last, mut next) = (HEADER_BYTES, None, first);
    while let Ok(frame) = read_frame(&bytes[good..])
        && frame.seq == next
    {
        let Header { writer, epoch } = header;
        last = Some(Link { writer, epoch, seq: next, hash: frame.hash });
        good += frame.length;
        next = next.saturating_add(1);
    }
    let is_damaged = (good + 1..bytes.len()).any(|at| {
        // The number is looked at first: it costs next to nothing.
        let seq = bytes.get(at + 8..).and_then(|bytes| bytes.first_chunk());
        let seq = seq.map_or(0, |seq| u64::from_le_bytes(*seq));
        seq > next && seq - next < bytes.len() as u64 && read_frame(&bytes[at..]).is_ok()
    });
    Scan { header: Some(header), last, good, is_damaged }
}

/// The file that says where the chain ended, for when no segment is left to say it.
pub(super) fn head(link: &Link) -> [u8; HEAD_BYTES] {
    let mut bytes = [0; HEAD_BYTES];
    bytes[..8].copy_from_slice(HEAD_MAGIC);
    bytes[8..24].copy_from_slice(link.writer.as_bytes());
    bytes[24..28].copy_from_slice(&link.epoch.to_le_bytes());
    bytes[28..36].copy_from_slice(&link.seq.to_le_bytes());
    bytes[36..68].copy_from_slice(&link.hash);
    let check = crc32c::crc32c(&bytes[..68]);
    bytes[68..].copy_from_slice(&check.to_le_bytes());
    bytes
}

pub(super) fn read_head(bytes: &[u8]) -> Option<Link> {
    let bytes: &[u8; HEAD_BYTES] = bytes.try_into().ok()?;
    let (checked, check) = bytes.split_first_chunk::<68>()?;
    let (magic, rest) = checked.split_first_chunk::<8>()?;
    let (writer, rest) = rest.split_first_chunk::<16>()?;
    let (epoch, rest) = rest.split_first_chunk::<4>()?;
    let (seq, hash) = rest.split_first_chunk::<8>()?;
    let check = u32::from_le_bytes(*check.first_chunk()?);
    let is_sound = magic == HEAD_MAGIC && crc32c::crc32c(checked) == check;
    is_sound.then_some(Link {
        writer: Uuid::from_bytes(*writer),
        epoch: u32::from_le_bytes(*epoch),
        seq: u64::from_le_bytes(*seq),
        hash: *hash.first_chunk()?,
    })
}
