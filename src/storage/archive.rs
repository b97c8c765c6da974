//! Files of rows that leave a store: JSON lines, compressed by gzip.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use aws_lc_rs::digest::{Context, SHA256};
use flate2::{Compression, write::GzEncoder};
use tokio::{
    sync::mpsc,
    task::{JoinHandle, spawn_blocking},
};

/// What is given to the thread that compresses, at once.
const CHUNK_BYTES: usize = 256 << 10;
/// Chunks that wait for it: so much memory is held.
const CHUNKS: usize = 4;

/// A file that is being written. It comes to be with [`Archive::finish`], whole or not at all.
pub(super) struct Archive {
    rows: i64,
    lines: Vec<u8>,
    chunks: mpsc::Sender<Chunk>,
    written: JoinHandle<io::Result<(PathBuf, Vec<u8>)>>,
}

enum Chunk {
    Lines(Vec<u8>),
    /// All is said: without it the file is given up.
    End,
}

/// A file that is there, and on the disk.
#[derive(Debug)]
pub(super) struct Archived {
    pub(super) path: PathBuf,
    /// SHA-256 of the file.
    pub(super) hash: Vec<u8>,
    pub(super) rows: i64,
}

impl Archive {
    /// `name.jsonl.gz` in `directory`, or where that is there `name.2.jsonl.gz` and so on.
    pub(super) fn create(directory: &Path, name: &str) -> Self {
        let (directory, name) = (directory.to_owned(), name.to_owned());
        let (chunks, inbox) = mpsc::channel(CHUNKS);
        let written = spawn_blocking(move || write(&directory, &name, inbox));
        Self { rows: 0, lines: Vec::with_capacity(CHUNK_BYTES), chunks, written }
    }

    /// Adds the line that `write` writes.
    pub(super) async fn add(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.lines);
        self.lines.push(b'\n');
        self.rows += 1;
        if self.lines.len() >= CHUNK_BYTES {
            let lines = std::mem::replace(&mut self.lines, Vec::with_capacity(CHUNK_BYTES));
            // Where the thread has ended, `finish` says why.
            let _ = self.chunks.send(Chunk::Lines(lines)).await;
        }
    }

    /// Waits until the file is on the disk.
    pub(super) async fn finish(self) -> io::Result<Archived> {
        for chunk in [Chunk::Lines(self.lines), Chunk::End] {
            let _ = self.chunks.send(chunk).await;
        }
        let (path, hash) = self.written.await??;
        Ok(Archived { path, hash, rows: self.rows })
    }
}

fn write(
    directory: &Path,
    name: &str,
    chunks: mpsc::Receiver<Chunk>,
) -> io::Result<(PathBuf, Vec<u8>)> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let part = directory.join(format!(".{name}.part"));
    let file =
        OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&part)?;
    let written = compress(file, chunks).and_then(|hash| {
        let path = free(directory, name)?;
        fs::rename(&part, &path)?;
        File::open(directory)?.sync_all()?;
        Ok((path, hash))
    });
    if written.is_err() {
        // What can't be removed is overwritten by the next.
        let _ = fs::remove_file(&part);
    }
    written
}

fn compress(file: File, mut chunks: mpsc::Receiver<Chunk>) -> io::Result<Vec<u8>> {
    let hashing = Hashing { file, context: Context::new(&SHA256) };
    let mut encoder = GzEncoder::new(hashing, Compression::default());
    loop {
        match chunks.blocking_recv() {
            Some(Chunk::Lines(lines)) => encoder.write_all(&lines)?,
            Some(Chunk::End) => break,
            None => return Err(io::Error::new(io::ErrorKind::Interrupted, "it was given up")),
        }
    }
    let Hashing { file, context } = encoder.finish()?;
    file.sync_all()?;
    Ok(context.finish().as_ref().to_vec())
}

/// A path where there is nothing: what was archived is never overwritten.
fn free(directory: &Path, name: &str) -> io::Result<PathBuf> {
    let first = std::iter::once(format!("{name}.jsonl.gz"));
    let mut names = first.chain((2_u32..).map(|number| format!("{name}.{number}.jsonl.gz")));
    loop {
        let path = directory.join(names.next().unwrap_or_default());
        if !fs::exists(&path)? {
            return Ok(path);
        }
    }
}

struct Hashing {
    file: File,
    context: Context,
}

impl Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.context.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
