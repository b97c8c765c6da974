//! Asking the audit trail: entries by filter, what was spent, and what a run did.
//!
//! Stores implement [`AuditQuery`]; all that asks goes through it: the API, the command line.

mod cursor;
mod filter;
mod run;
mod usage;

use std::{error::Error, fmt, time::Duration};

use async_trait::async_trait;

pub use cursor::{Cursor, InvalidCursor};
pub use filter::{Field, Filter, FilterError, MAX_VALUE_CHARS};
pub use run::{RUN_ENTRIES, Run, RunCall, RunTotals};
pub use usage::{Dimension, MAX_GROUPS, Sums, Usage, UsageError, UsageFilter, UsageGroup};

use super::StoredEntry;

/// The most entries that one page has: a few MiB at the very most.
pub const PAGE_ENTRIES: u32 = 1_000;

/// The most entries whose contents are read at once: 6 MiB, if all is kept of all.
pub const CONTENT_ENTRIES: u32 = 50;

/// What questions may take, so that they leave the machine to the calls.
#[derive(Debug, Clone, Copy)]
pub struct QueryLimits {
    /// How long one may take. Whoever asks for more than that is to ask for less at once.
    pub answer: Duration,
    /// How long is waited for others to be answered.
    pub wait: Duration,
    /// Questions at once, each by a connection: they are few, and the store serves calls as well.
    pub at_once: usize,
}

impl Default for QueryLimits {
    fn default() -> Self {
        Self { answer: Duration::from_secs(5), wait: Duration::from_secs(2), at_once: 4 }
    }
}

/// Which way pages go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    NewestFirst,
    OldestFirst,
}

/// Entries as they came.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Arrivals {
    pub entries: Vec<StoredEntry>,
    /// All up to this one was looked at: the next arrivals are those behind it.
    pub seq: i64,
}

/// What is kept of one side of a call's content.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredContent {
    pub entry_id: String,
    /// What was asked, or what was answered?
    pub is_input: bool,
    pub text: String,
    /// Of the whole, of which this may be the beginning.
    pub full_bytes: Option<i64>,
}

impl fmt::Debug for StoredContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { entry_id, is_input, full_bytes, .. } = self;
        f.debug_struct("StoredContent")
            .field("entry_id", entry_id)
            .field("is_input", is_input)
            .field("full_bytes", full_bytes)
            .finish_non_exhaustive()
    }
}

/// A store of audit entries that can be asked.
///
/// The contract, which `tests/it/audit/query.rs` holds every implementation to:
/// - Entries that are superseded are never shown.
/// - A page has the entries that the filter takes, in the order of their time, from behind the
///   cursor on, as many as asked for if there are so many. Pages that follow each other show no entry
///   twice, and leave none out that was there at the first.
/// - Arrivals that follow each other show each entry once, however late it came.
/// - A question ends within a few seconds, if only by [`QueryError::TooSlow`].
#[async_trait]
pub trait AuditQuery: Send + Sync {
    /// The next entries behind `behind`: at most `limit`, and no more than [`PAGE_ENTRIES`].
    ///
    /// # Errors
    /// [`QueryError`].
    async fn page(
        &self,
        filter: &Filter,
        order: Order,
        behind: Option<Cursor>,
        limit: u32,
    ) -> Result<Vec<StoredEntry>, QueryError>;

    /// At most `limit` entries, and no more than [`PAGE_ENTRIES`], that came behind the one numbered
    /// `seq`, in the order in which they came: with several gateways that is not quite that of time.
    ///
    /// # Errors
    /// [`QueryError`].
    async fn arrivals(&self, filter: &Filter, seq: i64, limit: u32)
    -> Result<Arrivals, QueryError>;

    /// The number of the last entry that came.
    ///
    /// # Errors
    /// [`QueryError`].
    async fn last_arrival(&self) -> Result<i64, QueryError>;

    /// What is kept of the contents of these entries, at most [`CONTENT_ENTRIES`].
    ///
    /// # Errors
    /// [`QueryError`].
    async fn contents(&self, entry_ids: &[&str]) -> Result<Vec<StoredContent>, QueryError>;

    /// What was spent, in groups: those that cost the most, at most [`MAX_GROUPS`].
    ///
    /// # Errors
    /// [`QueryError`].
    async fn usage(&self, filter: &UsageFilter) -> Result<Usage, QueryError>;
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    #[error("the audit store can't be read: {0}")]
    Read(#[source] Box<dyn Error + Send + Sync>),
    #[error("the audit trail was searched for {0} s: narrow the time, or filter by more")]
    TooSlow(u64),
    #[error("as many questions are asked of the audit trail as it answers at once")]
    Busy,
}

impl QueryError {
    pub fn read(source: impl Error + Send + Sync + 'static) -> Self {
        Self::Read(Box::new(source))
    }
}
