//! Intents whose calls have no end in the store.

use std::error::Error;

use async_trait::async_trait;
use uuid::Uuid;

use crate::domain::CallId;

/// A store in which they are found.
///
/// The contract, which `tests/it/audit/sweep.rs` holds every implementation to: an intent is open as
/// long as the store has no terminal entry of its call, however old the intent is and whoever wrote
/// it; to find those of a span costs what the span's rows do, whatever else is there.
#[async_trait]
pub trait OpenIntents: Send + Sync {
    /// Begins a turn; `None` while another gateway has its own. It ends when it is dropped, or when
    /// its gateway is lost.
    ///
    /// # Errors
    /// [`SweepError::Store`].
    async fn turn(&self) -> Result<Option<Box<dyn Turn>>, SweepError>;
}

/// What is done while no other gateway does it. Rows are known by the number that their store gave
/// them, which grows in the order in which they came.
#[async_trait]
pub trait Turn: Send {
    /// Up to which row every intent has its end, and which row is the last: no row that is numbered
    /// lower comes to be seen later.
    async fn span(&mut self) -> Result<(i64, i64), SweepError>;

    /// The open intents among the rows after `after` and up to `last`, in their order.
    async fn find(&mut self, after: i64, last: i64) -> Result<Vec<OpenIntent>, SweepError>;

    /// Which of these rows are still open intents.
    async fn still_open(&mut self, rows: &[i64]) -> Result<Vec<i64>, SweepError>;

    /// The [encodings](super::Record::encode) of these rows, of those that are still open.
    async fn records(&mut self, rows: &[i64]) -> Result<Vec<Vec<u8>>, SweepError>;

    /// Every intent up to this row has its end. Never goes back.
    async fn advance(&mut self, swept: i64) -> Result<(), SweepError>;
}

/// What lost calls have reserved.
#[async_trait]
pub trait Reservations: Send + Sync {
    /// Ends it, once and for all: whatever is left of it where that fails ends by itself.
    async fn abandon(&self, calls: &[CallId]);
}

/// An intent without an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenIntent {
    /// Where it stands in its store.
    pub row: i64,
    /// Whose it is, and its number in the chain; `None` of before there were chains.
    pub writer: Option<Uuid>,
    pub chain_seq: i64,
}

/// Calls without an end could not be looked for. To be tried again.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    #[error("the audit store can't be read: {0}")]
    Store(#[source] Box<dyn Error + Send + Sync>),
    #[error("the audit store lacks what waits in the spool")]
    Behind,
}

impl SweepError {
    pub fn store(source: impl Error + Send + Sync + 'static) -> Self {
        Self::Store(Box::new(source))
    }
}
