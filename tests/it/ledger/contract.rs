//! What every store must do, one thing a test.

use std::sync::Arc;

use tokio::task::JoinSet;
use tollgate::{
    budget::{Bucket, Charge, Limit, Measure, Period, Refusal, Scope, Spent},
    domain::{CallId, Kind},
};

pub(super) use super::refund::a_refund_gives_back_nothing_of_those_that_came_later;
use super::{
    HOUR, MINUTE, Store, actual, refusal, refused_for, requests, reserve, settle, slots, standing,
    take, tokens, usd_per_day, window,
};

pub(super) async fn a_burst_is_let_in_and_not_one_more(store: impl Store) {
    let charge = [requests("m", 5)];
    for left in (0..5).rev() {
        let (_, grant) = reserve(&store, &charge).await.expect("a grant");
        let standing = grant.standings[0];
        assert_eq!((standing.limit, standing.remaining), (5, left));
        assert_eq!(standing.reset_micros, (5 - left) * 12_000_000);
    }
    assert_eq!(refused_for(&store, &charge).await, Some(12_000_000));
}

pub(super) async fn a_refusal_says_truly_when_to_come_back(store: impl Store) {
    // Seven a minute is no whole number of microseconds; nor are thirteen of them a token's.
    for charge in [requests("m", 7), tokens(7_000_013, 50_000, 9_999)] {
        let charge = [charge];
        while let Ok((id, _)) = reserve(&store, &charge).await {
            settle(&store, id, Spent::Reserved).await;
        }
        store.wait_micros(1_234).await;
        for _ in 0..10 {
            let wait = refused_for(&store, &charge).await.expect("a time");
            store.wait_micros(wait - 1).await;
            assert_eq!(refused_for(&store, &charge).await, Some(1), "a microsecond early");
            store.wait_micros(1).await;
            let id = take(&store, &charge).await;
            settle(&store, id, Spent::Reserved).await;
        }
    }
}

pub(super) async fn a_full_minute_fills_a_bucket_again_and_not_more(store: impl Store) {
    let charge = [requests("m", 3)];
    for _ in 0..3 {
        take(&store, &charge).await;
    }
    store.wait_micros(HOUR).await;
    for _ in 0..3 {
        take(&store, &charge).await;
    }
    refused_for(&store, &charge).await;
}

pub(super) async fn a_burst_may_be_smaller_and_larger_than_a_minutes_worth(store: impl Store) {
    let small = [tokens(6_000, 100, 50)];
    take(&store, &small).await;
    take(&store, &small).await;
    assert_eq!(refused_for(&store, &small).await, Some(500_000));

    let scope = Scope::Tier { tier: "t".to_owned() };
    let limit = Limit::Rate { measure: Measure::Tokens, per_minute: 60, burst: 600 };
    let large = [Charge { bucket: Arc::new(Bucket::new(scope, limit)), amount: 600 }];
    take(&store, &large).await;
    assert_eq!(refused_for(&store, &large).await, Some(10 * MINUTE));
}

pub(super) async fn it_takes_from_all_buckets_or_from_none(store: impl Store) {
    let all =
        [requests("wide", 10), requests("narrow", 1), slots("wide", 1), usd_per_day(100, 100)];
    let id = take(&store, &all).await;

    // Whichever is short, and wherever it stands.
    for order in [[0, 1, 2, 3], [1, 2, 3, 0], [3, 2, 0, 1], [2, 1, 0, 3]] {
        refusal(&store, &order.map(|i| all[i].clone())).await;
    }
    settle(&store, id, actual(0, 100)).await;
    refusal(&store, &all).await;
    let (_, grant) = reserve(&store, &[all[0].clone(), all[2].clone()]).await.expect("a grant");
    assert_eq!(grant.standings[0].remaining, 8, "the refused took nothing");
    assert_eq!(refused_for(&store, &[all[2].clone()]).await, None);
}

