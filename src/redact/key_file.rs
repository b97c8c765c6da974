//! Where the placeholders' key comes from: the configuration, or a file that is made once and kept.

use std::{
    fs::{self, OpenOptions},
    io::{self, ErrorKind, Read as _, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use secrecy::{ExposeSecret as _, SecretSlice, SecretString};

use super::PlaceholderKey;
use crate::config::{RedactionConfig, decode_redaction_key};

/// Beside the audit database, whose rows have the placeholders.
const FILE_NAME: &str = "redaction.key";
/// As long as the output of HMAC-SHA256 (RFC 2104 §3).
const KEY_BYTES: usize = 32;
/// A key file is far shorter; what is longer is another file.
const MAX_FILE_BYTES: u64 = 4_096;

/// There is no key to make placeholders with. Each names the key at fault and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum KeySourceError {
    #[error("redaction.key {0}")]
    Key(&'static str),
    #[error(
        "redaction.key_file: {} can't be read ({source}); let tollgate read it, or set redaction.key",
        .path.display()
    )]
    Read { path: PathBuf, source: io::Error },
    #[error(
        "redaction.key_file: {} can't be made ({source}); name a file in a directory that tollgate \
         may write to, or set redaction.key",
        .path.display()
    )]
    Make { path: PathBuf, source: io::Error },
    #[error("redaction.key_file: {} can be read by anyone; chmod 600 it", .path.display())]
    Exposed { path: PathBuf },
    #[error("redaction.key_file: what {} holds {reason}", .path.display())]
    Content { path: PathBuf, reason: &'static str },
    #[error("redaction.key: the system has no random numbers to make one of")]
    Random,
}

/// A key, and where it is from.
#[derive(Debug, Clone)]
pub struct KeptKey {
    source: KeySource,
    key: PlaceholderKey,
}

impl KeptKey {
    #[must_use]
    pub const fn key(&self) -> &PlaceholderKey {
        &self.key
    }

    /// The key of another configuration. From the same file it is the one that was read at first,
    /// whatever became of the file: placeholders stay matchable while the gateway runs.
    ///
    /// # Errors
    /// [`KeySourceError`].
    pub fn of(&self, source: KeySource) -> Result<Self, KeySourceError> {
        match (&self.source, &source) {
            (KeySource::File(path), KeySource::File(new)) if path == new => Ok(self.clone()),
            _ => source.open(),
        }
    }
}

/// Where the key is: `redaction.key`, else `redaction.key_file`, else `redaction.key` beside the
/// audit database.
#[derive(Debug, Clone)]
pub enum KeySource {
    Given(SecretString),
    File(PathBuf),
}

impl KeySource {
    /// `audit` is `audit.path`.
    #[must_use]
    pub fn new(config: &RedactionConfig, audit: &Path) -> Self {
        match (&config.key, &config.key_file) {
            (Some(key), _) => Self::Given(key.clone()),
            (None, Some(file)) => Self::File(file.clone()),
            (None, None) => Self::File(audit.with_file_name(FILE_NAME)),
        }
    }

    /// The key; makes the file if there is none.
    ///
    /// # Errors
    /// [`KeySourceError`].
    pub fn open(self) -> Result<KeptKey, KeySourceError> {
        if let (Self::File(path), None) = (&self, self.read()?) {
            make(path)?;
        }
        // Another instance may have been faster, and then its key is everyone's.
        let gone = || io::Error::from(ErrorKind::NotFound);
        match (self.read()?, self) {
            (Some(key), source) => Ok(KeptKey { source, key }),
            (None, Self::File(path)) => Err(KeySourceError::Make { path, source: gone() }),
            (None, Self::Given(_)) => Err(KeySourceError::Random),
        }
    }

    /// As [`KeySource::open`], but makes no file: where there is none, the key is as good as random.
    ///
    /// # Errors
    /// [`KeySourceError`].
    pub fn peek(self) -> Result<KeptKey, KeySourceError> {
        let read = self.read()?;
        let key = read.map_or_else(PlaceholderKey::random, Ok);
        Ok(KeptKey { key: key.map_err(|_| KeySourceError::Random)?, source: self })
    }

    /// `None`: there is no such file.
    fn read(&self) -> Result<Option<PlaceholderKey>, KeySourceError> {
        match self {
            Self::Given(key) => {
                let bytes = decode_redaction_key(key).map_err(KeySourceError::Key)?;
                key_of(&bytes).map(Some)
            }
            Self::File(path) => {
                let read = read(path)?;
                let Some(text) = read else { return Ok(None) };
                let content = |reason| KeySourceError::Content { path: path.clone(), reason };
                key_of(&decode_redaction_key(&text).map_err(content)?).map(Some)
            }
        }
    }
}

fn key_of(bytes: &SecretSlice<u8>) -> Result<PlaceholderKey, KeySourceError> {
    let short = |_| KeySourceError::Key("is too short; it must stand for 32 bytes");
    PlaceholderKey::from_bytes(bytes.expose_secret()).map_err(short)
}

/// `None`: there is no such file.
fn read(path: &Path) -> Result<Option<SecretString>, KeySourceError> {
    let unreadable = |source| KeySourceError::Read { path: path.to_owned(), source };
    let file = match fs::File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(unreadable)?,
    };
    // Asked of the open file, so that it can't be swapped between check and use.
    let mode = file.metadata().map_err(unreadable)?.permissions().mode();
    if mode & 0o007 != 0 {
        return Err(KeySourceError::Exposed { path: path.to_owned() });
    }
    let mut text = String::new();
    file.take(MAX_FILE_BYTES).read_to_string(&mut text).map_err(unreadable)?;
    Ok(Some(text.into()))
}

/// Makes a key's file, whole or not at all. Leaves alone one that is there.
fn make(path: &Path) -> Result<(), KeySourceError> {
    let mut bytes = [0; KEY_BYTES];
    SystemRandom::new().fill(&mut bytes).map_err(|_| KeySourceError::Random)?;
    let text: String =
        bytes.iter().map(|byte| format!("{byte:02x}")).chain(["\n".into()]).collect();
    write_new(path, &text).map_err(|source| KeySourceError::Make { path: path.to_owned(), source })
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        fs::create_dir_all(directory)?;
    }
    let draft = path.with_extension(format!("{}.new", uuid::Uuid::now_v7().simple()));
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        // Unlike a rename, a link does not replace what another instance has made meanwhile.
        match fs::hard_link(&draft, path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            linked => linked,
        }
    })();
    let removed = fs::remove_file(&draft);
    written.and(removed)
}
