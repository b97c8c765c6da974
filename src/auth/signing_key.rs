//! A private key that tokens are signed with, in a file that its owner alone may read.

use std::{
    fmt, fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use aws_lc_rs::{
    digest,
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RsaKeyPair,
    },
};
use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use jsonwebtoken::{Algorithm, EncodingKey};
use serde_json::{Value, json};

/// Larger than any key in PEM.
const MAX_FILE_LEN: u64 = 32_768;

/// A private key: Ed25519, or P-256 or RSA where it was loaded.
pub struct SigningKey {
    algorithm: Algorithm,
    key: EncodingKey,
    /// The members that RFC 7638 §3.2 takes a thumbprint of, and no others.
    public: Value,
    kid: String,
}

/// Nothing of the private half.
impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("SigningKey");
        debug.field("algorithm", &self.algorithm).field("kid", &self.kid).finish_non_exhaustive()
    }
}

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum SigningKeyError {
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{}: others may read this private key: chmod 600 it", path.display())]
    Exposed { path: PathBuf },
    #[error(
        "{}: it is not one private key in PEM: Ed25519 or P-256 as PKCS#8, or RSA of at least \
         2048 bits",
        path.display()
    )]
    NotAKey { path: PathBuf },
    #[error("no key could be made: the cryptographic library refused")]
    Generate,
}

impl SigningKey {
    /// Makes a new Ed25519 key and writes it (PKCS#8, PEM, mode 0600). The file appears whole or
    /// not at all; one that is there is left as it is.
    ///
    /// # Errors
    /// [`SigningKeyError::File`] of kind [`io::ErrorKind::AlreadyExists`] if it is there.
    pub fn generate_file(path: &Path) -> Result<Self, SigningKeyError> {
        let pair = Ed25519KeyPair::generate().map_err(|_| SigningKeyError::Generate)?;
        let der = pair.to_pkcs8v1().map_err(|_| SigningKeyError::Generate)?;
        let pem = to_pem(der.as_ref());
        write_new(path, pem.as_bytes())
            .map_err(|source| SigningKeyError::File { path: path.to_owned(), source })?;
        Self::from_pem(&pem).ok_or(SigningKeyError::Generate)
    }

    /// Reads a key: PEM of an Ed25519 or P-256 key in PKCS#8, or of an RSA key.
    ///
    /// # Errors
    /// [`SigningKeyError`]; also if group or others may read the file.
    pub fn load(path: &Path) -> Result<Self, SigningKeyError> {
        let file = |source| SigningKeyError::File { path: path.to_owned(), source };
        // The checks are of the open file, so it can't be swapped between check and use.
        let opened = fs::File::open(path).map_err(file)?;
        if is_exposed(&opened.metadata().map_err(file)?) {
            return Err(SigningKeyError::Exposed { path: path.to_owned() });
        }
        let mut pem = String::new();
        io::Read::read_to_string(&mut io::Read::take(opened, MAX_FILE_LEN), &mut pem)
            .map_err(file)?;
        Self::from_pem(&pem).ok_or_else(|| SigningKeyError::NotAKey { path: path.to_owned() })
    }

    /// The RFC 7638 thumbprint: the same for the same key wherever it is computed.
    #[must_use]
    pub fn kid(&self) -> &str {
        &self.kid
    }

    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// A JWK set with the public half, to be published or put into a `jwks_file`.
    #[must_use]
    pub fn public_jwks(&self) -> Value {
        let mut jwk = self.public.clone();
        jwk["use"] = json!("sig");
        jwk["alg"] = json!(self.algorithm);
        jwk["kid"] = json!(self.kid);
        json!({ "keys": [jwk] })
    }

    pub(super) fn encoding_key(&self) -> &EncodingKey {
        &self.key
    }

    fn from_pem(pem: &str) -> Option<Self> {
        let der = from_pem(pem)?;
        if let Ok(pair) = Ed25519KeyPair::from_pkcs8(&der) {
            let public = json!({ "crv": "Ed25519", "kty": "OKP", "x": b64(pair.public_key()) });
            return Self::new(Algorithm::EdDSA, EncodingKey::from_ed_der(&der), public);
        }
        if let Ok(pair) = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der) {
            // An uncompressed point: 4, x, y.
            let (x, y) = pair.public_key().as_ref().get(1..)?.split_at_checked(32)?;
            let public = json!({ "crv": "P-256", "kty": "EC", "x": b64(x), "y": b64(y) });
            return Self::new(Algorithm::ES256, EncodingKey::from_ec_der(&der), public);
        }
        let pair = RsaKeyPair::from_pkcs8(&der).or_else(|_| RsaKeyPair::from_der(&der)).ok()?;
        let (n, e) = (pair.public_key().modulus(), pair.public_key().exponent());
        let (n, e) = (n.big_endian_without_leading_zero(), e.big_endian_without_leading_zero());
        let public = json!({ "e": b64(e), "kty": "RSA", "n": b64(n) });
        Self::new(Algorithm::RS256, EncodingKey::from_rsa_pem(pem.as_bytes()).ok()?, public)
    }

    fn new(algorithm: Algorithm, key: EncodingKey, public: Value) -> Option<Self> {
        let kid = thumbprint(&public)?;
        Some(Self { algorithm, key, public, kid })
    }
}

/// RFC 7638 §3: the SHA-256 of the required members, sorted by name, without whitespace.
fn thumbprint(public: &Value) -> Option<String> {
    let sorted: std::collections::BTreeMap<_, _> = public.as_object()?.iter().collect();
    let canonical = serde_json::to_vec(&sorted).ok()?;
    Some(b64(digest::digest(&digest::SHA256, &canonical)))
}

fn b64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

const BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const END: &str = "-----END PRIVATE KEY-----";

/// RFC 7468 §10.
fn to_pem(der: &[u8]) -> String {
    let body = STANDARD.encode(der);
    let mut pem = String::from(BEGIN);
    for (index, c) in body.chars().enumerate() {
        if index % 64 == 0 {
            pem.push('\n');
        }
        pem.push(c);
    }
    pem + "\n" + END + "\n"
}

fn from_pem(pem: &str) -> Option<Vec<u8>> {
    let pem = pem.trim();
    let labels =
        [(BEGIN, END), ("-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----")];
    let body = labels.iter().find_map(|(begin, end)| pem.strip_prefix(begin)?.strip_suffix(end))?;
    let body: String = body.split_ascii_whitespace().collect();
    STANDARD.decode(body).ok()
}

#[cfg(unix)]
fn is_exposed(metadata: &fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt;
    metadata.permissions().mode() & 0o077 != 0
}

#[cfg(not(unix))]
fn is_exposed(_: &fs::Metadata) -> bool {
    false
}

/// Writes a file that must not be there yet. A link, unlike a rename, never replaces.
fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}", uuid::Uuid::new_v4().simple()));
    let draft = PathBuf::from(draft);
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written = options.open(&draft).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::hard_link(&draft, path)
    });
    // Whether it failed or not, the draft has done its service.
    let _ = fs::remove_file(&draft);
    written
}
