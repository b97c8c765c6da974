//! A disk in memory that fails when told, and forgets what was not synced when the power goes.

use std::{
    collections::BTreeMap,
    io,
    sync::{Condvar, Mutex, MutexGuard},
};

use tollgate::audit::spool::Disk;

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
}

#[derive(Debug, Default)]
struct Files {
    by_name: BTreeMap<String, File>,
    /// The faults of the calls to come, those to be sound among them.
    faults: Vec<Option<Fault>>,
    health: Health,
    /// Appends wait.
    is_hanging: bool,
    /// How many appends were begun.
    appends: usize,
}

impl Files {
    /// What is to become of the next call.
    fn fault(&mut self) -> io::Result<Option<Fault>> {
        if self.health == Health::Broken {
            return Err(io::Error::other("the disk was told to fail"));
        }
        Ok(if self.faults.is_empty() { None } else { self.faults.remove(0) })
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

impl FakeDisk {
    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap()
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
            file.durable = file.bytes.clone();
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
        file.durable = file.bytes.clone();
    }
}

impl Disk for FakeDisk {
    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let mut files = self.files();
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
        let mut files = self.files();
        if files.fault()?.is_some() {
            return Err(io::Error::other("told to fail"));
        }
        let at = usize::try_from(at).unwrap();
        into.extend(files.file(name)?.bytes.iter().skip(at).take(most));
        Ok(())
    }

    fn create(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut files = self.files();
        let fault = files.fault()?;
        if files.by_name.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if fault == Some(Fault::Before) {
            return Err(io::Error::other("told to fail"));
        }
        let (length, said) = happens(fault, bytes.len());
        let bytes = bytes[..length].to_vec();
        files.by_name.insert(name.to_owned(), File { durable: bytes.clone(), bytes });
        said
    }

    fn append(&self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut files = self.files();
        files.appends += 1;
        let mut files = self.gate.wait_while(files, |files| files.is_hanging).unwrap();
        let (length, said) = happens(files.fault()?, bytes.len());
        let file = files.file(name)?;
        assert_eq!(file.bytes.len() as u64, at, "what is appended goes to the end");
        file.bytes.extend(&bytes[..length]);
        said
    }

    fn truncate(&self, name: &str, length: u64) -> io::Result<()> {
        let mut files = self.files();
        let (happened, said) = happens(files.fault()?, 1);
        let file = files.file(name)?;
        if happened > 0 {
            file.bytes.truncate(usize::try_from(length).unwrap());
        }
        said
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        let mut files = self.files();
        if files.health == Health::Unsyncable {
            return Err(io::Error::other("told to fail"));
        }
        let fault = files.fault()?;
        let file = files.file(name)?;
        let (length, said) = happens(fault, file.bytes.len());
        // A part of it may have got there whatever was said.
        let length = length.max(file.durable.len()).min(file.bytes.len());
        file.durable = file.bytes[..length].to_vec();
        said
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut files = self.files();
        let (length, said) = happens(files.fault()?, bytes.len());
        if length == bytes.len() {
            let file = File { bytes: bytes.to_vec(), durable: bytes.to_vec() };
            files.by_name.insert(name.to_owned(), file);
        }
        said
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut files = self.files();
        let (length, said) = happens(files.fault()?, 1);
        if length > 0 {
            files.by_name.remove(name).ok_or(io::ErrorKind::NotFound)?;
        }
        said
    }
}
