//! Random lives of reservations, held against what a bookkeeper would say who writes down every
//! call and adds up: no interval admits more than burst and rate, no window more than its limit,
//! no more calls at once than slots; and when all has settled, nothing is missing.

use proptest::{
    prelude::*,
    strategy::ValueTree as _,
    test_runner::{Config, TestRunner},
};
use tollgate::{
    budget::{Charge, Measure, Period, Refusal, Spent},
    domain::CallId,
};

use super::{HOUR, MINUTE, START_MICROS, Store, charge, slots, standing, tokens, usd_per_day};

const PER_MINUTE: u64 = 700;
const BURST: u64 = 400;
const SLOTS: u32 = 4;
const USD: u64 = 3_000;
const LIVES: usize = 40;
const TTL: u64 = MINUTE;
const STEP: u64 = 20_000_000;

#[derive(Debug, Clone)]
enum Act {
    Reserve(u64),
    /// The nth open call ends, having spent so many hundredths of what it reserved.
    Settle(usize, u64),
    Release(usize),
    /// The nth open call's process is lost, after or before the call left.
    Crash(usize, bool),
    Wait(u64),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (1..=BURST).prop_map(Act::Reserve),
        2 => (any::<usize>(), 0..=100_u64).prop_map(|(nth, part)| Act::Settle(nth, part)),
        1 => any::<usize>().prop_map(Act::Release),
        1 => (any::<usize>(), any::<bool>()).prop_map(|(nth, left)| Act::Crash(nth, left)),
        3 => prop_oneof![Just(1_u64), 1..1_000_u64, 1..5_000_000_u64, 1..(2 * MINUTE), 1..HOUR]
            .prop_map(Act::Wait),
    ]
}

/// One admitted call, as the bookkeeper has it.
struct Call {
    id: CallId,
    at: u64,
    reserved: u64,
    /// What it was charged in the end; until then all that it reserved.
    charged: u64,
    ended: Option<u64>,
    crashed: Option<(u64, bool)>,
}

struct Book {
    now: u64,
    calls: Vec<Call>,
}

impl Book {
    fn open(&self) -> Vec<usize> {
        let open = |call: &Call| call.ended.is_none() && call.crashed.is_none();
        (0..self.calls.len()).filter(|i| open(&self.calls[*i])).collect()
    }

    fn day(at: u64) -> u64 {
        at / (24 * HOUR)
    }

    fn check(&self) {
        for (i, first) in self.calls.iter().enumerate() {
            let mut sum = 0;
            for last in &self.calls[i..] {
                sum += last.charged;
                // In units of a token times a minute, so that nothing is rounded.
                let most = BURST * MINUTE + PER_MINUTE * (last.at - first.at);
                assert!(sum * MINUTE <= most, "{sum} within {} µs", last.at - first.at);
            }
            let of_day = self.calls.iter().filter(|it| Self::day(it.at) == Self::day(first.at));
            assert!(of_day.map(|it| it.charged).sum::<u64>() <= USD);
        }
        let taken = self.calls.iter().filter(|it| it.ended.is_none()).count();
        assert!(taken <= SLOTS as usize, "{taken} at once");
    }
}

fn charges(amount: u64) -> [Charge; 3] {
    [tokens(PER_MINUTE, BURST, amount), slots("m", SLOTS), usd_per_day(USD, amount)]
}

/// Renewing what is open, so that only what has crashed expires.
async fn wait(store: &impl Store, book: &mut Book, micros: u64) {
    let end = book.now + micros;
    while book.now < end {
        let step = STEP.min(end - book.now);
        store.wait_micros(step).await;
        book.now += step;
        let ids: Vec<CallId> = book.open().into_iter().map(|i| book.calls[i].id).collect();
        store.ledger().renew(&ids).await.expect("renewed");
    }
    let now = book.now;
    for call in &mut book.calls {
        if let Some((at, left)) = call.crashed
            && call.ended.is_none()
            && at + TTL <= now
        {
            call.ended = Some(at + TTL);
            call.charged = if left { call.reserved } else { 0 };
        }
    }
}

async fn live(store: &impl Store, book: &mut Book, act: Act) {
    let open = book.open();
    let nth = |n: usize| (!open.is_empty()).then(|| open[n % open.len().max(1)]);
    match act {
        Act::Reserve(amount) => {
            let id = CallId::generate();
            match store.ledger().reserve(id, &charges(amount)).await {
                Ok(_) => book.calls.push(Call {
                    id,
                    at: book.now,
                    reserved: amount,
                    charged: amount,
                    ended: None,
                    crashed: None,
                }),
                Err(Refusal::Exhausted(_)) => {}
                Err(other) => panic!("{other}"),
            }
        }
        Act::Settle(n, part) => {
            let Some(i) = nth(n) else { return };
            let spent = book.calls[i].reserved * part / 100;
            end(store, book, i, Spent::Actual { tokens: spent, micro_usd: spent }, spent).await;
        }
        Act::Release(n) => {
            let Some(i) = nth(n) else { return };
            end(store, book, i, Spent::Nothing, 0).await;
        }
        Act::Crash(n, left) => {
            let Some(i) = nth(n) else { return };
            // As if it had just been renewed: it lives for the whole time from now on.
            store.ledger().renew(&[book.calls[i].id]).await.expect("renewed");
            if left {
                store.ledger().depart(book.calls[i].id).await.expect("departed");
            }
            book.calls[i].crashed = Some((book.now, left));
        }
        Act::Wait(micros) => wait(store, book, micros).await,
    }
}

async fn end(store: &impl Store, book: &mut Book, i: usize, spent: Spent, charged: u64) {
    store.ledger().settle(book.calls[i].id, spent).await.expect("settled");
    (book.calls[i].charged, book.calls[i].ended) = (charged, Some(book.now));
}

/// Many lives, one after the other, on one store.
pub(super) async fn check(store: impl Store) {
    let mut runner = TestRunner::new_with_rng(
        Config::default(),
        proptest::test_runner::TestRng::deterministic_rng(
            proptest::test_runner::RngAlgorithm::ChaCha,
        ),
    );
    let mut book = Book { now: START_MICROS, calls: Vec::new() };
    let acts = prop::collection::vec(act(), 1..60);
    let month = charge(
        "all",
        tollgate::budget::Limit::Window {
            measure: Measure::Tokens,
            period: Period::Month,
            limit: u64::from(u32::MAX),
        },
        1,
    );
    assert_eq!(standing(&store, &month).await.used, 0);
    for _ in 0..LIVES {
        let life = acts.new_tree(&mut runner).expect("acts").current();
        for act in life {
            live(&store, &mut book, act).await;
            book.check();
        }
        // Let all of it end.
        for i in book.open() {
            let reserved = book.calls[i].reserved;
            end(&store, &mut book, i, Spent::Reserved, reserved).await;
        }
        wait(&store, &mut book, TTL + MINUTE).await;
        book.check();
        let [rate, slot, money] = charges(1);
        assert_eq!(standing(&store, &rate).await.remaining, BURST, "a rate fills up again");
        assert_eq!(standing(&store, &slot).await.used, 0, "no slot is lost");
        let today = |call: &&Call| Book::day(call.at) == Book::day(book.now);
        let spent: u64 = book.calls.iter().filter(today).map(|call| call.charged).sum();
        let money = standing(&store, &money).await;
        assert_eq!((money.used, money.reserved), (spent, 0), "the day's book and the ledger's");
        book.calls.retain(|call| Book::day(call.at) == Book::day(book.now));
    }
}
