//! A disk in memory that fails when told, and forgets what was not synced when the power goes.

use std::{
    collections::{BTreeMap, HashSet},
    io,
    sync::{Condvar, Mutex, MutexGuard},
    thread::{self, ThreadId},
};

use tollgate::audit::spool::Disk;

const BLOCK_BYTES: usize = 4_096;

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing happens.
    Before,
    /// This share of it happens, in 256ths.
    Midway(u8),
    /// All of it happens, and yet it fails.
    After,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Health {
    #[default]
    Sound,
    /// Syncs fail.
    Unsyncable,
    /// Every call fails.
    Broken,
}

#[derive(Debug, Clone, Default)]
struct File {
    bytes: Vec<u8>,
    /// What a loss of power leaves at least.
    durable: Vec<u8>,
    /// Up to here a sync that failed was to make it durable: the next one takes that for done, though
    /// it is not, unless it is written again.
    thought_clean: usize,
    /// Up to here it was written again since.
    rewritten: usize,
}

impl File {
    /// Made and synced.
    fn new(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), durable: bytes.to_vec(), thought_clean: 0, rewritten: 0 }
    }

    fn sync(&mut self) {
        let kept = self.durable.len().max(std::mem::take(&mut self.rewritten));
        let lost = kept..self.thought_clean.min(self.bytes.len());
        let mut bytes = self.bytes.clone();
        if !lost.is_empty() {
            bytes[lost].fill(0);
        }
        self.durable = bytes;
    }

    fn blocks(&self) -> usize {
        self.bytes.len().div_ceil(BLOCK_BYTES)
    }
}

#[derive(Debug, Default)]
struct Files {
    by_name: BTreeMap<String, File>,
    /// The faults of the calls to come, those to be sound among them.
    faults: Vec<Option<Fault>>,
    health: Health,
    /// How many blocks there are, if that is few.
    capacity: Option<usize>,
    /// Appends wait, and syncs.
    is_hanging: bool,
    is_sync_hanging: bool,
    /// How many appends were begun, and how many syncs.
    appends: usize,
    syncs: usize,
    /// Who has called.
    callers: HashSet<ThreadId>,
}

impl Files {
    /// What is to become of the next call.
    fn fault(&mut self) -> io::Result<Option<Fault>> {
        if self.health == Health::Broken {
            return Err(io::Error::other("the disk was told to fail"));
        }
        Ok(if self.faults.is_empty() { None } else { self.faults.remove(0) })
    }

    /// How many more bytes a file of `length` has room for.
    fn room(&self, length: usize) -> usize {
        let Some(capacity) = self.capacity else { return usize::MAX };
        let used: usize = self.by_name.values().map(File::blocks).sum();
        capacity.saturating_sub(used) * BLOCK_BYTES + length.next_multiple_of(BLOCK_BYTES) - length
    }

    fn file(&mut self, name: &str) -> io::Result<&mut File> {
        self.by_name.get_mut(name).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

#[derive(Debug, Default)]
pub struct FakeDisk {
    files: Mutex<Files>,
    gate: Condvar,
}

/// How much of `length` happens, and what is said of it.
fn happens(fault: Option<Fault>, length: usize) -> (usize, io::Result<()>) {
    let failed = || Err(io::Error::other("told to fail"));
    match fault {
        None => (length, Ok(())),
        Some(Fault::Before) => (0, failed()),
        Some(Fault::Midway(share)) => (length * usize::from(share) / 256, failed()),
        Some(Fault::After) => (length, failed()),
    }
}

fn no_room<T>() -> io::Result<T> {
    Err(io::ErrorKind::StorageFull.into())
}

impl FakeDisk {
    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap()
    }

    /// As [`Self::files`], for the disk's user.
    fn called(&self) -> MutexGuard<'_, Files> {
        let mut files = self.files();
        files.callers.insert(thread::current().id());
        files
    }

    /// From now on so many blocks of 4 KiB are there, as `None` as many as may be.
    pub fn set_capacity(&self, blocks: Option<usize>) {
        self.files().capacity = blocks;
    }

    /// The threads that have called it since they were asked for last.
    pub fn take_callers(&self) -> HashSet<ThreadId> {
        std::mem::take(&mut self.files().callers)
    }

    pub fn syncs(&self) -> usize {
        self.files().syncs
    }

    /// The calls to come fail so.
    pub fn plan(&self, faults: Vec<Option<Fault>>) {
        self.files().faults = faults;
    }

    pub fn set_broken(&self, is_broken: bool) {
        self.files().health = if is_broken { Health::Broken } else { Health::Sound };
    }

    pub fn set_unsyncable(&self, is_unsyncable: bool) {
        self.files().health = if is_unsyncable { Health::Unsyncable } else { Health::Sound };
    }

    /// The process is killed: from now on nothing is written.
    pub fn kill(&self) {
        self.set_broken(true);
    }

    /// The power goes: of what was not synced `kept` 256ths stay, with zeros in the place of some.
    pub fn lose_power(&self, kept: u8, zeros: bool) {
        let mut files = self.files();
        files.health = Health::Broken;
        for file in files.by_name.values_mut() {
            let durable = file.durable.len();
            let share = |length: usize| length * usize::from(kept) / 256;
            if file.bytes.len() > durable {
                let length = durable + share(file.bytes.len() - durable);
                file.bytes.truncate(length);
                if zeros {
                    file.bytes[durable..durable + (length - durable) / 2].fill(0);
                }
            } else {
                file.bytes = file.durable.clone();
            }
        }
    }