pub(super) async fn of_several_short_buckets_the_one_that_takes_longest_is_named(
    store: impl Store,
) {
    let all = [slots("m", 1), requests("m", 1), usd_per_day(1, 1)];
    let id = take(&store, &all).await;
    let short = refusal(&store, &all).await;
    assert_eq!(short.charge, all[2]);
    assert_eq!(short.retry_after_micros, Some(30 * MINUTE));
    assert_eq!(short.standings.len(), 3);
    let short = refusal(&store, &all[..2]).await;
    assert_eq!((short.charge.clone(), short.retry_after_micros), (all[1].clone(), Some(MINUTE)));
    let denial = Refusal::Exhausted(Box::new(short)).to_denial();
    assert_eq!((denial.kind, denial.retry_after_ms), (Kind::RateLimited, Some(60_000)));
    let refused = reserve(&store, &all[..1]).await.expect_err("a refusal");
    assert!(refused.is_full());
    assert_eq!(refused.to_denial().kind, Kind::ConcurrencyLimited);
    settle(&store, id, Spent::Reserved).await;
}

pub(super) async fn what_no_bucket_ever_holds_is_refused_without_a_time(store: impl Store) {
    for charge in [tokens(100, 100, 101), usd_per_day(100, 101)] {
        let short = refusal(&store, std::slice::from_ref(&charge)).await;
        assert_eq!(short.retry_after_micros, None);
        let denial = Refusal::Exhausted(Box::new(short)).to_denial();
        assert_eq!((denial.retry_after_ms, denial.param.as_deref()), (None, Some("max_tokens")));
        assert_eq!(standing(&store, &charge).await.used, 0);
    }
}

pub(super) async fn a_settled_call_gives_its_slot_back_and_keeps_its_request(store: impl Store) {
    let charges = [requests("m", 10), slots("m", 2)];
    let first = take(&store, &charges).await;
    let second = take(&store, &charges).await;
    assert_eq!(refused_for(&store, &charges).await, None, "nobody knows when a call ends");
    settle(&store, first, actual(0, 0)).await;
    assert_eq!(standing(&store, &charges[0]).await.remaining, 8);
    assert_eq!(standing(&store, &charges[1]).await.remaining, 1);
    settle(&store, second, actual(0, 0)).await;
}

pub(super) async fn a_call_that_never_left_gives_all_of_it_back(store: impl Store) {
    let charges = [requests("m", 10), tokens(600, 600, 500), slots("m", 1), usd_per_day(9, 9)];
    let id = take(&store, &charges).await;
    settle(&store, id, Spent::Nothing).await;
    for charge in &charges {
        let standing = standing(&store, charge).await;
        assert_eq!((standing.used, standing.reserved), (0, 0), "{}", charge.bucket.name());
        assert_eq!(standing.remaining, standing.limit);
    }
}

pub(super) async fn what_was_not_spent_comes_back_at_once(store: impl Store) {
    let charges = [tokens(600, 600, 600), usd_per_day(1_000, 1_000)];
    let id = take(&store, &charges).await;
    assert_eq!(standing(&store, &charges[1]).await.reserved, 1_000);
    settle(&store, id, actual(100, 10)).await;
    let (rate, money) = (standing(&store, &charges[0]).await, standing(&store, &charges[1]).await);
    assert_eq!((rate.used, rate.remaining), (100, 500));
    assert_eq!((money.used, money.reserved, money.remaining), (10, 0, 990));
}

pub(super) async fn what_has_leaked_away_is_not_given_back_a_second_time(store: impl Store) {
    let (all, half) = ([tokens(600, 600, 600)], [tokens(600, 600, 300)]);
    let first = take(&store, &all).await;
    store.wait_micros(30_000_000).await;
    // Half of the first has leaked, which is room for this one.
    let second = take(&store, &half).await;
    settle(&store, first, actual(0, 0)).await;
    // Back comes the half that had not leaked; 300 are the second's.
    assert_eq!(standing(&store, &all[0]).await.remaining, 300);
    settle(&store, second, actual(0, 0)).await;
    assert_eq!(standing(&store, &all[0]).await.remaining, 600);
}

pub(super) async fn what_was_spent_beyond_is_a_debt_that_later_calls_wait_out(store: impl Store) {
    let charges = [tokens(600, 600, 100), usd_per_day(100, 50)];
    let id = take(&store, &charges).await;
    settle(&store, id, actual(1_200, 250)).await;
    assert_eq!(refused_for(&store, &charges[..1]).await, Some(70_000_000));
    // 250 of 100 a day: today's, tomorrow's, and half of the day after, which leaves 50.
    let wait = refused_for(&store, &charges[1..]).await.expect("a time");
    assert_eq!(wait, 30 * MINUTE + 24 * HOUR);
    store.wait_micros(wait - 1).await;
    assert_eq!(refused_for(&store, &charges[1..]).await, Some(1));
    store.wait_micros(1).await;
    take(&store, &charges[1..]).await;
    assert_eq!(standing(&store, &charges[1]).await.remaining, 0);
}

