//! The files that every entry goes to first, and out of which the store is fed.
//!
//! [`Spool::open`] gives three things: a [`SpoolWriter`] for the one thread that writes, a
//! [`SpoolReader`] for the task that ships, and the [`SpoolState`] that both see.
//!
//! What is held, whatever the disk does:
//! - What [`SpoolWriter::commit`] said yes to is read by a [`SpoolReader`], after a kill -9 too;
//!   after a loss of power if it was synced, which the reader waits for.
//! - What it said no to is not there, unless a crash came before it could be taken back.
//! - Records come out in the order in which they went in, each with the link that it went in with.
//! - A segment is removed only once all of it was acknowledged, and the chain goes on from `head`.

mod disk;
mod reader;
mod recovery;
mod segment;
mod state;
mod waiting;
mod writer;

use std::{io, path::PathBuf, sync::Arc};

pub use disk::{DirectoryDisk, Disk};
pub use reader::{BATCH_RECORDS, ReadError, SpoolReader};
pub use segment::{Frame, FrameError, Header, Scan, read_frame, scan};
pub use state::SpoolState;
pub use waiting::Waiting;
pub use writer::{Room, SpoolWriter};

use crate::config::{AuditConfig, Durability};

/// A segment that is longer is followed by a new one. Small enough that a crash has little shipped
/// again, large enough that making one, which waits for the disk, is rare.
pub const SEGMENT_BYTES: u64 = 8 << 20;

/// How a spool is to behave.
#[derive(Debug, Clone, Copy)]
pub struct SpoolSettings {
    /// With this much in it no intent is taken. The ends of calls under way may take an eighth more.
    pub limit_bytes: u64,
    pub segment_bytes: u64,
    /// Is each group synced before it counts as written?
    pub is_strict: bool,
}

/// The spool can't be used as it is.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    #[error(
        "{} is in use by another tollgate: give each one a directory of its own",
        path.display()
    )]
    Locked { path: PathBuf },
    #[error("can't open the directory {}: {source}", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("can't recover {file}: {source}")]
    Recover { file: String, source: io::Error },
}

/// A spool, opened and recovered.
#[derive(Debug)]
pub struct Spool {
    pub writer: SpoolWriter,
    pub reader: SpoolReader,
    pub state: Arc<SpoolState>,
}

impl Spool {
    /// Opens the directory that the configuration names. Blocks, as [`Spool::open`] does.
    pub fn of(config: &AuditConfig) -> Result<Self, SpoolError> {
        let settings = SpoolSettings {
            limit_bytes: config.spool_limit_bytes,
            segment_bytes: SEGMENT_BYTES,
            is_strict: config.durability == Durability::Strict,
        };
        Self::open(Arc::new(DirectoryDisk::open(&config.spool())?), settings)
    }

    /// Recovers what is on the disk. Blocks; reads all that waits there.
    pub fn open(disk: Arc<dyn Disk>, settings: SpoolSettings) -> Result<Self, SpoolError> {
        let recovered = recovery::recover(&*disk)?;
        let state = Arc::new(SpoolState::new(Arc::clone(&disk), settings, &recovered));
        let reader = SpoolReader::new(Arc::clone(&disk), Arc::clone(&state));
        let writer = SpoolWriter::new(disk, settings, recovered.last, Arc::clone(&state));
        Ok(Self { writer, reader, state })
    }
}

/// Puts bytes that can't be believed where nobody deletes them.
fn keep_aside(disk: &dyn Disk, file: &str, bytes: &[u8]) -> io::Result<String> {
    let names: Vec<String> = disk.list()?.into_iter().map(|(name, _)| name).collect();
    let mut kept = format!("{file}.bad");
    for number in 2.. {
        if !names.contains(&kept) {
            break;
        }
        kept = format!("{file}.{number}.bad");
    }
    disk.create(&kept, bytes)?;
    tracing::error!(
        file,
        kept_as = kept,
        bytes = bytes.len(),
        "the audit spool is damaged: what can't be read is kept aside, and not shipped"
    );
    Ok(kept)
}
