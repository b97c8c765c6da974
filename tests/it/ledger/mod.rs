//! What every store of budgets must do.
//!
//! The suite knows a [`Ledger`] and a way to let time pass. A further store is one more line at
//! `contract!`.

mod cold;
mod contract;
mod limits;
mod model;
mod outage;
mod redis;
mod refund;
mod reservation;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use async_trait::async_trait;
use tollgate::{
    budget::{
        Bucket, Charge, Exhausted, Grant, Ledger, Limit, Measure, MemoryLedger, Period, Refusal,
        Scope, Spent, Standing,
    },
    domain::CallId,
};

/// 2026-01-31 23:30 UTC, in microseconds: half an hour before an hour, a day and a month end.
const START_MICROS: u64 = 1_769_902_200_000_000;
const MINUTE: u64 = 60_000_000;
const HOUR: u64 = 60 * MINUTE;

/// A ledger to be tested, and its clock.
#[async_trait]
trait Store: Send + Sync {
    fn ledger(&self) -> Arc<dyn Ledger>;
    async fn wait_micros(&self, micros: u64);
}

struct Memory {
    ledger: Arc<MemoryLedger>,
    clock: Arc<AtomicU64>,
}

impl Memory {
    fn new() -> Self {
        let clock = Arc::new(AtomicU64::new(START_MICROS));
        Self { ledger: Arc::new(MemoryLedger::by(Arc::clone(&clock))), clock }
    }
}

#[async_trait]
impl Store for Memory {
    fn ledger(&self) -> Arc<dyn Ledger> {
        Arc::clone(&self.ledger) as Arc<dyn Ledger>
    }

    async fn wait_micros(&self, micros: u64) {
        self.clock.fetch_add(micros, Ordering::Relaxed);
    }
}

fn charge(model: &str, limit: Limit, amount: u64) -> Charge {
    let scope = Scope::TierModel { tier: "t".to_owned(), model: model.to_owned() };
    Charge { bucket: Arc::new(Bucket::new(scope, limit)), amount }
}

fn requests(model: &str, per_minute: u64) -> Charge {
    charge(model, Limit::Rate { measure: Measure::Requests, per_minute, burst: per_minute }, 1)
}

fn tokens(per_minute: u64, burst: u64, amount: u64) -> Charge {
    charge("m", Limit::Rate { measure: Measure::Tokens, per_minute, burst }, amount)
}

fn slots(model: &str, slots: u32) -> Charge {
    charge(model, Limit::Slots(slots), 1)
}

fn window(measure: Measure, period: Period, limit: u64, amount: u64) -> Charge {
    charge("m", Limit::Window { measure, period, limit }, amount)
}

fn usd_per_day(limit: u64, amount: u64) -> Charge {
    window(Measure::MicroUsd, Period::Day, limit, amount)
}

const fn actual(tokens: u64, micro_usd: u64) -> Spent {
    Spent::Actual { tokens, micro_usd }
}

async fn reserve(store: &impl Store, charges: &[Charge]) -> Result<(CallId, Grant), Refusal> {
    let id = CallId::generate();
    store.ledger().reserve(id, charges).await.map(|grant| (id, grant))
}

async fn take(store: &impl Store, charges: &[Charge]) -> CallId {
    reserve(store, charges).await.expect("a grant").0
}

async fn settle(store: &impl Store, id: CallId, spent: Spent) {
    store.ledger().settle(id, spent).await.expect("settled");
}

async fn refusal(store: &impl Store, charges: &[Charge]) -> Exhausted {
    match reserve(store, charges).await {
        Err(Refusal::Exhausted(exhausted)) => *exhausted,
        other => panic!("{other:?}"),
    }
}

/// How long it says to wait; panics if it lets the call in.
async fn refused_for(store: &impl Store, charges: &[Charge]) -> Option<u64> {
    refusal(store, charges).await.retry_after_micros
}

async fn standing(store: &impl Store, charge: &Charge) -> Standing {
    store.ledger().standings(&[&*charge.bucket]).await.expect("a standing")[0]
}

macro_rules! contract {
    ($module:ident, $store:expr, [$($test:ident)*]) => {
        mod $module {
            $(
                #[tokio::test]
                async fn $test() {
                    super::contract::$test($store).await;
                }
            )*

            #[tokio::test]
            async fn it_does_as_the_model_does() {
                super::model::check($store).await;
            }
        }
    };
}

macro_rules! contracts {
    ($($module:ident = $store:expr;)*) => {
        $(contract!($module, $store, [
            a_burst_is_let_in_and_not_one_more
            a_refusal_says_truly_when_to_come_back
            a_full_minute_fills_a_bucket_again_and_not_more
            a_burst_may_be_smaller_and_larger_than_a_minutes_worth
            it_takes_from_all_buckets_or_from_none
            of_several_short_buckets_the_one_that_takes_longest_is_named
            what_no_bucket_ever_holds_is_refused_without_a_time
            a_settled_call_gives_its_slot_back_and_keeps_its_request
            a_call_that_never_left_gives_all_of_it_back
            what_was_not_spent_comes_back_at_once
            what_has_leaked_away_is_not_given_back_a_second_time
            what_was_spent_beyond_is_a_debt_that_later_calls_wait_out
            a_window_ends_when_the_calendar_says
            a_call_that_outlasts_its_window_is_charged_to_it
            settling_twice_counts_once
            a_refund_gives_back_nothing_of_those_that_came_later
            one_id_is_reserved_once_whatever_its_buckets
            a_reservation_that_nobody_renews_is_charged_if_its_call_had_left
            a_lost_call_is_charged_at_once_if_it_had_left
            a_reservation_that_is_renewed_goes_on
            buckets_are_apart_by_scope_and_limit
            no_race_overspends
            a_limit_that_is_lowered_holds_at_once
        ]);)*
    };
}

contracts! {
    memory = super::Memory::new();
    on_redis = super::redis::OnRedis::new().await;
    leased = super::cold::Leased::of(super::Memory::new());
    leased_on_redis = super::cold::Leased::of(super::redis::OnRedis::new().await);
}
