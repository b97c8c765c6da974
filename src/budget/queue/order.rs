//! Whose turn it is: weighted fair queueing over the callers of one key.
//!
//! Each caller has a due time in virtual time, which is counted in rounds: one round lets in
//! `weight` calls of each caller. The caller that is due first goes first, and each call let in
//! puts it off by `1 / weight`. Virtual time goes on by one call's share of a round for each call
//! let in (as in WF²Q+), so later arrivals, however many, cannot hold back who waits already.
//!
//! This is what deficit round-robin approximates, and does the one thing that it does not: it
//! remembers a caller whose only call is running. Deficit round-robin drops such a caller from
//! the round and sends it to the end when it comes back, past the runaway that never left: of
//! eight slots and eleven callers, a runaway got 2.5 times what each of the others did (Jain's
//! index 0.87), where it is to get the same.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::Arc,
};

use tokio::sync::Notify;

/// One round of virtual time. Fine enough for any weight up to [`WEIGHT_LIMIT`], and 64 bits of
/// it last for 10¹² rounds.
const ROUND: u64 = 1 << 24;

/// A larger weight counts as this: a call's share stays well above virtual time's resolution.
const WEIGHT_LIMIT: u32 = 1 << 16;

/// Callers without a waiting call that are remembered. There are hardly more of them than calls
/// run; forgetting one lets it come back as if it were new.
const AWAY_LIMIT: usize = 4_096;

/// A call that waits.
#[derive(Debug)]
pub(super) struct Waiter {
    /// Rises with the order of arrival.
    pub(super) id: u64,
    pub(super) wake: Arc<Notify>,
}

/// The callers of one key, and their waiting calls.
#[derive(Debug, Default)]
pub(super) struct Order {
    now: u64,
    turns: u64,
    waiting: usize,
    /// Of the callers that wait or run: what a round is made of.
    weights: u64,
    lines: HashMap<Arc<str>, Line>,
    /// Callers with a waiting call: (due, turn, caller).
    due: BTreeSet<(u64, u64, Arc<str>)>,
    /// Callers without one that have a call running or are not due yet: (is one running, due,
    /// caller), so that who can be forgotten first is first.
    away: BTreeSet<(bool, u64, Arc<str>)>,
    /// Callers with several waiting calls: (calls for each weight, caller).
    crowds: BTreeSet<(u64, Arc<str>)>,
}

/// One caller's waiting calls, first come first served.
#[derive(Debug)]
struct Line {
    weight: u32,
    due: u64,
    /// Among callers that are due at once, the one that became it first goes first.
    turn: u64,
    calls: VecDeque<Waiter>,
    /// Calls that were let in from here and have not ended, as far as is known.
    running: u32,
}

impl Line {
    fn position(&self, id: u64) -> Option<usize> {
        self.calls.binary_search_by_key(&id, |call| call.id).ok()
    }

    fn active_weight(&self) -> u64 {
        let is_active = !self.calls.is_empty() || self.running > 0;
        if is_active { u64::from(self.weight) } else { 0 }
    }
}

/// How much of the waiting room a caller holds, measured by its weight.
fn crowd(calls: usize, weight: u32) -> u64 {
    (calls as u64).saturating_mul(ROUND) / u64::from(weight)
}

fn sane(weight: u32) -> u32 {
    weight.clamp(1, WEIGHT_LIMIT)
}

impl Order {
    /// How many calls wait.
    pub(super) const fn waiting(&self) -> usize {
        self.waiting
    }

    /// The call whose turn it is.
    pub(super) fn first(&self) -> Option<&Waiter> {
        let (_, _, caller) = self.due.first()?;
        self.lines.get(caller)?.calls.front()
    }

    pub(super) fn contains(&self, caller: &str, id: u64) -> bool {
        self.lines.get(caller).is_some_and(|line| line.position(id).is_some())
    }

