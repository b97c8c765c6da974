//! The binary format of COPY, which brings rows with the least work on either side.
//!
//! <https://www.postgresql.org/docs/current/sql-copy.html#SQL-COPY-FILE-FORMATS>

/// What the stream begins with, before flags (4 bytes) and the length of what else there is (4).
const SIGNATURE: &[u8; 11] = b"PGCOPY\n\xff\r\n\0";

/// The server sends something else than rows of so many columns.
#[derive(Debug, thiserror::Error)]
#[error("Postgres sent rows in another form than was asked for")]
pub(super) struct CopyError;

/// Takes rows of `N` columns out of pieces of a stream.
#[derive(Debug, Default)]
pub(super) struct Rows<const N: usize> {
    bytes: Vec<u8>,
    /// Up to where rows were taken.
    at: usize,
    has_begun: bool,
}

impl<const N: usize> Rows<N> {
    pub(super) fn push(&mut self, piece: &[u8]) {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend(piece);
    }

    /// The next row, once all of it is there. A column that is null is `None`.
    pub(super) fn next(&mut self) -> Result<Option<[Option<&[u8]>; N]>, CopyError> {
        if !self.has_begun && !self.begin()? {
            return Ok(None);
        }
        let mut row = [None; N];
        let mut rest = &self.bytes[self.at..];
        let Some(columns) = take(&mut rest) else { return Ok(None) };
        match i16::from_be_bytes(columns) {
            // The end.
            -1 => return Ok(None),
            columns if usize::try_from(columns) == Ok(N) => {}
            _ => return Err(CopyError),
        }
        for column in &mut row {
            let Some(length) = take(&mut rest) else { return Ok(None) };
            let length = i32::from_be_bytes(length);
            if length == -1 {
                continue;
            }
            let length = usize::try_from(length).map_err(|_| CopyError)?;
            let Some((value, after)) = rest.split_at_checked(length) else { return Ok(None) };
            (*column, rest) = (Some(value), after);
        }
        self.at = self.bytes.len() - rest.len();
        Ok(Some(row))
    }

    fn begin(&mut self) -> Result<bool, CopyError> {
        let mut rest = &self.bytes[self.at..];
        let Some(signature) = take(&mut rest) else { return Ok(false) };
        if &signature != SIGNATURE {
            return Err(CopyError);
        }
        let (Some(_flags), Some(length)) = (take::<4>(&mut rest), take(&mut rest)) else {
            return Ok(false);
        };
        let Some(rest) = rest.get(u32::from_be_bytes(length) as usize..) else { return Ok(false) };
        self.at = self.bytes.len() - rest.len();
        self.has_begun = true;
        Ok(true)
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*taken)
}
