//! The key that checkpoints are signed with, and the half of it that others may have.

use std::{
    fmt,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, ErrorKind, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::{Engine as _, engine::general_purpose::STANDARD};

/// Larger than a file of many keys.
const MAX_FILE_BYTES: u64 = 256 << 10;
/// RFC 8410 §4: the DER of an Ed25519 public key is this and the key's 32 bytes.
const SPKI_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0];
const PRIVATE: &str = "PRIVATE KEY";
const PUBLIC: &str = "PUBLIC KEY";

/// There is no key as it should be. Each names the remedy.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{}: others may read this private key: chmod 600 it", path.display())]
    Exposed { path: PathBuf },
    #[error(
        "{}: it is not one Ed25519 private key as PKCS#8 in PEM; \
         openssl genpkey -algorithm ed25519 makes one",
        path.display()
    )]
    NotAKey { path: PathBuf },
    #[error("{}: it holds no Ed25519 public key in PEM", path.display())]
    NoPublicKey { path: PathBuf },
    #[error("no key could be made: the cryptographic library refused")]
    Generate,
}

/// An Ed25519 public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// As `openssl pkey -pubout` writes it.
    #[must_use]
    pub fn to_pem(self) -> String {
        to_pem(PUBLIC, &[&SPKI_PREFIX[..], &self.0].concat())
    }

    fn from_der(der: &[u8]) -> Option<Self> {
        der.strip_prefix(&SPKI_PREFIX)?.try_into().ok().map(Self)
    }
}

/// The public keys in a PEM file: as many as there are.
pub fn read_public_keys(path: &Path) -> Result<Vec<PublicKey>, KeyError> {
    let failed = |source| KeyError::File { path: path.to_owned(), source };
    let text = read(&File::open(path).map_err(failed)?).map_err(failed)?;
    let keys: Option<Vec<_>> =
        blocks(&text, PUBLIC).map(|der| PublicKey::from_der(&der?)).collect();
    keys.filter(|keys| !keys.is_empty())
        .ok_or_else(|| KeyError::NoPublicKey { path: path.to_owned() })
}

/// The private key.
pub struct CheckpointKey {
    pair: Ed25519KeyPair,
    public: PublicKey,
}

/// Nothing of the private half.
impl fmt::Debug for CheckpointKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckpointKey").field("public", &self.public).finish_non_exhaustive()
    }
}

impl CheckpointKey {
    /// Reads the file; makes it (PKCS#8, PEM, mode 0600) if there is none. Blocks.
    pub fn open(path: &Path) -> Result<Self, KeyError> {
        match Self::load(path) {
            Err(KeyError::File { source, .. }) if source.kind() == ErrorKind::NotFound => {
                make(path)?;
                // Another instance may have been faster, and then its key is everyone's.
                Self::load(path)
            }
            loaded => loaded,
        }
    }

    /// Reads the file. Blocks.
    ///
    /// # Errors
    /// [`KeyError`]; also if group or others may read it.
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        let failed = |source| KeyError::File { path: path.to_owned(), source };
        // The check is of the open file, so it can't be swapped between check and use.
        let file = File::open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.permissions().mode() & 0o077 != 0 {
            return Err(KeyError::Exposed { path: path.to_owned() });
        }
        let text = read(&file).map_err(failed)?;
        let mut keys = blocks(&text, PRIVATE);
        let key = keys.next().flatten().filter(|_| keys.next().is_none());
        key.and_then(|der| Self::from_der(&der))
            .ok_or_else(|| KeyError::NotAKey { path: path.to_owned() })
    }

    /// What [`CheckpointKey::open`] would say of the file, without making it. Blocks.
    pub fn check(path: &Path) -> Result<(), KeyError> {
        match Self::load(path) {
            Err(KeyError::File { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(()),
            loaded => loaded.map(drop),
        }
    }

    #[must_use]
    pub const fn public(&self) -> PublicKey {
        self.public
    }

    pub(super) fn sign(&self, bytes: &[u8]) -> [u8; 64] {
        let mut signature = [0; 64];
        signature.copy_from_slice(self.pair.sign(bytes).as_ref());
        signature
    }

    fn from_der(der: &[u8]) -> Option<Self> {
        let pair = Ed25519KeyPair::from_pkcs8(der).ok()?;
        let public = PublicKey(pair.public_key().as_ref().try_into().ok()?);
        Some(Self { pair, public })
    }
}

fn read(file: &File) -> io::Result<String> {
    let mut text = String::new();
    file.take(MAX_FILE_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// RFC 7468: what stands between the lines of one label; `None` where that is no base64.
fn blocks<'a>(text: &'a str, label: &str) -> impl Iterator<Item = Option<Vec<u8>>> + use<'a> {
    let (begin, end) = (format!("-----BEGIN {label}-----"), format!("-----END {label}-----"));
    let mut rest = text;
    std::iter::from_fn(move || {
        rest = rest.split_once(&begin)?.1;
        let (body, after) = rest.split_once(&end).unwrap_or((rest, ""));
        rest = after;
        let body: String = body.split_ascii_whitespace().collect();
        Some(STANDARD.decode(body).ok())
    })
}

fn to_pem(label: &str, der: &[u8]) -> String {
    let body = STANDARD.encode(der);
    let mut pem = format!("-----BEGIN {label}-----");
    for (index, c) in body.chars().enumerate() {
        if index % 64 == 0 {
            pem.push('\n');
        }
        pem.push(c);
    }
    pem + "\n-----END " + label + "-----\n"
}

/// Makes a key's file, whole or not at all. Leaves alone one that is there.
fn make(path: &Path) -> Result<(), KeyError> {
    let pair = Ed25519KeyPair::generate().map_err(|_| KeyError::Generate)?;
    let der = pair.to_pkcs8v1().map_err(|_| KeyError::Generate)?;
    let failed = |source| KeyError::File { path: path.to_owned(), source };
    write_new(path, to_pem(PRIVATE, der.as_ref()).as_bytes()).map_err(failed)
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    let draft = path.with_extension(format!("{}.new", uuid::Uuid::now_v7().simple()));
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(bytes)?;
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
