//! A clock that steps back: the chain is in the order in which things happened, and nothing is lost.

use std::time::Duration;

use jiff::SignedDuration;
use tollgate::audit::Entry;

use super::{
    contract::Sqlite,
    life::{Life, SweptStore, expect_sound},
    postgres::Postgres,
    support::{Line, TempDir, intent, settle},
};

/// Two calls, whose entries are written at these hours from now.
fn calls(hours: [i64; 4]) -> Vec<Entry> {
    let (first, second) = (intent(), intent());
    let mut entries = vec![first.clone(), second.clone(), settle(&first), settle(&second)];
    for (entry, hours) in entries.iter_mut().zip(hours) {
        entry.time += SignedDuration::from_hours(hours);
    }
    entries
}

async fn the_order_is_that_of_the_chain<S: SweptStore>() {
    let (store, directory) = (S::make().await, TempDir::new());
    let mut all = Vec::new();
    // By an hour, over midnight, by weeks, and from a day that is far ahead; also from life to life.
    for hours in [[0, -1, -1, -1], [0, 0, -24, 0], [-24 * 30, 0, -24 * 30, 0], [24 * 365, 0, 0, 0]]
    {
        let mut life = Life::begin(&store, &directory, Duration::from_hours(1)).await;
        let entries = calls(hours);
        for entry in &entries[..2] {
            life.audit.intent(entry.clone()).await.unwrap();
        }
        for entry in &entries[2..] {
            life.audit.record(entry.clone()).await;
        }
        assert_eq!(life.sweep().await, [], "every call has its end, whatever its time");
        all.extend(entries);
        life.end().await;
    }
    let expected: Vec<_> = all.iter().map(Line::from).collect();
    assert_eq!(store.lines().await, expected);
    expect_sound(&store, 16).await;
}

/// An intent that a clock ahead has dated to tomorrow is closed as soon as any other.
async fn a_call_from_the_future_is_closed_too<S: SweptStore>() {
    let (store, [here, there]) = (S::make().await, [TempDir::new(), TempDir::new()]);
    let away = Life::begin(&store, &there, Duration::from_hours(1)).await;
    let mut call = intent();
    call.time += SignedDuration::from_hours(30);
    away.audit.intent(call.clone()).await.unwrap();
    away.end().await;
    let mut life = Life::begin(&store, &here, Duration::ZERO).await;
    assert_eq!(life.sweep().await, [call.call_id.unwrap()]);
    life.end().await;
    expect_sound(&store, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_keeps_the_order_of_the_chain() {
    the_order_is_that_of_the_chain::<Sqlite>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_keeps_the_order_of_the_chain() {
    the_order_is_that_of_the_chain::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_closes_a_call_from_the_future() {
    a_call_from_the_future_is_closed_too::<Sqlite>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_closes_a_call_from_the_future() {
    a_call_from_the_future_is_closed_too::<Postgres>().await;
}

/// Ids come from the process's clock, which may stand still or step back between two of them.
#[test]
fn ids_are_made_in_order() {
    let ids: Vec<_> = (0..100_000).map(|_| tollgate::domain::CallId::generate()).collect();
    assert!(ids.is_sorted_by(|a, b| a < b));
}
