//! The ledger that gateways share: buckets in one Redis (7 or newer).
//!
//! Every operation is one call of a script, so each is atomic; the server's clock alone decides.
//! All keys share one hash tag, so on a cluster they are on one node. The scripts do what
//! `state.rs` does; what is only told, not kept (standings, how long to wait), is computed here
//! from the states that they return.
//!
//! Redis must not evict keys (`maxmemory-policy noeviction`), and must keep them over a restart
//! (`appendonly yes`) where budgets are money: what it forgets can be spent again.

mod connection;
mod health;
mod script;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use async_trait::async_trait;
use secrecy::{ExposeSecret, SecretString};

pub use self::{
    connection::COMMAND_TIMEOUT,
    health::{Failure, LedgerHealth},
};
use self::{
    connection::{Pool, Reply},
    script::{Call, Scripts, Source, Word},
};
use super::{
    Bucket, Charge, Exhausted, Grant, Ledger, LedgerError, Limit, Measure, Period, RESERVATION_TTL,
    Refusal, Spent, Standing,
    state::{self, State},
};
use crate::domain::CallId;

/// What all keys begin with. The braces choose the cluster's slot.
pub const KEY_PREFIX: &str = "{tollgate}:";
/// How many expired reservations a call ends on the way: more than one, so that they get fewer.
const SWEEP: u64 = 16;
/// The same for a renewal, which nobody waits for.
const RENEW_SWEEP: u64 = 256;
/// A script stops the server, so it is kept short: some 500 ids take less than a millisecond.
const RENEW_IDS: usize = 500;
/// The same for ends: each settles a few buckets.
const ABANDON_IDS: usize = 100;
/// Above it a double isn't exact.
const MAX_AMOUNT: u64 = (1 << 53) - 1;
/// 71 years, as in the scripts.
const MAX_COST_MICROS: u64 = 1 << 51;
/// Numbers that a script returns for each bucket.
const STATE_NUMBERS: usize = 7;

/// Where the scripts take the time from.
#[derive(Debug, Clone)]
pub enum Clock {
    /// Redis's own.
    Server,
    /// Microseconds since 1970, given with each call: for tests, which let time pass as they like.
    Given(Arc<AtomicU64>),
}

impl Clock {
    const fn source(&self) -> &'static str {
        match self {
            Self::Server => {
                "local function clock() local t = redis.call('TIME') \
                 return tonumber(t[1]) * 1000000 + tonumber(t[2]) end\n"
            }
            Self::Given(_) => "local function clock() return tonumber(ARGV[1]) end\n",
        }
    }

    fn given(&self) -> u64 {
        match self {
            Self::Server => 0,
            Self::Given(clock) => clock.load(Ordering::Relaxed),
        }
    }
}

/// Buckets in Redis.
#[derive(Debug)]
pub struct RedisLedger {
    pool: Pool,
    scripts: Scripts,
    clock: Clock,
    prefix: String,
}

/// Why nothing was reserved.
#[derive(Debug)]
pub(super) enum Unreserved {
    Exhausted(Box<Exhausted>),
    Duplicate,
    Failed(Failure),
}

/// A script's answer.
struct Answer {
    outcome: i64,
    now: u64,
    states: Vec<State>,
    /// An earlier attempt may have done it.
    is_second: bool,
}

impl RedisLedger {
    /// Connects when it is first used; see [`RedisLedger::warm`].
    ///
    /// # Errors
    /// Where `url` is none. It is not shown.
    pub fn new(url: &SecretString) -> Result<Self, LedgerError> {
        Self::with(url, KEY_PREFIX, Clock::Server)
    }

    /// One with keys and a clock of its own. `prefix` holds the hash tag: `{name}:`.
    ///
    /// # Errors
    /// Where `url` is none. It is not shown.
    pub fn with(url: &SecretString, prefix: &str, clock: Clock) -> Result<Self, LedgerError> {
        let client = redis::Client::open(url.expose_secret());
        // Its error might quote the URL.
        let client = client.map_err(|_| LedgerError("this is no URL of a Redis".to_owned()))?;
        Ok(Self {
            pool: Pool::new(client, Arc::default()),
            scripts: Scripts::new(clock.source()),
            clock,
            prefix: prefix.to_owned(),
        })
    }

    /// Begins to connect, without waiting for it. To be called on a runtime.
    pub fn warm(&self) {
        self.pool.warm();
    }

    #[must_use]
    pub const fn health(&self) -> &Arc<LedgerHealth> {
        self.pool.health()
    }

