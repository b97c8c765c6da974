//! A place among entries.

use std::{fmt, str::FromStr};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

use crate::audit::StoredEntry;

/// An entry's place in its store. Opaque to clients, as what it is compared by is the store's affair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    pub time_micros: i64,
    pub seq: i64,
}

impl From<&StoredEntry> for Cursor {
    fn from(entry: &StoredEntry) -> Self {
        Self { time_micros: entry.time.as_microsecond(), seq: entry.seq }
    }
}

/// The text is no cursor of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("give a page's `next_cursor` as it is")]
pub struct InvalidCursor;

const VERSION: u8 = 1;
const BYTES: usize = 17;

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = [VERSION; BYTES];
        bytes[1..9].copy_from_slice(&self.time_micros.to_be_bytes());
        bytes[9..].copy_from_slice(&self.seq.to_be_bytes());
        f.write_str(&URL_SAFE_NO_PAD.encode(bytes))
    }
}

impl FromStr for Cursor {
    type Err = InvalidCursor;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bytes = [0; BYTES];
        let length = URL_SAFE_NO_PAD.decode_slice(text, &mut bytes).map_err(|_| InvalidCursor)?;
        let [VERSION, rest @ ..] = bytes else { return Err(InvalidCursor) };
        let (time, seq) = rest.split_first_chunk::<8>().ok_or(InvalidCursor)?;
        let seq = seq.first_chunk::<8>().filter(|_| length == BYTES).ok_or(InvalidCursor)?;
        Ok(Self { time_micros: i64::from_be_bytes(*time), seq: i64::from_be_bytes(*seq) })
    }
}
