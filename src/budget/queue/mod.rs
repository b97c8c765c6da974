//! Calls that wait for a slot, let in fairly: a runaway agent with a hundred parallel calls gets
//! its share and not more.
//!
//! The ledger holds the slots; what waits here are the attempts to get one. While nobody waits
//! for a key, a call tries at once. From the first refusal on, later calls of that key queue, in
//! the order of [`order`], and only the head of the queue tries: when a call of this process has
//! ended, and each [`QUEUE_RETRY`], as slots become free in other replicas and by expiry too.

mod order;
mod room;

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::BuildHasher as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use self::room::{Attempt, Crowded, Room, Step, Ticket};

/// How long the head of a queue waits until it tries by itself. A slot that becomes free where
/// this process doesn't see it lies idle no longer than that, and a full key costs the store no
/// more than twenty attempts a second from each replica.
pub const QUEUE_RETRY: Duration = Duration::from_millis(50);

/// Locks that the keys are spread over. Each is held for a few map operations.
const SHARDS: usize = 16;

/// What a wait without a bound comes to: further than this, the clock may not reach.
const FOREVER: Duration = Duration::from_hours(24 * 365);

/// How much may wait, and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueBounds {
    /// Calls for each key.
    pub max_waiting: usize,
    /// An attempt that is under way when it is over may still succeed.
    pub max_wait: Duration,
}

/// Who wants a slot, and of what.
#[derive(Debug, Clone, Copy)]
pub struct Claim<'a> {
    /// What the slots are of. All calls of a key must compete for the same slots: a head that
    /// waits for others than those behind it would hold them up.
    pub key: &'a str,
    /// Between whom shares are fair.
    pub caller: &'a str,
    /// The caller's share, relative to the others' of this key. 0 counts as 1.
    pub weight: u32,
}

/// A call that was let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entered<T> {
    /// What the attempt brought.
    pub grant: T,
    /// Zero where it did not queue.
    pub waited: Duration,
}

/// A call that was not let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused<E> {
    pub reason: RefusedReason,
    /// What the call's last attempt brought. Absent where it never had its turn: it queued behind
    /// others and [`RefusedReason`] is not `Attempt`.
    pub error: Option<E>,
    pub waited: Duration,
}

/// Why a call was not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedReason {
    /// Its attempt was refused for another reason than a lack of slots.
    Attempt,
    /// The waiting room is full, and the caller has its share of it.
    Crowded,
    /// It has waited for as long as it may.
    TimedOut,
}

impl<E> Refused<E> {
    /// The error of the call's last attempt, or the one of a call that finds no slot.
    pub fn into_error(self, no_slot: impl FnOnce() -> E) -> E {
        self.error.unwrap_or_else(no_slot)
    }
}

/// The queues of all keys. A queue exists while somebody waits in it.
#[derive(Debug)]
pub struct FairQueues {
    bounds: QueueBounds,
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Debug, Default)]
struct Shard {
    rooms: HashMap<Box<str>, Room>,
    tickets: u64,
    /// Counts what became free, so that a call which found no slot sees that one has become free
    /// before it could queue.
    freed: u64,
}

impl FairQueues {
    #[must_use]
    pub fn new(bounds: QueueBounds) -> Self {
        Self { bounds, hasher: RandomState::new(), shards: Default::default() }
    }

    /// Tries to get a slot, and queues where there is none: where `attempt` brings an error that
    /// `is_full` says yes to. Attempts of one call never overlap. Dropping the future gives the
    /// place up; an attempt that it cuts short must give back by itself what it may have got.
    ///
    /// Call [`Self::freed`] once for each call that was let in, when its slot is free again.
    ///
    /// # Errors
    /// Another error of `attempt` at once; else that there is no place, or none in time.
    pub async fn enter<T, E, A>(
        &self,
        claim: Claim<'_>,
        mut attempt: impl FnMut() -> A,
        is_full: impl Fn(&E) -> bool,
    ) -> Result<Entered<T>, Refused<E>>
    where
        A: Future<Output = Result<T, E>>,
    {
        let mut error = None;
        let joined = match self.join_behind(&claim) {
            Ok(joined) => joined,
            Err(freed_before) => match attempt().await {
                Ok(grant) => return Ok(Entered { grant, waited: Duration::ZERO }),
                Err(found) => {
                    let is_full = is_full(&found);
                    error = Some(found);
                    if !is_full {
                        let reason = RefusedReason::Attempt;
                        return Err(Refused { reason, error, waited: Duration::ZERO });
                    }
                    self.join(&claim, freed_before)
                }
            },
        };
        let Ok(mut place) = joined else {
            let reason = RefusedReason::Crowded;
            return Err(Refused { reason, error, waited: Duration::ZERO });
        };
        let reason = loop {
            if let Err(reason) = place.turn().await {
                break reason;
            }
            match attempt().await {
                Ok(grant) => return Ok(Entered { grant, waited: place.admitted() }),
                Err(found) => {
                    let is_full = is_full(&found);
                    error = Some(found);
                    if !is_full {
                        break RefusedReason::Attempt;
                    }
                    place.refused();
                }
            }
        };
        Err(Refused { reason, error, waited: place.waited() })
    }

