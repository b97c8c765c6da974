//! From the task that owns a call to the body of its answer: one writer, one reader.
//!
//! Bounded in bytes, where tokio's channel counts messages; a tenth of its size, as thousands of
//! streams have one each; and the writer is told at once when the reader is dropped.

use std::{
    collections::VecDeque,
    future::poll_fn,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;

use super::Gone;

/// A channel that takes more while fewer than `limit_bytes` wait in it: it may hold as much and
/// one piece.
#[must_use]
pub fn channel(limit_bytes: usize) -> (Sender, Receiver) {
    let shared = Arc::new(Shared { limit_bytes, state: Mutex::default() });
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

#[derive(Debug)]
struct Shared {
    limit_bytes: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pieces: VecDeque<Bytes>,
    waiting_bytes: usize,
    is_written_out: bool,
    is_unread: bool,
    /// Waits for pieces, if they are awaited.
    reader: Option<Waker>,
    is_awaited: bool,
    /// Waits for room.
    writer: Option<Waker>,
    /// Waits for the reader to go.
    watcher: Option<Waker>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics half way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a task's waker, without cloning the one that is there already.
fn keep(slot: &mut Option<Waker>, context: &Context<'_>) {
    if !slot.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
        *slot = Some(context.waker().clone());
    }
}

/// Wakes outside of the lock: who is woken will want it.
fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// The writing end. When it is dropped, the reader comes to an end after what is there.
#[derive(Debug)]
pub struct Sender(Arc<Shared>);

impl Sender {
    /// Waits for room, and hands `piece` over.
    ///
    /// # Errors
    /// [`Gone`]: the receiver was dropped.
    pub async fn send(&mut self, piece: Bytes) -> Result<(), Gone> {
        let mut piece = Some(piece);
        poll_fn(|context| {
            let mut state = self.0.lock();
            if state.is_unread {
                return Poll::Ready(Err(Gone));
            }
            if state.waiting_bytes >= self.0.limit_bytes {
                keep(&mut state.writer, context);
                return Poll::Pending;
            }
            if let Some(piece) = piece.take() {
                state.waiting_bytes += piece.len();
                state.pieces.push_back(piece);
            }
            // By reference and within the lock: the reader's task registers the same waker again,
            // and to clone one for each piece costs more than the lock is held for.
            if mem::take(&mut state.is_awaited)
                && let Some(reader) = &state.reader
            {
                reader.wake_by_ref();
            }
            Poll::Ready(Ok(()))
        })
        .await
    }

    /// Sees the reader go, for who does not write.
    #[must_use]
    pub fn watch(&self) -> Watch {
        Watch(Arc::clone(&self.0))
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_written_out = true;
        let reader = state.reader.take();
        drop(state);
        wake(reader);
    }
}

/// Sees a channel's reader go. One of its waits at a time is woken.
#[derive(Debug)]
pub struct Watch(Arc<Shared>);

impl Watch {
    /// Waits until the receiver is dropped.
    pub async fn gone(&self) {
        poll_fn(|context| {
            let mut state = self.0.lock();
            if state.is_unread {
                return Poll::Ready(());
            }
            keep(&mut state.watcher, context);
            Poll::Pending
        })
        .await;
    }
}

/// The reading end.
#[derive(Debug)]
pub struct Receiver(Arc<Shared>);

impl Receiver {
    /// The next piece; `None` after the last one, once the sender is dropped.
    pub fn poll_receive(&mut self, context: &Context<'_>) -> Poll<Option<Bytes>> {
        let mut state = self.0.lock();
        if let Some(piece) = state.pieces.pop_front() {
            state.waiting_bytes -= piece.len();
            let writer = state.writer.take();
            drop(state);
            wake(writer);
            return Poll::Ready(Some(piece));
        }
        if state.is_written_out {
            return Poll::Ready(None);
        }
        keep(&mut state.reader, context);
        state.is_awaited = true;
        Poll::Pending
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_unread = true;
        state.pieces = VecDeque::new();
        state.waiting_bytes = 0;
        let (writer, watcher) = (state.writer.take(), state.watcher.take());
        drop(state);
        wake(writer);
        wake(watcher);
    }
}