    /// Puts a call at the end of its caller's line. The weight is the caller's from now on.
    pub(super) fn push(&mut self, caller: &Arc<str>, weight: u32, waiter: Waiter) {
        let fresh = Line { weight: 1, due: self.now, turn: 0, calls: VecDeque::new(), running: 0 };
        let mut line = self.take_out(caller).unwrap_or(fresh);
        if line.calls.is_empty() {
            line.turn = self.next_turn();
            line.due = line.due.max(self.now);
        }
        line.weight = sane(weight);
        line.calls.push_back(waiter);
        self.waiting += 1;
        self.put_in(caller, line);
    }

    /// Takes a call out that gave up, if it is still there.
    pub(super) fn remove(&mut self, caller: &Arc<str>, id: u64) {
        let Some(mut line) = self.take_out(caller) else { return };
        let gone = line.position(id).and_then(|at| line.calls.remove(at));
        self.waiting -= usize::from(gone.is_some());
        self.put_in(caller, line);
    }

    /// Takes a call out that was let in, and charges its caller for it.
    pub(super) fn admit(&mut self, caller: &Arc<str>, id: u64) {
        let Some(mut line) = self.take_out(caller) else { return };
        let gone = line.position(id).and_then(|at| line.calls.remove(at));
        self.waiting -= usize::from(gone.is_some());
        line.running = line.running.saturating_add(1);
        let round = self.weights + line.active_weight();
        self.now = self.now.max(line.due) + (ROUND / round.max(1)).max(1);
        line.due += ROUND / u64::from(line.weight);
        line.turn = self.next_turn();
        self.put_in(caller, line);
        self.forget();
    }

    /// A call of this caller has ended.
    pub(super) fn ended(&mut self, caller: &str) {
        let Some((caller, _)) = self.lines.get_key_value(caller) else { return };
        let caller = Arc::clone(caller);
        let Some(mut line) = self.take_out(&caller) else { return };
        line.running = line.running.saturating_sub(1);
        self.put_in(&caller, line);
    }

    /// Makes room for one more call of `caller` where another caller, measured by its weight,
    /// holds more of the waiting room than this one would then: its newest call has to go.
    /// Nobody's only call does.
    pub(super) fn evict_for(&mut self, caller: &str, weight: u32) -> Option<Waiter> {
        let calls = self.lines.get(caller).map_or(0, |line| line.calls.len());
        let (largest, victim) = self.crowds.last()?.clone();
        if largest <= crowd(calls + 1, sane(weight)) {
            return None;
        }
        let mut line = self.take_out(&victim)?;
        let newest = line.calls.pop_back();
        self.waiting -= usize::from(newest.is_some());
        self.put_in(&victim, line);
        newest
    }

    const fn next_turn(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }

    /// Takes a caller out of every index, to be changed.
    fn take_out(&mut self, caller: &Arc<str>) -> Option<Line> {
        let line = self.lines.remove(caller)?;
        self.weights -= line.active_weight();
        if line.calls.is_empty() {
            self.away.remove(&(line.running > 0, line.due, Arc::clone(caller)));
        } else {
            self.due.remove(&(line.due, line.turn, Arc::clone(caller)));
            self.crowds.remove(&(crowd(line.calls.len(), line.weight), Arc::clone(caller)));
        }
        Some(line)
    }

    /// Puts a caller back, unless there is nothing to remember of it.
    fn put_in(&mut self, caller: &Arc<str>, line: Line) {
        if !line.calls.is_empty() {
            self.due.insert((line.due, line.turn, Arc::clone(caller)));
            if line.calls.len() > 1 {
                self.crowds.insert((crowd(line.calls.len(), line.weight), Arc::clone(caller)));
            }
        } else if line.running > 0 || line.due > self.now {
            self.away.insert((line.running > 0, line.due, Arc::clone(caller)));
        } else {
            return;
        }
        self.weights += line.active_weight();
        self.lines.insert(Arc::clone(caller), line);
    }

    /// Drops who would come back just as a new caller does.
    fn forget(&mut self) {
        while let Some((is_running, due, _)) = self.away.first()
            && (!is_running && *due <= self.now || self.away.len() > AWAY_LIMIT)
            && let Some((_, _, caller)) = self.away.pop_first()
        {
            if let Some(line) = self.lines.remove(&caller) {
                self.weights -= line.active_weight();
            }
        }
    }
}
