//! The waiting room of one key: who is at the head of it, and when the head may try.

use std::sync::Arc;

use tokio::{sync::Notify, time::Instant};

use super::{
    QUEUE_RETRY,
    order::{Order, Waiter},
};

/// Calls that wait for a slot of one key. There is one only while somebody waits.
#[derive(Debug)]
pub(super) struct Room {
    order: Order,
    /// Whose turn it was when that was last looked at. It alone may try.
    head: Option<u64>,
    is_trying: bool,
    /// Slots that are known to have become free and that nobody has tried yet.
    freed: usize,
    /// Whether there may be another that is not known of, because one was just found.
    may_have_more: bool,
    /// When the head tries by itself: slots also become free in other replicas.
    retry_at: Instant,
}

/// What a waiting call is to do.
#[derive(Debug)]
pub(super) enum Step {
    Try(Attempt),
    SleepUntil(Instant),
    /// It had to make room.
    Evicted,
    TimedOut,
}

/// How many free slots were known of when an attempt began: it is for one of them, or, where
/// there is none, for one that may have become free elsewhere.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    freed: usize,
}

/// There is no place in the room, and its caller has its share of them.
#[derive(Debug)]
pub(super) struct Crowded;

/// A waiting call's name: its caller and its number.
#[derive(Debug, Clone)]
pub(super) struct Ticket {
    pub(super) caller: Arc<str>,
    pub(super) id: u64,
    pub(super) deadline: Instant,
}

impl Room {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            order: Order::default(),
            head: None,
            is_trying: false,
            freed: 0,
            may_have_more: false,
            retry_at: now + QUEUE_RETRY,
        }
    }

    pub(super) const fn waiting(&self) -> usize {
        self.order.waiting()
    }

    /// Makes room for one more call where the room holds `max_waiting`: `Err` where there is
    /// none for this caller, else whom to wake because it has lost its place.
    pub(super) fn make_place(
        &mut self,
        caller: &str,
        weight: u32,
        max_waiting: usize,
    ) -> Result<Option<Arc<Notify>>, Crowded> {
        if self.order.waiting() < max_waiting {
            return Ok(None);
        }
        self.order.evict_for(caller, weight).map(|waiter| Some(waiter.wake)).ok_or(Crowded)
    }

    pub(super) fn push(&mut self, ticket: &Ticket, weight: u32, wake: Arc<Notify>) {
        self.order.push(&ticket.caller, weight, Waiter { id: ticket.id, wake });
    }

    /// A slot has become free. It counts for no more calls than wait.
    pub(super) fn free(&mut self, slots: usize) {
        self.freed = self.freed.saturating_add(slots).min(self.order.waiting());
    }

    pub(super) fn ended(&mut self, caller: &str) {
        self.order.ended(caller);
    }

    /// Looks whose turn it is: whom to wake for it, if it isn't asleep with good reason.
    pub(super) fn elect(&mut self) -> Option<Arc<Notify>> {
        if self.is_trying {
            return None;
        }
        let first = self.order.first();
        let is_new = self.head != first.map(|waiter| waiter.id);
        let wake =
            first.filter(|_| is_new || self.has_hope()).map(|waiter| Arc::clone(&waiter.wake));
        self.head = first.map(|waiter| waiter.id);
        wake
    }

    pub(super) fn step(&mut self, ticket: &Ticket, now: Instant) -> Step {
        if !self.order.contains(&ticket.caller, ticket.id) {
            return Step::Evicted;
        }
        if now >= ticket.deadline {
            return Step::TimedOut;
        }
        if self.is_trying || self.head != Some(ticket.id) {
            return Step::SleepUntil(ticket.deadline);
        }
        if !self.has_hope() && now < self.retry_at {
            return Step::SleepUntil(ticket.deadline.min(self.retry_at));
        }
        self.is_trying = true;
        self.may_have_more = false;
        Step::Try(Attempt { freed: std::mem::take(&mut self.freed) })
    }

    /// The attempt found no slot: what was known of free ones is out of date, but for what was
    /// heard of since it began.
    pub(super) fn was_refused(&mut self, now: Instant) {
        self.is_trying = false;
        self.retry_at = now + QUEUE_RETRY;
    }

    /// The attempt got a slot. Where none was known of, another replica has freed it, and maybe
    /// more: an instance's calls expire together. So the next tries at once.
    pub(super) fn was_admitted(&mut self, ticket: &Ticket, attempt: Attempt, now: Instant) {
        self.order.admit(&ticket.caller, ticket.id);
        self.is_trying = false;
        self.retry_at = now + QUEUE_RETRY;
        self.may_have_more |= attempt.freed == 0;
        self.free(attempt.freed.saturating_sub(1));
    }

    /// The call left without a slot. What it was trying for is still there for the next.
    pub(super) fn leave(&mut self, ticket: &Ticket, attempt: Option<Attempt>) {
        self.order.remove(&ticket.caller, ticket.id);
        if let Some(attempt) = attempt {
            self.is_trying = false;
            self.may_have_more |= attempt.freed == 0;
            self.freed = self.freed.saturating_add(attempt.freed);
        }
        self.free(0);
    }

    const fn has_hope(&self) -> bool {
        self.freed > 0 || self.may_have_more
    }
}
