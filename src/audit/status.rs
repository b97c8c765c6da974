//! How the audit trail is doing.

use std::sync::atomic::Ordering;

use super::{Audit, CheckpointStatus, Shared};

/// How the audit trail is doing, for readiness and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditStatus {
    /// Is the spool being written and synced, and does neither take longer than [`super::WRITE_DEADLINE`]?
    pub is_spool_up: bool,
    /// Has the spool as much as it may have? No intent is taken then.
    pub is_spool_full: bool,
    /// Did the store take the last batch?
    pub is_store_up: bool,
    pub spool_bytes: u64,
    pub spool_limit_bytes: u64,
    /// Entries in the spool that the store does not have.
    pub unshipped: u64,
    /// Entries taken and not yet in the spool.
    pub unwritten: usize,
    pub checkpoints: CheckpointStatus,
    /// Entries that the store refused and that were kept apart, since the start.
    pub dead_letters: u64,
    /// Calls of lost gateways that this one closed.
    pub closed_unknown: u64,
}

impl Audit {
    #[must_use]
    pub fn status(&self) -> AuditStatus {
        let Shared { is_store_failing, state, seal, .. } = &*self.shared;
        AuditStatus {
            is_spool_up: self.shared.is_spool_up(),
            is_spool_full: state.is_full(),
            is_store_up: !is_store_failing.load(Ordering::Relaxed),
            spool_bytes: state.bytes(),
            spool_limit_bytes: state.limit_bytes(),
            unshipped: state.unshipped(),
            unwritten: self.unwritten(),
            checkpoints: seal.status(state.head()),
            dead_letters: self.shared.dead_letters.load(Ordering::Relaxed),
            closed_unknown: self.shared.closed_unknown.load(Ordering::Relaxed),
        }
    }
}