pub(super) async fn a_window_ends_when_the_calendar_says(store: impl Store) {
    let windows = [
        (Period::Hour, 30 * MINUTE, HOUR),
        (Period::Day, 30 * MINUTE, 24 * HOUR),
        (Period::Month, 30 * MINUTE, 28 * 24 * HOUR),
    ];
    let charges = windows.map(|(period, ..)| window(Measure::Tokens, period, 10, 10));
    for (charge, (_, left, _)) in charges.iter().zip(windows) {
        take(&store, std::slice::from_ref(charge)).await;
        assert_eq!(refused_for(&store, std::slice::from_ref(charge)).await, Some(left));
    }
    store.wait_micros(30 * MINUTE).await;
    for (charge, (.., length)) in charges.iter().zip(windows) {
        take(&store, std::slice::from_ref(charge)).await;
        assert_eq!(standing(&store, charge).await.reset_micros, length);
    }
}

pub(super) async fn a_call_that_outlasts_its_window_is_charged_to_it(store: impl Store) {
    let charge = [usd_per_day(100, 80)];
    let first = take(&store, &charge).await;
    store.ledger().renew(&[first]).await.expect("renewed");
    for _ in 0..31 {
        store.wait_micros(MINUTE - 1).await;
        store.ledger().renew(&[first]).await.expect("renewed");
    }
    let second = take(&store, &charge).await;
    settle(&store, first, actual(0, 0)).await;
    assert_eq!(
        standing(&store, &charge[0]).await.remaining,
        20,
        "yesterday's refund is not today's"
    );
    settle(&store, second, actual(0, 80)).await;
    assert_eq!(standing(&store, &charge[0]).await.used, 80);
}

pub(super) async fn settling_twice_counts_once(store: impl Store) {
    let charges = [slots("m", 2), usd_per_day(100, 10)];
    let first = take(&store, &charges).await;
    take(&store, &charges).await;
    for _ in 0..3 {
        settle(&store, first, actual(0, 5)).await;
    }
    settle(&store, CallId::generate(), actual(0, 5)).await;
    assert_eq!(standing(&store, &charges[0]).await.used, 1);
    let money = standing(&store, &charges[1]).await;
    assert_eq!((money.used, money.reserved), (5, 10));
}

pub(super) async fn one_id_is_reserved_once_whatever_its_buckets(store: impl Store) {
    for charges in [vec![requests("m", 5)], vec![slots("m", 5)], vec![]] {
        let id = CallId::generate();
        store.ledger().reserve(id, &charges).await.expect("a grant");
        let again = store.ledger().reserve(id, &charges).await;
        assert!(matches!(again, Err(Refusal::Store(_))), "{charges:?}: {again:?}");
        settle(&store, id, Spent::Reserved).await;
    }
    let standing = standing(&store, &requests("m", 5)).await;
    assert_eq!(standing.remaining, 4, "the second took nothing");
}

pub(super) async fn a_reservation_that_nobody_renews_is_charged_if_its_call_had_left(
    store: impl Store,
) {
    let charges = [slots("m", 2), usd_per_day(100, 10), tokens(60, 60, 30)];
    let (left, stayed) = (take(&store, &charges).await, take(&store, &charges).await);
    store.ledger().depart(left).await.expect("departed");
    assert_eq!(refused_for(&store, &charges[..1]).await, None);

    store.wait_micros(MINUTE - 1).await;
    assert_eq!(standing(&store, &charges[0]).await.used, 2);
    store.wait_micros(1).await;

    assert_eq!(standing(&store, &charges[0]).await.used, 0, "slots heal");
    let money = standing(&store, &charges[1]).await;
    assert_eq!((money.used, money.reserved), (10, 0));
    settle(&store, left, actual(0, 0)).await;
    settle(&store, stayed, actual(0, 99)).await;
    assert_eq!(standing(&store, &charges[1]).await, money, "too late to say otherwise");
    assert!(store.ledger().depart(stayed).await.is_err(), "it must not leave now");
}

