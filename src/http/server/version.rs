//! Which HTTP a cleartext connection speaks, as its first bytes say.

use std::{io, time::Duration};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// What an HTTP/2 client sends first (RFC 9113 §3.4); no HTTP/1 request begins so.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Most requests come whole in the first read.
const FIRST_READ_BYTES: usize = 2_048;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HttpVersion {
    Http1,
    Http2,
}

/// Reads until it is plain which one it is. The bytes are to be read again.
///
/// # Errors
/// The connection ended or broke before that, or `within` is over.
pub(super) async fn tell_version(
    stream: &mut (impl AsyncRead + Unpin),
    within: Duration,
) -> io::Result<(HttpVersion, Bytes)> {
    let mut first = BytesMut::with_capacity(FIRST_READ_BYTES);
    let told = tokio::time::timeout(within, async {
        loop {
            if stream.read_buf(&mut first).await? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
            }
            let seen = first.len().min(HTTP2_PREFACE.len());
            if first[..seen] != HTTP2_PREFACE[..seen] {
                return Ok(HttpVersion::Http1);
            }
            if seen == HTTP2_PREFACE.len() {
                return Ok(HttpVersion::Http2);
            }
        }
    });
    let version = told.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    Ok((version, first.freeze()))
}

/// Moves what fits of `first` into `buffer`.
pub(super) fn read_again(first: &mut Bytes, buffer: &mut tokio::io::ReadBuf<'_>) {
    let size = first.len().min(buffer.remaining());
    buffer.put_slice(&first[..size]);
    first.advance(size);
    if first.is_empty() {
        // An empty slice would still hold the allocation.
        *first = Bytes::new();
    }
}
