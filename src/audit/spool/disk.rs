//! The few things that the spool asks of a disk, so that tests can take one that fails.

use std::{
    fmt,
    fs::{DirBuilder, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use super::SpoolError;

/// The file whose lock says that the directory is in use. It stays; its lock goes with the process.
const LOCK: &str = "lock";
/// What `replace` writes before it takes the other's place.
const NEW: &str = "new";

/// One directory of files. Every method blocks.
///
/// After a failed `append` the file may hold any part of what was to be added; after a failed
/// `create` it may be there in part.
pub trait Disk: fmt::Debug + Send + Sync {
    /// Every file's name and length in bytes.
    fn list(&self) -> io::Result<Vec<(String, u64)>>;
    /// Adds to `into` what the file has from `at` on, `most` bytes at most.
    fn read(&self, name: &str, at: u64, most: usize, into: &mut Vec<u8>) -> io::Result<()>;
    /// Makes a file that was not there. It survives a loss of power.
    fn create(&self, name: &str, bytes: &[u8]) -> io::Result<()>;
    /// Adds to the end of the file, which is at `at`. It survives the end of the process.
    fn append(&self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Writes once more what the file has at `at`.
    fn rewrite(&self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Cuts the file to `length` bytes.
    fn truncate(&self, name: &str, length: u64) -> io::Result<()>;
    /// What was appended before survives a loss of power.
    fn sync(&self, name: &str) -> io::Result<()>;
    /// Makes the file anew: after a crash it is the old one or the new one. It survives a loss of
    /// power.
    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()>;
    fn remove(&self, name: &str) -> io::Result<()>;
}

/// A directory of the file system, this process's alone.
#[derive(Debug)]
pub struct DirectoryDisk {
    directory: PathBuf,
    /// The segment that is appended to, kept open.
    active: Mutex<Option<(String, Arc<File>)>>,
    /// Holds the lock.
    _lock: File,
}

impl DirectoryDisk {
    /// Makes the directory as needed, readable by its owner alone, and locks it.
    pub fn open(directory: &Path) -> Result<Self, SpoolError> {
        let failed = |source| SpoolError::Open { path: directory.to_owned(), source };
        make(directory).map_err(failed)?;
        let lock = options().create(true).truncate(false).open(directory.join(LOCK));
        let lock = lock.map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(SpoolError::Locked { path: directory.to_owned() });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        Ok(Self { directory: directory.to_owned(), active: Mutex::new(None), _lock: lock })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The file, open for writing; the one asked for last stays open.
    fn file(&self, name: &str) -> io::Result<Arc<File>> {
        let mut active = self.active.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((open, file)) = &*active
            && open == name
        {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(options().open(self.path(name))?);
        *active = Some((name.to_owned(), Arc::clone(&file)));
        Ok(file)
    }

    fn forget(&self, name: &str) {
        let mut active = self.active.lock().unwrap_or_else(PoisonError::into_inner);
        active.take_if(|(open, _)| open == name);
    }

    /// Names that came or went survive a loss of power.
    fn sync_directory(&self) -> io::Result<()> {
        File::open(&self.directory)?.sync_all()
    }

    fn write_new(&self, name: &str, bytes: &[u8], options: &OpenOptions) -> io::Result<()> {
        let file = options.open(self.path(name))?;
        file.write_all_at(bytes, 0)?;
        file.sync_all()
    }
}

/// Makes it and what is above it. What was made survives a loss of power.
fn make(directory: &Path) -> io::Result<()> {
    let missing: Vec<_> = directory.ancestors().take_while(|path| !path.exists()).collect();
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    for path in missing {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
    }
    Ok(())
}

/// For writing, and where a file is made, for its owner alone.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

impl Disk for DirectoryDisk {
    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let mut files = Vec::new();
        for entry in self.directory.read_dir()? {
            let entry = entry?;
            // A name that is not text is not one of ours.
            if let Ok(name) = entry.file_name().into_string() {
                files.push((name, entry.metadata()?.len()));
            }
        }
        Ok(files)
    }

    fn read(&self, name: &str, at: u64, most: usize, into: &mut Vec<u8>) -> io::Result<()> {
        let file = File::open(self.path(name))?;
        let start = into.len();
        let there = usize::try_from(file.metadata()?.len().saturating_sub(at)).unwrap_or(most);
        into.resize(start + most.min(there), 0);
        let read = file.read_exact_at(&mut into[start..], at);
        read.inspect_err(|_| into.truncate(start))
    }

    fn create(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.forget(name);
        self.write_new(name, bytes, options().create_new(true))?;
        self.sync_directory()
    }

    fn append(&self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file(name)?.write_all_at(bytes, at)
    }

    fn rewrite(&self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.append(name, at, bytes)
    }

    fn truncate(&self, name: &str, length: u64) -> io::Result<()> {
        self.file(name)?.set_len(length)
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        let file = self.file(name)?;
        file.sync_data()?;
        // It could be written to for ever, and nobody would find it.
        if file.metadata()?.nlink() == 0 {
            let gone = format!("{name} was deleted while it was written to: restart tollgate");
            return Err(io::Error::other(gone));
        }
        Ok(())
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.write_new(NEW, bytes, options().create(true).truncate(true))?;
        std::fs::rename(self.path(NEW), self.path(name))?;
        self.sync_directory()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.forget(name);
        std::fs::remove_file(self.path(name))
    }
}