    /// The machine is there again, and nothing fails.
    pub fn start(&self) {
        let mut files = self.files();
        files.health = Health::Sound;
        files.faults.clear();
        for file in files.by_name.values_mut() {
            *file = File::new(&file.bytes);
        }
    }

    pub fn names(&self) -> Vec<String> {
        self.files().by_name.keys().cloned().collect()
    }

    /// Appends wait from now on, or no longer.
    pub fn set_hanging(&self, is_hanging: bool) {
        self.files().is_hanging = is_hanging;
        self.gate.notify_all();
    }

    /// Syncs wait from now on, or no longer.
    pub fn set_sync_hanging(&self, is_hanging: bool) {
        self.files().is_sync_hanging = is_hanging;
        self.gate.notify_all();
    }

    /// Would a loss of power lose anything?
    pub fn is_dirty(&self) -> bool {
        self.files().by_name.values().any(|file| file.durable != file.bytes)
    }

    /// How many appends were begun.
    pub fn appends(&self) -> usize {
        self.files().appends
    }

    /// A disk with the same files, as the next process would find it after a kill -9.
    pub fn copy(&self) -> Self {
        let files = Files { by_name: self.files().by_name.clone(), ..Files::default() };
        Self { files: Mutex::new(files), gate: Condvar::new() }
    }

    pub fn bytes_of(&self, name: &str) -> Vec<u8> {
        self.files().by_name[name].bytes.clone()
    }

    /// Changes a file behind the spool's back.
    pub fn tamper(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut files = self.files();
        let file = files.file(name).unwrap();
        change(&mut file.bytes);
        *file = File::new(&file.bytes);
    }
}

impl Disk for FakeDisk {
    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let mut files = self.called();
        if files.fault()?.is_some() {
            return Err(io::Error::other("told to fail"));
        }
        Ok(files
            .by_name
            .iter()
            .map(|(name, file)| (name.clone(), file.bytes.len() as u64))
            .collect())
    }

    fn read(&self, name: &str, at: u64, most: usize, into: &mut Vec<u8>) -> io::Result<()> {
        let mut files = self.called();
        if files.fault()?.is_some() {
            return Err(io::Error::other("told to fail"));
        }
        let at = usize::try_from(at).unwrap();
        into.extend(files.file(name)?.bytes.iter().skip(at).take(most));
        Ok(())
    }

    fn create(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut files = self.called();
        let fault = files.fault()?;
        if files.by_name.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if fault == Some(Fault::Before) {
            return Err(io::Error::other("told to fail"));
        }
        let (length, said) = happens(fault, bytes.len());
        let length = length.min(files.room(0));
        files.by_name.insert(name.to_owned(), File::new(&bytes[..length]));
        said.and_then(|()| if length < bytes.len() { no_room() } else { Ok(()) })
    }

    fn append(&self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut files = self.called();
        files.appends += 1;
        let mut files = self.gate.wait_while(files, |files| files.is_hanging).unwrap();
        let (length, said) = happens(files.fault()?, bytes.len());
        let before = files.file(name)?.bytes.len();
        assert_eq!(before as u64, at, "what is appended goes to the end");
        let length = length.min(files.room(before));
        files.file(name)?.bytes.extend(&bytes[..length]);
        said.and_then(|()| if length < bytes.len() { no_room() } else { Ok(()) })
    }

    fn rewrite(&self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut files = self.called();
        let (length, said) = happens(files.fault()?, bytes.len());
        let (file, at) = (files.file(name)?, usize::try_from(at).unwrap());
        assert_eq!(file.bytes[at..at + bytes.len()], *bytes, "what is written is there already");
        if at <= file.durable.len().max(file.rewritten) {
            file.rewritten = file.rewritten.max(at + length);
        }
        if file.rewritten >= file.thought_clean {
            file.thought_clean = 0;
        }
        said
    }

    fn truncate(&self, name: &str, length: u64) -> io::Result<()> {
        let mut files = self.called();
        let (happened, said) = happens(files.fault()?, 1);
        let file = files.file(name)?;
        if happened > 0 {
            let length = usize::try_from(length).unwrap();
            file.bytes.truncate(length);
            file.thought_clean = file.thought_clean.min(length);
        }
        said
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        let mut files = self.called();
        files.syncs += 1;
        let mut files = self.gate.wait_while(files, |files| files.is_sync_hanging).unwrap();
        let is_unsyncable = files.health == Health::Unsyncable;
        let fault = if is_unsyncable { Some(Fault::Before) } else { files.fault()? };
        let file = files.file(name)?;
        let (length, said) = happens(fault, file.bytes.len());
        if said.is_ok() {
            file.sync();
        } else {
            // A part of it may have got there whatever was said.
            if file.thought_clean <= file.durable.len() {
                let length = length.max(file.durable.len()).min(file.bytes.len());
                file.durable = file.bytes[..length].to_vec();
            }
            (file.thought_clean, file.rewritten) = (file.bytes.len(), 0);
        }
        said
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut files = self.called();
        let (length, said) = happens(files.fault()?, bytes.len());
        // Both are there for a while.
        if bytes.len() > files.room(0) {
            return no_room();
        }
        if length == bytes.len() {
            files.by_name.insert(name.to_owned(), File::new(bytes));
        }
        said
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut files = self.called();
        let (length, said) = happens(files.fault()?, 1);
        if length > 0 {
            files.by_name.remove(name).ok_or(io::ErrorKind::NotFound)?;
        }
        said
    }
}
