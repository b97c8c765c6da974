//! Work that would hold an async thread for too long, on threads of its own.

use std::{num::NonZero, sync::Arc, thread::available_parallelism};

use tokio::{sync::Semaphore, task::spawn_blocking};

/// So many bytes are read, parsed or redacted in less than half a millisecond, whatever is in them;
/// with more the thread that other calls are on must not be held.
pub const INLINE_BYTES: usize = 16 << 10;
/// Where the number of cores can't be told.
const DEFAULT_CORES: usize = 2;

/// Runs work on tokio's blocking pool, no more at a time than there are cores: it is all
/// computing, and whoever sends large bodies must not fill the pool for others.
#[derive(Debug, Clone)]
pub struct Offload {
    slots: Arc<Semaphore>,
}

/// The work panicked, or the runtime is going down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the work on another thread came to no end")]
pub struct Lost;

impl Default for Offload {
    fn default() -> Self {
        Self::new(available_parallelism().map_or(DEFAULT_CORES, NonZero::get))
    }
}

impl Offload {
    #[must_use]
    pub fn new(at_once: usize) -> Self {
        Self { slots: Arc::new(Semaphore::new(at_once)) }
    }

    /// Does the work of so many `bytes`: at once and here if they are few, else as [`Offload::run`].
    ///
    /// # Errors
    /// [`Lost`]
    pub async fn run_for<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Lost> {
        if bytes <= INLINE_BYTES { Ok(work()) } else { self.run(work).await }
    }

    /// Waits for a slot, then for the work. Who stops waiting for a slot gives it up; work that
    /// was begun runs to its end, and has its slot until then.
    ///
    /// # Errors
    /// [`Lost`]
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Lost> {
        let slot = Arc::clone(&self.slots).acquire_owned().await.map_err(|_| Lost)?;
        let work = move || {
            // Dropped after the work, also if that panics.
            let _slot = slot;
            work()
        };
        spawn_blocking(work).await.map_err(|_| Lost)
    }
}