    /// A call that was let in has ended, and its slot is free again: the next in turn tries.
    pub fn freed(&self, key: &str, caller: &str) {
        let mut shard = self.shard(key);
        shard.freed = shard.freed.wrapping_add(1);
        let Some(room) = shard.rooms.get_mut(key) else { return };
        room.ended(caller);
        room.free(1);
        let wake = room.elect();
        drop(shard);
        notify(wake);
    }

    /// How many calls wait, of all keys.
    #[must_use]
    pub fn waiting(&self) -> usize {
        let waiting = |shard| lock(shard).rooms.values().map(Room::waiting).sum::<usize>();
        self.shards.iter().map(waiting).sum()
    }

    /// How many keys have a queue.
    #[must_use]
    pub fn queues(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).rooms.len()).sum()
    }

    /// Queues where somebody waits already; else the count of freed slots so far.
    fn join_behind(&self, claim: &Claim<'_>) -> Result<Result<Place<'_>, Crowded>, u64> {
        let shard = self.shard(claim.key);
        if shard.rooms.contains_key(claim.key) {
            Ok(self.take_place(shard, claim, 0))
        } else {
            Err(shard.freed)
        }
    }

    /// Queues after an attempt that found no slot.
    fn join(&self, claim: &Claim<'_>, freed_before: u64) -> Result<Place<'_>, Crowded> {
        let shard = self.shard(claim.key);
        // Where there is a room by now, it was told itself of what became free since.
        let is_first = !shard.rooms.contains_key(claim.key);
        let missed = usize::from(is_first && shard.freed != freed_before);
        self.take_place(shard, claim, missed)
    }

    fn take_place<'a>(
        &'a self,
        mut shard: MutexGuard<'a, Shard>,
        claim: &Claim<'_>,
        freed: usize,
    ) -> Result<Place<'a>, Crowded> {
        let Claim { key, caller, weight } = *claim;
        let since = Instant::now();
        if self.bounds.max_waiting == 0 {
            return Err(Crowded);
        }
        shard.tickets += 1;
        let ticket = Ticket {
            caller: caller.into(),
            id: shard.tickets,
            deadline: since.checked_add(self.bounds.max_wait).unwrap_or(since + FOREVER),
        };
        let room = shard.rooms.entry(key.into()).or_insert_with(|| Room::new(since));
        let evicted = room.make_place(caller, weight, self.bounds.max_waiting)?;
        let wake = Arc::new(Notify::new());
        room.push(&ticket, weight, Arc::clone(&wake));
        room.free(freed);
        let elected = room.elect();
        drop(shard);
        notify(evicted);
        notify(elected);
        Ok(Place { queues: self, key: key.into(), ticket, wake, since, state: State::Waiting })
    }

    fn shard(&self, key: &str) -> MutexGuard<'_, Shard> {
        let hash = self.hasher.hash_one(key);
        // The remainder is less than SHARDS.
        let at = usize::try_from(hash % SHARDS as u64).unwrap_or_default();
        lock(&self.shards[at])
    }
}

/// Nothing panics half way under the lock, so poison is no harm.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes outside of the lock: who is woken will want it.
fn notify(wake: Option<Arc<Notify>>) {
    if let Some(wake) = wake {
        wake.notify_one();
    }
}

/// A place in a queue. Dropping it leaves the queue, and what it was woken for goes to the next.
struct Place<'a> {
    queues: &'a FairQueues,
    key: Box<str>,
    ticket: Ticket,
    wake: Arc<Notify>,
    since: Instant,
    state: State,
}

#[derive(Clone, Copy)]
enum State {
    Waiting,
    Trying(Attempt),
    Left,
}

impl Place<'_> {
    /// Waits until the call may try.
    async fn turn(&mut self) -> Result<(), RefusedReason> {
        loop {
            match self.with_room(|room, ticket| room.step(ticket, Instant::now())) {
                Some(Step::Try(attempt)) => {
                    self.state = State::Trying(attempt);
                    return Ok(());
                }
                Some(Step::SleepUntil(until)) => {
                    // Both mean: look again.
                    let _elapsed = timeout_at(until, self.wake.notified()).await;
                }
                Some(Step::TimedOut) => return Err(RefusedReason::TimedOut),
                Some(Step::Evicted) | None => return Err(RefusedReason::Crowded),
            }
        }
    }

    /// The attempt found no slot.
    fn refused(&mut self) {
        self.state = State::Waiting;
        self.with_room(|room, _| room.was_refused(Instant::now()));
    }

    /// The attempt got a slot: how long that took.
    fn admitted(&mut self) -> Duration {
        if let State::Trying(attempt) = self.state {
            self.with_room(|room, ticket| room.was_admitted(ticket, attempt, Instant::now()));
        }
        self.state = State::Left;
        self.waited()
    }

    fn waited(&self) -> Duration {
        self.since.elapsed()
    }

    /// Changes the room, then wakes whose turn it is, or removes the room where it is empty.
    fn with_room<R>(&self, change: impl FnOnce(&mut Room, &Ticket) -> R) -> Option<R> {
        let mut shard = self.queues.shard(&self.key);
        let room = shard.rooms.get_mut(&self.key)?;
        let result = change(room, &self.ticket);
        let wake = room.elect();
        if room.waiting() == 0 {
            shard.rooms.remove(&self.key);
        }
        drop(shard);
        notify(wake);
        Some(result)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let attempt = match self.state {
            State::Left => return,
            State::Waiting => None,
            State::Trying(attempt) => Some(attempt),
        };
        self.with_room(|room, ticket| room.leave(ticket, attempt));
    }
}
