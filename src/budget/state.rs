//! How one bucket's state moves: the arithmetic that the stores have in common (Redis does the
//! same in Lua). All in integers; times in microseconds since 1970.

use super::{Limit, Period, Spent, Standing, window::Window};

/// A bucket's state, whatever its limit is: it starts with nothing taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct State {
    /// A rate's theoretical arrival time (GCRA): until then it leaks.
    arrival: u64,
    /// All that was ever refunded to a rate, in microseconds.
    refunded: u64,
    /// Slots taken; or what was charged in the window, reservations included.
    used: u64,
    /// Of `used`, reservations that are open.
    reserved: u64,
    /// What earlier windows had spent beyond their limit.
    debt: u64,
    /// Which window `used` is of.
    window: u64,
    window_end: u64,
    /// What one window pays for.
    limit: u64,
    /// Reservations that are open.
    open: u32,
}

/// What a reservation took of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    amount: u64,
    /// A rate's arrival time after it, plus `refunded` then; or the window.
    mark: u64,
}

/// How long a bucket stays short. Ordered by how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Short {
    UntilACallEnds,
    For(u64),
    /// More than it ever holds.
    Ever,
}

impl Short {
    pub(super) const fn retry_after_micros(self) -> Option<u64> {
        match self {
            Self::For(micros) => Some(micros),
            Self::UntilACallEnds | Self::Ever => None,
        }
    }
}

impl State {
    /// From its numbers, in the order of its fields: as another store keeps them. That store
    /// lets go of idle buckets in its own way.
    pub(super) const fn from_numbers(numbers: [u64; 7]) -> Self {
        let [arrival, refunded, used, reserved, debt, window, window_end] = numbers;
        Self { arrival, refunded, used, reserved, debt, window, window_end, limit: 0, open: 0 }
    }

    /// Does it say no more than a new one would?
    pub(super) const fn is_idle(&self, now: u64) -> bool {
        // A window's end pays for what was spent in it; what is beyond is owed still.
        let is_paid = self.window_end <= now && self.used.saturating_add(self.debt) <= self.limit;
        self.open == 0 && self.arrival <= now && (is_paid || (self.used == 0 && self.debt == 0))
    }

    /// Begins the window that `now` lies in, and says when it ends. A clock that steps back stays
    /// in the later one.
    fn roll(&mut self, period: Period, limit: u64, now: u64) -> u64 {
        if self.window != 0 && now < self.window_end {
            return self.window_end;
        }
        let window = Window::at(period, now);
        let passed = if self.window == 0 { 0 } else { window.index - self.window };
        // Each window that has passed pays for as much as it allowed.
        let spent = self.used.saturating_add(self.debt);
        self.debt = spent.saturating_sub(limit.saturating_mul(passed));
        (self.used, self.reserved) = (0, 0);
        (self.window, self.window_end, self.limit) = (window.index, window.end_micros, limit);
        window.end_micros
    }
}

/// Has the bucket room for `amount`?
pub(super) fn check(limit: &Limit, state: &State, amount: u64, now: u64) -> Result<(), Short> {
    if amount > limit.most() {
        return Err(Short::Ever);
    }
    match *limit {
        Limit::Rate { .. } => {
            let full = now.saturating_add(limit.burst_micros());
            let next = state.arrival.max(now).saturating_add(limit.rate_micros(amount));
            if next > full { Err(Short::For(next - full)) } else { Ok(()) }
        }
        Limit::Slots(slots) => {
            if state.used >= u64::from(slots) {
                Err(Short::UntilACallEnds)
            } else {
                Ok(())
            }
        }
        Limit::Window { period, limit, .. } => {
            let mut state = *state;
            let end = state.roll(period, limit, now);
            let taken = state.used.saturating_add(state.debt);
            if taken.saturating_add(amount) <= limit {
                return Ok(());
            }
            Err(Short::For(until_room(&state, period, limit, amount, end, now)))
        }
    }
}