    /// A call of a script: every one begins alike.
    fn call<'a>(&'a self, source: &'a Source, sweep: u64) -> Call<'a> {
        let mut keys = Vec::with_capacity(10);
        keys.push(format!("{}reservations", self.prefix));
        keys.push(format!("{}expiries", self.prefix));
        let mut words = Vec::with_capacity(48);
        words.extend([Word::Number(self.clock.given()), Word::Number(sweep)]);
        Call { source, keys, words }
    }

    fn bucket_key(&self, bucket: &Bucket) -> String {
        format!("{}bucket:{}", self.prefix, bucket.key())
    }

    async fn run(&self, call: Call<'_>) -> Result<Answer, Failure> {
        let reply = self.pool.run(&call).await?;
        Answer::parse(&reply).ok_or(Failure::Answer)
    }

    pub(super) async fn try_reserve(
        &self,
        id: CallId,
        charges: &[Charge],
    ) -> Result<Grant, Unreserved> {
        let never = charges.iter().any(|it| it.amount > it.bucket.limit.most().min(MAX_AMOUNT));
        let mut call = if never {
            // Nothing can be taken: it is only asked how the others stand.
            self.call(&self.scripts.standings, SWEEP)
        } else {
            self.call(&self.scripts.reserve, SWEEP)
        };
        call.keys.extend(charges.iter().map(|charge| self.bucket_key(&charge.bucket)));
        if !never {
            call.words.extend([Word::Id(id), ttl()]);
            call.words.extend(charges.iter().flat_map(charge_words));
        }
        let answer = self.run(call).await.map_err(Unreserved::Failed)?;
        match answer.outcome {
            0 if !never => Ok(Grant { standings: answer.standings(charges)? }),
            // Its own first attempt, whose answer was lost.
            2 if answer.is_second => Err(Failure::Connection.into()),
            2 => Err(Unreserved::Duplicate),
            _ => Err(answer.refusal(charges)?),
        }
    }

    pub(super) async fn try_depart(&self, id: CallId) -> Result<bool, Failure> {
        let mut call = self.call(&self.scripts.depart, SWEEP);
        call.words.push(Word::Id(id));
        self.run(call).await.map(|answer| answer.outcome != 0)
    }

    /// Was there such a reservation?
    pub(super) async fn try_settle(&self, id: CallId, spent: Spent) -> Result<bool, Failure> {
        let (kind, tokens, micro_usd) = match spent {
            Spent::Nothing => ("nothing", 0, 0),
            Spent::Reserved => ("reserved", 0, 0),
            Spent::Actual { tokens, micro_usd } => ("actual", tokens, micro_usd),
        };
        let mut call = self.call(&self.scripts.settle, SWEEP);
        let numbers = [tokens, micro_usd].map(|it| Word::Number(it.min(MAX_AMOUNT)));
        call.words.extend([Word::Id(id), Word::Text(kind)].into_iter().chain(numbers));
        self.run(call).await.map(|answer| answer.outcome != 0 || answer.is_second)
    }

    pub(super) async fn try_standings(
        &self,
        buckets: &[&Bucket],
    ) -> Result<Vec<Standing>, Failure> {
        let mut call = self.call(&self.scripts.standings, SWEEP);
        call.keys.extend(buckets.iter().map(|bucket| self.bucket_key(bucket)));
        let answer = self.run(call).await?;
        answer.of(buckets.iter().copied())
    }
}

#[async_trait]
impl Ledger for RedisLedger {
    async fn reserve(&self, id: CallId, charges: &[Charge]) -> Result<Grant, Refusal> {
        self.try_reserve(id, charges).await.map_err(|why| why.into_refusal(id))
    }

    async fn depart(&self, id: CallId) -> Result<(), LedgerError> {
        if self.try_depart(id).await? {
            return Ok(());
        }
        Err(LedgerError(format!("{id} has no reservation")))
    }

    async fn settle(&self, id: CallId, spent: Spent) -> Result<(), LedgerError> {
        if !self.try_settle(id, spent).await? {
            self.health().note_lost();
        }
        Ok(())
    }

    async fn abandon(&self, ids: &[CallId]) -> Result<(), LedgerError> {
        for ids in ids.chunks(ABANDON_IDS) {
            let mut call = self.call(&self.scripts.abandon, SWEEP);
            call.words.extend(ids.iter().copied().map(Word::Id));
            self.run(call).await?;
        }
        Ok(())
    }

    async fn renew(&self, ids: &[CallId]) -> Result<(), LedgerError> {
        // Without ids too: it ends what others left behind.
        let mut rest = ids;
        loop {
            let (now, later) = rest.split_at(rest.len().min(RENEW_IDS));
            let mut call = self.call(&self.scripts.renew, RENEW_SWEEP);
            call.words.push(ttl());
            call.words.extend(now.iter().copied().map(Word::Id));
            self.run(call).await?;
            if later.is_empty() {
                return Ok(());
            }
            rest = later;
        }
    }

