//! Where the record of every call goes.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use secrecy::SecretString;
use serde::Deserialize;

use super::secret;

/// A gateway may be cut off from the store for so long, and the ends of its calls still count.
const UNKNOWN_AFTER_S: u64 = 3_600;

/// `[audit]`: where the record of every call goes.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct AuditConfig {
    pub store: AuditStore,
    /// The SQLite file.
    pub path: PathBuf,
    /// The Postgres database, as the gateway's role.
    pub url: Option<SecretString>,
    /// The same database as the role that owns its tables: for migrations and retention. Where it is
    /// not set, the role of `url` does both.
    pub owner_url: Option<SecretString>,
    /// How long a connection to Postgres may take.
    pub connect_timeout_ms: u64,
    /// How long one statement may take there.
    pub statement_timeout_ms: u64,
    /// The directory that entries are written to first; beside `path` where it is not set.
    pub spool: Option<PathBuf>,
    /// With this much in it calls are refused.
    pub spool_limit_bytes: u64,
    pub durability: Durability,
    /// Entries older than this leave the store for files of `archive`.
    pub retention_days: Option<u32>,
    /// The directory that they go to.
    pub archive: Option<PathBuf>,
    pub content: AuditContent,
    /// Where signed checkpoints go; `checkpoints.jsonl` beside `path` where it is not set.
    pub checkpoints: Option<CheckpointTarget>,
    /// The PEM file of the key that signs them; made at the first start. `checkpoint.pem` beside
    /// `path` where it is not set.
    pub checkpoint_key: Option<PathBuf>,
    /// A checkpoint is made after so many rows at the latest.
    pub checkpoint_rows: u64,
    /// An intent that is without its end for so long is closed as `unknown`; an hour where it is not
    /// set, or twice the longest call.
    pub unknown_after_s: Option<u64>,
}

impl AuditConfig {
    /// The spool's directory.
    #[must_use]
    pub fn spool(&self) -> PathBuf {
        self.spool.clone().unwrap_or_else(|| self.beside("spool"))
    }

    /// How long an intent may be without its end, where a call takes at most `request_timeout_s`.
    #[must_use]
    pub fn unknown_after(&self, request_timeout_s: u64) -> Duration {
        let usual = UNKNOWN_AFTER_S.max(request_timeout_s.saturating_mul(2));
        Duration::from_secs(self.unknown_after_s.unwrap_or(usual))
    }

    #[must_use]
    pub fn checkpoints(&self) -> CheckpointTarget {
        let beside = || CheckpointTarget::File(self.beside("checkpoints.jsonl"));
        self.checkpoints.clone().unwrap_or_else(beside)
    }

    #[must_use]
    pub fn checkpoint_key(&self) -> PathBuf {
        self.checkpoint_key.clone().unwrap_or_else(|| self.beside("checkpoint.pem"))
    }

    /// A file in the directory that `path` is in.
    #[must_use]
    pub fn beside(&self, name: &str) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(name)
    }
}

/// Where checkpoints go: `"stdout"`, or a file's path.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "PathBuf")]
pub enum CheckpointTarget {
    File(PathBuf),
    Stdout,
}

impl From<PathBuf> for CheckpointTarget {
    fn from(path: PathBuf) -> Self {
        if path == Path::new("stdout") { Self::Stdout } else { Self::File(path) }
    }
}

/// Written out because of the secret; taken apart so that no new field is forgotten.
impl PartialEq for AuditConfig {
    fn eq(&self, other: &Self) -> bool {
        let Self {
            store,
            path,
            url,
            owner_url,
            connect_timeout_ms,
            statement_timeout_ms,
            spool,
            spool_limit_bytes,
            durability,
            retention_days,
            archive,
            content,
            checkpoints,
            checkpoint_key,
            checkpoint_rows,
            unknown_after_s,
        } = self;
        *store == other.store
            && *path == other.path
            && *spool == other.spool
            && *spool_limit_bytes == other.spool_limit_bytes
            && *durability == other.durability
            && *retention_days == other.retention_days
            && *archive == other.archive
            && *content == other.content
            && *checkpoints == other.checkpoints
            && *checkpoint_key == other.checkpoint_key
            && *checkpoint_rows == other.checkpoint_rows
            && *unknown_after_s == other.unknown_after_s
            && *connect_timeout_ms == other.connect_timeout_ms
            && *statement_timeout_ms == other.statement_timeout_ms
            && secret::same(url.as_ref(), other.url.as_ref())
            && secret::same(owner_url.as_ref(), other.owner_url.as_ref())
    }
}

impl Default for AuditConfig {
    fn default() -> Self {
        Self {
            store: AuditStore::Sqlite,
            path: PathBuf::from("data/tollgate.db"),
            url: None,
            owner_url: None,
            connect_timeout_ms: 20_000,
            statement_timeout_ms: 10_000,
            spool: None,
            spool_limit_bytes: 1 << 30,
            durability: Durability::Spool,
            retention_days: None,
            archive: None,
            content: AuditContent::None,
            checkpoints: None,
            checkpoint_key: None,
            checkpoint_rows: 10_000,
            unknown_after_s: None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditStore {
    Sqlite,
    Postgres,
}

/// What an intent row has gone through before its call may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Written to the spool: survives a kill -9 of the gateway.
    Spool,
    /// Synced to the disk as well: survives a loss of power.
    Strict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditContent {
    Redacted,
    None,
}