/// Until the first window in which `amount` fits, debts paid.
fn until_room(s: &State, period: Period, limit: u64, amount: u64, end: u64, now: u64) -> u64 {
    let mut debt = s.used.saturating_add(s.debt).saturating_sub(limit);
    let mut end = end;
    // A debt of many windows is a mistake that nobody waits out; the answer stays a bound.
    for _ in 0..64 {
        if debt.saturating_add(amount) <= limit {
            break;
        }
        debt = debt.saturating_sub(limit);
        end = Window::at(period, end).end_micros;
    }
    end.saturating_sub(now)
}

/// Takes `amount`, for which there is room.
pub(super) fn take(limit: &Limit, state: &mut State, amount: u64, now: u64) -> Entry {
    state.open = state.open.saturating_add(1);
    match *limit {
        Limit::Rate { .. } => {
            state.arrival = state.arrival.max(now).saturating_add(limit.rate_micros(amount));
            Entry { amount, mark: state.arrival.saturating_add(state.refunded) }
        }
        Limit::Slots(_) => {
            state.used += 1;
            Entry { amount: 1, mark: 0 }
        }
        Limit::Window { period, limit, .. } => {
            state.roll(period, limit, now);
            state.used = state.used.saturating_add(amount);
            state.reserved = state.reserved.saturating_add(amount);
            Entry { amount, mark: state.window }
        }
    }
}

/// Puts what was spent in the place of what was reserved.
pub(super) fn settle(limit: &Limit, state: &mut State, entry: &Entry, spent: Spent, now: u64) {
    state.open = state.open.saturating_sub(1);
    let actual = limit.measure().map_or(0, |measure| spent.of(measure, entry.amount));
    match *limit {
        Limit::Rate { .. } => {
            let (reserved, actual) = (limit.rate_micros(entry.amount), limit.rate_micros(actual));
            if actual > reserved {
                state.arrival = state.arrival.max(now).saturating_add(actual - reserved);
                return;
            }
            // What has leaked of it since can't be given back: to others that came after it, the
            // time that it took is gone. Refunds since then have moved it nearer.
            let left = entry.mark.saturating_sub(state.refunded).saturating_sub(now);
            let refund = (reserved - actual).min(left);
            state.arrival -= refund.min(state.arrival);
            state.refunded = state.refunded.saturating_add(refund);
        }
        Limit::Slots(_) => state.used = state.used.saturating_sub(1),
        Limit::Window { period, limit, .. } => {
            state.roll(period, limit, now);
            if entry.mark == state.window {
                state.reserved = state.reserved.saturating_sub(entry.amount);
                state.used = state.used.saturating_sub(entry.amount).saturating_add(actual);
            } else if actual > entry.amount {
                state.debt = state.debt.saturating_add(actual - entry.amount);
            } else {
                // Its window is over. Only what that one is still owed can be less.
                state.debt = state.debt.saturating_sub(entry.amount - actual);
            }
        }
    }
}

pub(super) fn standing(limit: &Limit, state: &State, now: u64) -> Standing {
    match *limit {
        Limit::Rate { burst, .. } => {
            let ahead = state.arrival.saturating_sub(now);
            let room = limit.burst_micros().saturating_sub(ahead);
            let remaining = limit.rate_amount(room).min(burst);
            let used = burst - remaining;
            Standing { limit: burst, used, reserved: 0, remaining, reset_micros: ahead }
        }
        Limit::Slots(slots) => {
            let limit = u64::from(slots);
            let remaining = limit.saturating_sub(state.used);
            Standing { limit, used: state.used, remaining, ..Standing::default() }
        }
        Limit::Window { period, limit, .. } => {
            let mut state = *state;
            let end = state.roll(period, limit, now);
            let taken = state.used.saturating_add(state.debt);
            Standing {
                limit,
                used: taken.saturating_sub(state.reserved),
                reserved: state.reserved,
                remaining: limit.saturating_sub(taken),
                reset_micros: end.saturating_sub(now),
            }
        }
    }
}
