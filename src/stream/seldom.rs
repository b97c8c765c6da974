//! What is waited for beside a stream's events, and seldom comes: a deadline, a hang-up, a stop.

use std::{
    fmt,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use tokio::time::{Instant, Sleep};

/// A future that is polled only when it said so, however often its task is polled for other
/// things. In a task that carries a stream, to poll each timer and each token at every event would
/// cost as much as to read the event.
pub struct Seldom<F> {
    future: Pin<Box<F>>,
    bell: Arc<Bell>,
    /// Rings the bell.
    waker: Waker,
    /// Whom the bell wakes.
    task: Option<Waker>,
}

#[derive(Default)]
struct Bell {
    rang: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rang.store(true, Ordering::Release);
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl<F> fmt::Debug for Seldom<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seldom").field("bell", &self.bell.rang).finish_non_exhaustive()
    }
}

impl<F: Future> Seldom<F> {
    pub fn new(future: F) -> Self {
        let bell = Arc::<Bell>::default();
        let waker = Waker::from(Arc::clone(&bell));
        Self { future: Box::pin(future), bell, waker, task: None }
    }
}

impl Seldom<Sleep> {
    /// When it is due.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.future.deadline()
    }

    pub fn reset(&mut self, deadline: Instant) {
        self.future.as_mut().reset(deadline);
        // Its waker has to be registered anew.
        self.bell.rang.store(true, Ordering::Release);
    }
}

impl<F: Future> Future for Seldom<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        if !self.task.as_ref().is_some_and(|task| task.will_wake(context.waker())) {
            let task = Some(context.waker().clone());
            self.task.clone_from(&task);
            *self.bell.task.lock().unwrap_or_else(PoisonError::into_inner) = task;
            // The first poll, or one in another task, which may have missed a wake-up.
            self.bell.rang.store(true, Ordering::Release);
        }
        // Taken back before the poll: a wake-up during it is for the next one.
        if !self.bell.rang.load(Ordering::Acquire) || !self.bell.rang.swap(false, Ordering::AcqRel)
        {
            return Poll::Pending;
        }
        let this = &mut *self;
        this.future.as_mut().poll(&mut Context::from_waker(&this.waker))
    }
}
