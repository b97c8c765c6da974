//! Reading requests, as plainly as HTTP/1.1 allows.

use std::{fmt, io, time::Instant};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

/// No test sends a longer head than this.
const MAX_HEAD_BYTES: usize = 1 << 20;

/// A request as it came.
#[derive(Clone)]
pub struct Recorded {
    pub method: String,
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
    /// When its last byte was read.
    pub at: Instant,
}

impl Recorded {
    /// The one header of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(header, _)| header == name);
        let (_, value) = values.next()?;
        assert!(values.next().is_none(), "`{name}` came twice");
        Some(value)
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// Does this text stand anywhere in the request? For secrets that must not leave.
    pub fn contains(&self, text: &str) -> bool {
        let mut heads = self.headers.iter().flat_map(|(name, value)| [name, value]);
        self.path.contains(text)
            || heads.any(|part| part.contains(text))
            || memchr::memmem::find(&self.body, text.as_bytes()).is_some()
    }

    pub(super) fn wants_close(&self) -> bool {
        self.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }
}

impl fmt::Debug for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {}", self.method, self.path)?;
        for (name, value) in &self.headers {
            writeln!(f, "{name}: {value}")?;
        }
        write!(f, "\n{}", String::from_utf8_lossy(&self.body))
    }
}

/// The next request of a connection; `None` if the client closed it between two. `buffer` holds
/// what came beyond the one before.
pub async fn read(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut BytesMut,
) -> io::Result<Option<Recorded>> {
    let head = loop {
        if let Some(end) = memchr::memmem::find(buffer, b"\r\n\r\n") {
            break buffer.split_to(end + 4);
        }
        if buffer.len() > MAX_HEAD_BYTES {
            return Err(malformed("an endless head"));
        }
        let was_empty = buffer.is_empty();
        match more(stream, buffer).await {
            Err(error) if was_empty && error.kind() == io::ErrorKind::UnexpectedEof => {
                return Ok(None);
            }
            read => read?,
        }
    };
    let text = std::str::from_utf8(&head).map_err(|_| malformed("the head is not UTF-8"))?;
    let mut lines = text.split_terminator("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ').map(str::to_owned);
    let (Some(method), Some(path)) = (words.next(), words.next()) else {
        return Err(malformed("the request line"));
    };
    let headers = lines.filter_map(|line| line.split_once(':'));
    let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()));
    let mut request = Recorded {
        method,
        path,
        headers: headers.collect(),
        body: Bytes::new(),
        at: Instant::now(),
    };
    request.body = match (request.header("transfer-encoding"), request.header("content-length")) {
        (Some(_), _) => read_chunks(stream, buffer).await?,
        (None, Some(length)) => {
            let length = length.parse().map_err(|_| malformed("the content length"))?;
            take(stream, buffer, length).await?
        }
        (None, None) => Bytes::new(),
    };
    request.at = Instant::now();
    Ok(Some(request))
}

async fn read_chunks(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut BytesMut,
) -> io::Result<Bytes> {
    let mut body = BytesMut::new();
    loop {
        let end = loop {
            match memchr::memmem::find(buffer, b"\r\n") {
                Some(end) => break end,
                None => more(stream, buffer).await?,
            }
        };
        let line = buffer.split_to(end);
        buffer.advance(2);
        let size = std::str::from_utf8(&line).ok().and_then(|line| line.split(';').next());
        let size = size.and_then(|size| usize::from_str_radix(size.trim(), 16).ok());
        let size = size.ok_or_else(|| malformed("a chunk's size"))?;
        body.extend_from_slice(&take(stream, buffer, size).await?);
        // Trailers are not expected: the empty line follows the last chunk too.
        take(stream, buffer, 2).await?;
        if size == 0 {
            return Ok(body.freeze());
        }
    }
}

async fn take(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut BytesMut,
    length: usize,
) -> io::Result<Bytes> {
    while buffer.len() < length {
        more(stream, buffer).await?;
    }
    Ok(buffer.split_to(length).freeze())
}

async fn more(stream: &mut (impl AsyncRead + Unpin), buffer: &mut BytesMut) -> io::Result<()> {
    match stream.read_buf(buffer).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
