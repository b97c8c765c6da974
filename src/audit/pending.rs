//! What becomes of an intent while its call waits, and of one whose call has gone.

use tokio::sync::oneshot;

use super::{Audit, Entry, writer};

/// An intent whose outcome its call is waiting for.
pub(super) struct PendingIntent<'a> {
    /// The writer sends the entry back once it is durable.
    written: oneshot::Receiver<Box<Entry>>,
    audit: &'a Audit,
}

impl<'a> PendingIntent<'a> {
    pub(super) const fn new(written: oneshot::Receiver<Box<Entry>>, audit: &'a Audit) -> Self {
        Self { written, audit }
    }

    /// An error says that it was not written.
    pub(super) const fn outcome(&mut self) -> &mut oneshot::Receiver<Box<Entry>> {
        &mut self.written
    }

    /// The entry, if it was written and nobody has taken note yet. The writer sees from now on
    /// that nobody waits.
    pub(super) fn take(&mut self) -> Option<Box<Entry>> {
        self.written.close();
        self.written.try_recv().ok()
    }
}

impl Drop for PendingIntent<'_> {
    /// A call given up between its intent's commit and hearing of it would else stay open.
    fn drop(&mut self) {
        if let Some(intent) = self.take() {
            self.audit.record_later(writer::canceled(&intent));
        }
    }
}
