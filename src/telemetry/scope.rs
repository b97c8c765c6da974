//! For which call a thread works just now: the log's lines bear that call's ids.
//!
//! It is no span of `tracing`. That would cost each request a place in a registry, its fields' text,
//! and a look at each layer's filter whenever it is entered, for ids that most calls never print.

use std::{
    cell::Cell,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;

use crate::domain::RequestId;

thread_local! {
    static CURRENT: Cell<Scope> = const { Cell::new(Scope(None)) };
}

/// What a line says of its call.
#[derive(Debug)]
pub(super) struct Ids {
    pub trace_id: u128,
    pub request_id: RequestId,
}

/// A call, as far as the log is concerned, or none. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Scope(Option<Arc<Ids>>);

impl Scope {
    pub(super) fn new(trace_id: u128, request_id: RequestId) -> Self {
        Self(Some(Arc::new(Ids { trace_id, request_id })))
    }

    /// The call that this thread works for.
    #[must_use]
    pub fn current() -> Self {
        look(Self::clone)
    }

    /// Does `work` for this call.
    pub fn enter<T>(&self, work: impl FnOnce() -> T) -> T {
        let mut scope = self.clone();
        let _entered = Entered::new(&mut scope);
        work()
    }

    /// Does `future`'s work for this call.
    pub const fn run<F>(self, future: F) -> InScope<F> {
        InScope { future, scope: self }
    }
}

pin_project! {
    /// See [`Scope::run`].
    #[derive(Debug)]
    pub struct InScope<F> {
        #[pin]
        future: F,
        // In the thread's place while the future is polled, and the thread's here.
        scope: Scope,
    }
}

impl<F: Future> Future for InScope<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _entered = Entered::new(this.scope);
        this.future.poll(context)
    }
}

/// Shows `seen` the ids that a line is to bear.
pub(super) fn ids<T>(seen: impl FnOnce(Option<&Ids>) -> T) -> T {
    look(|scope| seen(scope.0.as_deref()))
}

fn look<T>(seen: impl FnOnce(&Scope) -> T) -> T {
    // At a thread's end there is no place for it any more.
    let scope = CURRENT.try_with(Cell::take).unwrap_or_default();
    let result = seen(&scope);
    let _ = CURRENT.try_with(|current| current.set(scope));
    result
}

/// The thread's scope and this one are in each other's place for as long as it lives.
struct Entered<'a>(&'a mut Scope);

impl<'a> Entered<'a> {
    fn new(scope: &'a mut Scope) -> Self {
        exchange(scope);
        Self(scope)
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        exchange(self.0);
    }
}

fn exchange(scope: &mut Scope) {
    let _ = CURRENT.try_with(|current| *scope = current.replace(std::mem::take(scope)));
}
