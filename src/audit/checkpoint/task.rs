//! The task that makes checkpoints.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::Notify,
    task::spawn_blocking,
    time::{Instant, sleep_until},
};
use tokio_util::task::TaskTracker;

use super::{CheckpointKey, CheckpointLog, Head, KeyError, LogError};
use crate::{
    audit::{Link, Shared},
    config::AuditConfig,
};

/// A checkpoint is made this long after the last, if anything has changed.
pub const CHECKPOINT_INTERVAL: Duration = Duration::from_mins(1);
/// The pause after one that failed; doubled with each further one up to the most.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = CHECKPOINT_INTERVAL;

/// There can be no checkpoints. Each names the key of the configuration.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    #[error("audit.checkpoints: {0}")]
    Log(#[from] LogError),
    #[error("audit.checkpoint_key: {0}")]
    Key(#[from] KeyError),
}

/// How the checkpoints are doing.
#[derive(Debug, Default)]
pub(in crate::audit) struct SealState {
    /// More records are synced.
    pub(in crate::audit) grown: Notify,
    /// The last checkpoint could not be written; cleared by the next that can.
    is_failing: AtomicBool,
    written: AtomicU64,
    /// The number of the last record that a checkpoint speaks of.
    sealed: AtomicU64,
    /// The task; waited for at the end.
    pub(in crate::audit) tasks: TaskTracker,
}

/// How the checkpoints are doing, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointStatus {
    /// Was the last one written?
    pub is_up: bool,
    /// Written since the start.
    pub written: u64,
    /// Entries on the disk that none speaks of.
    pub unsealed: u64,
}

impl SealState {
    pub(in crate::audit) fn status(&self, head: Option<Link>) -> CheckpointStatus {
        let sealed = self.sealed.load(Ordering::Relaxed);
        CheckpointStatus {
            is_up: !self.is_failing.load(Ordering::Relaxed),
            written: self.written.load(Ordering::Relaxed),
            unsealed: head.map_or(0, |head| head.seq.saturating_sub(sealed)),
        }
    }
}

/// Makes checkpoints over one writer's chain. A failure to do so is told, and stops no call.
#[derive(Debug)]
pub struct Checkpointer {
    /// Away while a blocking thread writes with it.
    log: Option<CheckpointLog>,
    key: Arc<CheckpointKey>,
    /// Made after so many records at the latest.
    rows: u64,
}

impl Checkpointer {
    #[must_use]
    pub fn new(log: CheckpointLog, key: CheckpointKey, rows: u64) -> Self {
        Self { log: Some(log), key: Arc::new(key), rows }
    }

    /// As the configuration has it; makes the key and the log if there are none. Blocks.
    pub fn of(config: &AuditConfig) -> Result<Self, SealError> {
        let key = CheckpointKey::open(&config.checkpoint_key())?;
        Ok(Self::new(CheckpointLog::of(config)?, key, config.checkpoint_rows))
    }

    /// Would [`Checkpointer::of`] take the key that there is? Makes nothing. Blocks.
    pub fn check(config: &AuditConfig) -> Result<(), SealError> {
        Ok(CheckpointKey::check(&config.checkpoint_key())?)
    }

    /// Until all is shipped and no more comes, with one checkpoint at the end.
    pub(in crate::audit) async fn run(mut self, shared: Arc<Shared>) {
        let mut made_at = Instant::now();
        // What the last run had written and no checkpoint speaks of does not wait.
        let mut is_due = true;
        let mut pause = FIRST_PAUSE;
        loop {
            let is_end = shared.done.is_cancelled();
            let head = self.next_head(&shared, is_due || is_end);
            if is_due && head.is_none() {
                // Nothing to say: what comes now waits no longer than that.
                made_at = Instant::now();
            }
            let mut wake_at = made_at + CHECKPOINT_INTERVAL;
            if let Some(head) = head {
                match self.write(head, &shared).await {
                    Ok(()) => {
                        made_at = Instant::now();
                        (wake_at, pause) = (made_at + CHECKPOINT_INTERVAL, FIRST_PAUSE);
                    }
                    Err(error) => {
                        tell(&error, &shared);
                        wake_at = Instant::now() + pause;
                        pause = LONGEST_PAUSE.min(pause * 2);
                    }
                }
            }
            if is_end || self.log.is_none() {
                return;
            }
            is_due = self.wait(wake_at, &shared).await;
        }
    }

    /// True once `wake_at` has come. While it fails, more records are no reason to try sooner.
    async fn wait(&self, wake_at: Instant, shared: &Shared) -> bool {
        let is_failing = shared.seal.is_failing.load(Ordering::Relaxed);
        tokio::select! {
            () = sleep_until(wake_at) => true,
            () = shared.seal.grown.notified(), if !is_failing => false,
            () = shared.done.cancelled() => true,
        }
    }

    /// What is to be said now, if anything.
    fn next_head(&self, shared: &Shared, is_due: bool) -> Option<Head> {
        let link = shared.state.head()?;
        let head = Head { link, stored: shared.state.shipped().min(link.seq) };
        let last = self.log.as_ref()?.last().and_then(|last| last.head_of(link.writer));
        // A writer that no checkpoint knows can't be told from one that somebody made up.
        let Some(last) = last else { return Some(head) };
        shared.seal.sealed.fetch_max(last.link.seq, Ordering::Relaxed);
        let has_grown = link.seq.saturating_sub(last.link.seq) >= self.rows;
        (has_grown || (is_due && *last != head)).then_some(head)
    }

    async fn write(&mut self, head: Head, shared: &Shared) -> io::Result<()> {
        let gone = || io::Error::other("the log of checkpoints is gone");
        let mut log = self.log.take().ok_or_else(gone)?;
        let key = Arc::clone(&self.key);
        let written = spawn_blocking(move || {
            let added = log.add(&key, vec![head]).map(drop);
            (log, added)
        });
        let (log, added) = written.await?;
        self.log = Some(log);
        added?;
        shared.seal.sealed.store(head.link.seq, Ordering::Relaxed);
        shared.seal.written.fetch_add(1, Ordering::Relaxed);
        if shared.seal.is_failing.swap(false, Ordering::Relaxed) {
            tracing::info!("audit checkpoints can be written again");
        }
        Ok(())
    }
}

fn tell(error: &io::Error, shared: &Shared) {
    if !shared.seal.is_failing.swap(true, Ordering::Relaxed) {
        tracing::error!(%error, "an audit checkpoint can't be written: calls go on");
    }
}
