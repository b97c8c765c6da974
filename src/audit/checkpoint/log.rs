//! Where checkpoints go: a file that is only ever added to, or stdout.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use super::{Checkpoint, CheckpointKey, Head, MAX_LINE_BYTES};
use crate::config::{AuditConfig, CheckpointTarget};

/// How much of a log's end is looked through for the last checkpoint.
const TAIL_BYTES: usize = 4 * MAX_LINE_BYTES;

/// The log can't be used as it is.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("can't open {}: {source}", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("{} is in use by another tollgate: give each one a file of its own", path.display())]
    Locked { path: PathBuf },
}

/// The log of one gateway: it goes on from the last checkpoint that is in it.
#[derive(Debug)]
pub struct CheckpointLog {
    target: Target,
    last: Option<Checkpoint>,
}

#[derive(Debug)]
enum Target {
    File(LogFile),
    /// Nothing can be read back from there, so the last line is kept in a file.
    Stdout {
        kept: PathBuf,
    },
}

impl CheckpointLog {
    /// Opens what the configuration names. Blocks.
    pub fn of(config: &AuditConfig) -> Result<Self, LogError> {
        match config.checkpoints() {
            CheckpointTarget::File(path) => Self::open(&path),
            CheckpointTarget::Stdout => Self::stdout(config.beside("checkpoint.last")),
        }
    }

    /// Makes the file, readable by its owner alone, if there is none; cuts off a last line that a
    /// crash has torn. Blocks.
    pub fn open(path: &Path) -> Result<Self, LogError> {
        let (file, last) = LogFile::open(path)?;
        Ok(Self { target: Target::File(file), last })
    }

    /// Lines go to stdout; `kept` has the last one, for the next start.
    pub fn stdout(kept: PathBuf) -> Result<Self, LogError> {
        let last = match fs::read_to_string(&kept) {
            Ok(text) => parse_last(&kept, &text),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(source) => return Err(LogError::Open { path: kept, source }),
        };
        Ok(Self { target: Target::Stdout { kept }, last })
    }

    /// The last checkpoint.
    #[must_use]
    pub const fn last(&self) -> Option<&Checkpoint> {
        self.last.as_ref()
    }

    /// Signs the next checkpoint and adds it; on a disk it survives a loss of power then. Blocks.
    ///
    /// # Errors
    /// What the disk said; the next one takes its number then.
    pub fn add(&mut self, key: &CheckpointKey, heads: Vec<Head>) -> io::Result<&Checkpoint> {
        let last = self.last.as_ref().map(|last| (last.number, last.hash()));
        let checkpoint = Checkpoint::sign(key, last, heads);
        let line = checkpoint.to_line() + "\n";
        match &mut self.target {
            Target::File(file) => file.append(line.as_bytes())?,
            Target::Stdout { kept } => {
                let mut out = io::stdout().lock();
                out.write_all(line.as_bytes()).and_then(|()| out.flush())?;
                replace(kept, line.as_bytes())?;
            }
        }
        Ok(self.last.insert(checkpoint))
    }
}

#[derive(Debug)]
struct LogFile {
    path: PathBuf,
    /// Holds the lock.
    file: File,
    /// Its length up to the last whole line.
    length: u64,
}

impl LogFile {
    fn open(path: &Path) -> Result<(Self, Option<Checkpoint>), LogError> {
        let failed = |source| LogError::Open { path: path.to_owned(), source };
        let mut file = open_or_make(path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(LogError::Locked { path: path.to_owned() });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        let (length, last) = recover(path, &mut file).map_err(failed)?;
        Ok((Self { path: path.to_owned(), file, length }, last))
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        self.look()?;
        let written = self.file.write_all(line).and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            // If it can't be taken back now, it is before the next.
            let _ = self.file.set_len(self.length);
            return Err(error);
        }
        self.length += line.len() as u64;
        Ok(())
    }

    /// Is it still the file that it was? Whoever moves or cuts it is told on.
    fn look(&mut self) -> io::Result<()> {
        let ours = self.file.metadata()?;
        let is_there = match fs::metadata(&self.path) {
            Ok(there) => (there.dev(), there.ino()) == (ours.dev(), ours.ino()),
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        if !is_there {
            let path = self.path.display();
            tracing::error!(%path, "the checkpoints' file was moved or removed: going on in a new one");
            self.file = open_or_make(&self.path)?;
            // Against another tollgate's start; nobody else has it.
            let _ = self.file.try_lock();
            self.length = self.file.metadata()?.len();
        } else if ours.len() > self.length {
            // What a failed write has left; or, should somebody else have written, theirs.
            self.file.set_len(self.length)?;
        } else if ours.len() < self.length {
            let path = self.path.display();
            tracing::error!(%path, "checkpoints were removed from their file");
            self.length = ours.len();
        }
        Ok(())
    }
}

fn open_or_make(path: &Path) -> io::Result<File> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent {
        DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    let file = OpenOptions::new().create(true).append(true).read(true).mode(0o600).open(path)?;
    // Its name survives a loss of power.
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(file)
}

/// Cuts off a torn last line. Returns the length then, and the last checkpoint.
fn recover(path: &Path, file: &mut File) -> io::Result<(u64, Option<Checkpoint>)> {
    let length = file.metadata()?.len();
    let start = length.saturating_sub(TAIL_BYTES as u64);
    file.seek(SeekFrom::Start(start))?;
    let mut tail = Vec::new();
    file.take(TAIL_BYTES as u64).read_to_end(&mut tail)?;
    let whole = memchr::memrchr(b'\n', &tail).map_or(0, |end| end + 1);
    let torn = tail.len() - whole;
    if torn == 0 {
        return Ok((length, parse_last(path, &String::from_utf8_lossy(&tail))));
    }
    if torn > MAX_LINE_BYTES {
        // No line of ours, so it is not ours to remove.
        file.write_all(b"\n")?;
        tracing::error!(path = %path.display(), "the checkpoints' file ends in something else");
        return Ok((length + 1, parse_last(path, &String::from_utf8_lossy(&tail[..whole]))));
    }
    tracing::warn!(path = %path.display(), bytes = torn, "a torn checkpoint is cut off");
    let length = length - torn as u64;
    file.set_len(length)?;
    file.sync_data()?;
    Ok((length, parse_last(path, &String::from_utf8_lossy(&tail[..whole]))))
}

/// The last line that is a checkpoint. Others stay: verifying names them.
fn parse_last(path: &Path, text: &str) -> Option<Checkpoint> {
    for line in text.lines().rev() {
        match Checkpoint::parse(line) {
            Ok(checkpoint) => return Some(checkpoint),
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "the log of checkpoints is damaged");
            }
        }
    }
    None
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let draft = path.with_extension("new");
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(draft, path)
}