    async fn standings(&self, buckets: &[&Bucket]) -> Result<Vec<Standing>, LedgerError> {
        Ok(self.try_standings(buckets).await?)
    }
}

impl Unreserved {
    pub(super) fn into_refusal(self, id: CallId) -> Refusal {
        match self {
            Self::Exhausted(exhausted) => Refusal::Exhausted(exhausted),
            Self::Duplicate => LedgerError(format!("{id} has a reservation already")).into(),
            Self::Failed(failure) => LedgerError::from(failure).into(),
        }
    }
}

impl From<Failure> for Unreserved {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<Failure> for LedgerError {
    fn from(failure: Failure) -> Self {
        Self(failure.to_string())
    }
}

impl Answer {
    fn parse(reply: &Reply) -> Option<Self> {
        let (&[outcome, now], rest) = reply.numbers.split_first_chunk::<2>()?;
        let (states, []) = rest.as_chunks::<STATE_NUMBERS>() else { return None };
        let state = |numbers: &[i64; STATE_NUMBERS]| {
            let mut parts = [0; STATE_NUMBERS];
            for (part, number) in parts.iter_mut().zip(numbers) {
                *part = u64::try_from(*number).ok()?;
            }
            Some(State::from_numbers(parts))
        };
        let states = states.iter().map(state).collect::<Option<_>>()?;
        let (now, is_second) = (u64::try_from(now).ok()?, reply.is_second);
        Some(Self { outcome, now, states, is_second })
    }

    fn of<'a>(&self, buckets: impl Iterator<Item = &'a Bucket>) -> Result<Vec<Standing>, Failure> {
        let standing =
            |(bucket, state): (&Bucket, &State)| state::standing(&bucket.limit, state, self.now);
        let standings: Vec<Standing> = buckets.zip(&self.states).map(standing).collect();
        if standings.len() == self.states.len() { Ok(standings) } else { Err(Failure::Answer) }
    }

    fn standings(&self, charges: &[Charge]) -> Result<Vec<Standing>, Failure> {
        self.of(charges.iter().map(|charge| &*charge.bucket))
    }

    /// Which bucket was short, and for how long: as the memory's ledger finds it.
    fn refusal(&self, charges: &[Charge]) -> Result<Unreserved, Failure> {
        let standings = self.standings(charges)?;
        let pairs = charges.iter().zip(&self.states).enumerate();
        let short = pairs.filter_map(|(position, (charge, state))| {
            let short = state::check(&charge.bucket.limit, state, charge.amount, self.now).err()?;
            Some((short, position, charge))
        });
        let short = short.max_by_key(|(short, ..)| *short);
        let (short, position, charge) = short.ok_or(Failure::Answer)?;
        Ok(Unreserved::Exhausted(Box::new(Exhausted {
            charge: charge.clone(),
            position,
            retry_after_micros: short.retry_after_micros(),
            standings,
        })))
    }
}

fn ttl() -> Word {
    Word::Number(u64::try_from(RESERVATION_TTL.as_micros()).unwrap_or(MAX_COST_MICROS))
}

/// What a script is told of a charge: kind, measure, amount, limit, cost, burst.
fn charge_words(charge: &Charge) -> [Word; 6] {
    let limit = &charge.bucket.limit;
    let measure = match limit.measure() {
        Some(Measure::Requests) => "requests",
        Some(Measure::Tokens) => "tokens",
        Some(Measure::MicroUsd) => "usd",
        None => "calls",
    };
    let (kind, size) = match *limit {
        Limit::Rate { per_minute, .. } => ("rate", per_minute.clamp(1, super::MAX_PER_MINUTE)),
        Limit::Slots(slots) => ("slots", u64::from(slots)),
        Limit::Window { period, limit, .. } => {
            let kind = match period {
                Period::Hour => "hour",
                Period::Day => "day",
                Period::Month => "month",
            };
            (kind, limit.min(MAX_AMOUNT))
        }
    };
    let cost = limit.rate_micros(charge.amount).min(MAX_COST_MICROS);
    let burst = limit.burst_micros().min(MAX_COST_MICROS);
    let amount = charge.amount.min(MAX_AMOUNT);
    let numbers = [amount, size, cost, burst].map(Word::Number);
    [Word::Text(kind), Word::Text(measure), numbers[0], numbers[1], numbers[2], numbers[3]]
}