pub(super) async fn a_lost_call_is_charged_at_once_if_it_had_left(store: impl Store) {
    let charges = [requests("m", 2), usd_per_day(100, 40), slots("m", 3)];
    let (left, stayed) = (take(&store, &charges).await, take(&store, &charges).await);
    store.ledger().depart(left).await.expect("departed");
    // Again does nothing, and so do strangers' ids: many, as scripts take few at a time.
    let mut lost = vec![left, stayed];
    lost.extend((0..250).map(|_| CallId::generate()));
    for _ in 0..2 {
        store.ledger().abandon(&lost).await.expect("ended");
    }
    let day = standing(&store, &charges[1]).await;
    assert_eq!((day.used, day.reserved), (40, 0));
    assert_eq!(standing(&store, &charges[2]).await.remaining, 3, "slots are free again");
    settle(&store, left, actual(0, 0)).await;
    assert_eq!(standing(&store, &charges[1]).await.used, 40, "its end comes too late");
}

pub(super) async fn a_reservation_that_is_renewed_goes_on(store: impl Store) {
    let charges = [slots("m", 1)];
    let id = take(&store, &charges).await;
    for _ in 0..5 {
        store.wait_micros(MINUTE / 2).await;
        store.ledger().renew(&[id, CallId::generate()]).await.expect("renewed");
        refused_for(&store, &charges).await;
    }
    settle(&store, id, Spent::Reserved).await;
    take(&store, &charges).await;
}

pub(super) async fn buckets_are_apart_by_scope_and_limit(store: impl Store) {
    let agent = |issuer: &str, agent: &str| Scope::Agent {
        issuer: issuer.to_owned(),
        agent: agent.to_owned(),
    };
    let model = |tier: &str, model: &str| Scope::TierModel {
        tier: tier.to_owned(),
        model: model.to_owned(),
    };
    let claim = |value: &str| Scope::Claim { name: "c".to_owned(), value: value.to_owned() };
    let scopes = [
        model("t", "m"),
        model("t", "n"),
        model("u", "m"),
        model("t:m", ""),
        model("t", "m:"),
        agent("t", "m"),
        agent("t:m", ""),
        agent("", "t:m"),
        agent("t%3Am", ""),
        claim("t"),
        claim("{t}"),
        Scope::Tier { tier: "t".to_owned() },
    ];
    let limits = [
        Limit::Slots(1),
        Limit::Rate { measure: Measure::Requests, per_minute: 1, burst: 1 },
        Limit::Rate { measure: Measure::Tokens, per_minute: 1, burst: 1 },
        Limit::Window { measure: Measure::Tokens, period: Period::Hour, limit: 1 },
        Limit::Window { measure: Measure::Tokens, period: Period::Day, limit: 1 },
        Limit::Window { measure: Measure::MicroUsd, period: Period::Day, limit: 1 },
        Limit::Window { measure: Measure::MicroUsd, period: Period::Month, limit: 1 },
    ];
    for scope in scopes {
        for limit in limits {
            let charge =
                [Charge { bucket: Arc::new(Bucket::new(scope.clone(), limit)), amount: 1 }];
            take(&store, &charge).await;
            refusal(&store, &charge).await;
        }
    }
}

pub(super) async fn no_race_overspends(store: impl Store) {
    let (ledger, mut calls) = (store.ledger(), JoinSet::new());
    for _ in 0..64 {
        let ledger = Arc::clone(&ledger);
        calls.spawn(async move {
            let charges = [requests("m", 40), slots("m", 30), usd_per_day(1_005, 100)];
            ledger.reserve(CallId::generate(), &charges).await.is_ok()
        });
    }
    let let_in = calls.join_all().await.into_iter().filter(|is_in| *is_in).count();
    assert_eq!(let_in, 10);
}

pub(super) async fn a_limit_that_is_lowered_holds_at_once(store: impl Store) {
    for _ in 0..60 {
        take(&store, &[requests("m", 60)]).await;
    }
    take(&store, &[usd_per_day(100, 100)]).await;
    assert_eq!(refused_for(&store, &[usd_per_day(50, 1)]).await, Some(30 * MINUTE + 24 * HOUR));
    store.wait_micros(30_000_000).await;
    let wait = refused_for(&store, &[requests("m", 1)]).await.expect("a time");
    assert!((1..=60_000_000).contains(&wait), "{wait}");
    store.wait_micros(wait).await;
    take(&store, &[requests("m", 1)]).await;
}
