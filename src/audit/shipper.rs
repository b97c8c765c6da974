//! The tasks behind the spool: one has it synced, one brings what is synced to the store.

use std::{
    io,
    panic::AssertUnwindSafe,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::FutureExt;
use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep, timeout},
};

use super::{
    AuditSink, Shared, SinkError,
    spool::{BATCH_RECORDS, ReadError, SpoolReader},
};
use crate::fail_point::FailPoint;

/// How long what is written may stay unsynced: so much is lost with the power where durability is
/// not strict.
const SYNC_INTERVAL: Duration = Duration::from_millis(50);
/// How long records wait for more of them, as a large batch costs a store less than many small
/// ones; and the silence after which no more are waited for.
const LONGEST_LINGER: Duration = Duration::from_millis(250);
const QUIET: Duration = Duration::from_millis(20);
/// The pause after a batch that failed; doubled with each further one up to the most.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Syncs what is written, every [`SYNC_INTERVAL`] while anything is, until the writer has ended.
pub(super) async fn sync(shared: Arc<Shared>) {
    let mut hurried = shared.hurried.subscribe();
    loop {
        tokio::select! {
            () = shared.dirty.notified() => {}
            () = shared.ended.cancelled() => return,
        }
        // In strict durability the writer has synced it.
        if shared.state.is_dirty() {
            tokio::select! {
                () = sleep(SYNC_INTERVAL) => {}
                _ = hurried.wait_for(|to| *to > shared.state.synced()) => {}
                () = shared.ended.cancelled() => return,
            }
        }
        match sync_now(&shared).await {
            Ok(()) => {
                shared.is_sync_failing.store(false, Ordering::Relaxed);
                shared.synced.notify_one();
                shared.seal.grown.notify_one();
            }
            Err(error) => {
                if !shared.is_sync_failing.swap(true, Ordering::Relaxed) {
                    tracing::error!(%error, "the audit spool can't be synced: calls are refused");
                }
                sleep(SYNC_INTERVAL).await;
                shared.dirty.notify_one();
            }
        }
    }
}

async fn sync_now(shared: &Shared) -> io::Result<()> {
    if !shared.state.is_dirty() {
        return Ok(());
    }
    let state = Arc::clone(&shared.state);
    shared.syncing.begin();
    let synced = spawn_blocking(move || state.sync()).await;
    shared.syncing.end();
    synced.unwrap_or_else(|lost| Err(lost.into())).map(drop)
}

/// A batch did not get from the spool to the store.
#[derive(Debug, thiserror::Error)]
enum ShipError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Sink(#[from] SinkError),
}

/// Brings what is synced to the store.
pub(super) struct Shipper {
    sink: Arc<dyn AuditSink>,
    shared: Arc<Shared>,
    /// Away while a blocking thread reads with it.
    reader: Option<SpoolReader>,
}

impl Shipper {
    pub(super) fn new(sink: Arc<dyn AuditSink>, reader: SpoolReader, shared: Arc<Shared>) -> Self {
        Self { sink, shared, reader: Some(reader) }
    }

    /// Until all is shipped and no more comes. Once no more comes it gives up at the first failure:
    /// the next start goes on.
    pub(super) async fn run(mut self) {
        let _done = self.shared.done.clone().drop_guard();
        let abandon = self.shared.abandon.clone();
        if abandon.run_until_cancelled(self.ship_all()).await.is_some() {
            // What is not removed is shipped once more after the next start, which does no harm.
            let _ = self.blocking(SpoolReader::remove_finished).await;
        }
        let left = self.shared.state.unshipped();
        if left > 0 {
            tracing::info!(entries = left, "audit entries stay in the spool for the next start");
        }
    }

    async fn ship_all(&mut self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let has_ended = self.shared.ended.is_cancelled();
            if !self.shared.state.has_shippable() {
                if has_ended {
                    return;
                }
                tokio::select! {
                    () = self.shared.synced.notified() => {}
                    () = self.shared.ended.cancelled() => {}
                }
                continue;
            }
            self.linger().await;
            match self.ship().await {
                Ok(()) => pause = FIRST_PAUSE,
                Err(error) => {
                    self.tell(&error);
                    if has_ended {
                        return;
                    }
                    tokio::select! {
                        () = sleep(pause) => pause = LONGEST_PAUSE.min(pause * 2),
                        () = self.shared.ended.cancelled() => {}
                    }
                }
            }
        }
    }

    /// Waits for more, unless somebody waits for what is there.
    async fn linger(&self) {
        let shared = &*self.shared;
        let mut hurried = shared.hurried.subscribe();
        let started = Instant::now();
        while started.elapsed() < LONGEST_LINGER && shared.state.unshipped() < BATCH_RECORDS as u64
        {
            let before = shared.state.committed();
            tokio::select! {
                () = sleep(QUIET) => {}
                _ = hurried.wait_for(|to| *to > shared.state.shipped()) => return,
                () = shared.ended.cancelled() => return,
            }
            if shared.state.committed() == before {
                return;
            }
        }
    }

    /// One batch.
    async fn ship(&mut self) -> Result<(), ShipError> {
        let records = self.blocking(SpoolReader::read).await.map_err(ReadError::Disk)?;
        // What was kept aside as damaged is not waited for.
        self.tell_shipped();
        let Some(reader) = self.reader.as_mut().filter(|_| records > 0) else { return Ok(()) };
        let batch = reader.batch()?;
        FailPoint::BeforeShip.hit();
        // A panic is the batch's alone: else nothing would ever be shipped again.
        let append = AssertUnwindSafe(self.sink.append(&batch)).catch_unwind();
        let deadline = self.sink.deadline();
        match timeout(deadline, append).await {
            Ok(Ok(appended)) => appended?,
            Ok(Err(_)) => return Err(SinkError::Panicked.into()),
            Err(_) => return Err(SinkError::TimedOut(deadline.as_secs()).into()),
        }
        drop(batch);
        FailPoint::MidShip.hit();
        self.shared.dead_letters.store(self.sink.dead_letters(), Ordering::Relaxed);
        let is_segment_done = reader.acknowledge();
        FailPoint::AfterAck.hit();
        if self.shared.is_store_failing.swap(false, Ordering::Relaxed) {
            tracing::info!("the audit store can be written again");
        }
        self.tell_shipped();
        if is_segment_done {
            self.blocking(SpoolReader::remove_finished).await.map_err(ReadError::Disk)?;
        }
        Ok(())
    }

    fn tell_shipped(&self) {
        let shipped = self.shared.state.shipped();
        self.shared.shipped.send_if_modified(|told| std::mem::replace(told, shipped) != shipped);
    }

    fn tell(&self, error: &ShipError) {
        if !self.shared.is_store_failing.swap(true, Ordering::Relaxed) {
            let waiting = self.shared.state.unshipped();
            tracing::error!(%error, waiting, "audit entries stay in the spool; calls go on");
        }
    }

    /// Lends the reader to a thread that may block.
    async fn blocking<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut SpoolReader) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let gone = || io::Error::other("the reader of the audit spool is gone");
        let mut reader = self.reader.take().ok_or_else(gone)?;
        let worked = spawn_blocking(move || {
            let result = work(&mut reader);
            (reader, result)
        });
        let (reader, result) = worked.await?;
        self.reader = Some(reader);
        result
    }
}
