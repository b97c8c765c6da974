//! The sums of what was used.

use std::{collections::BTreeMap, sync::Arc};

use futures_util::future::try_join_all;
use tollgate::{
    audit::{AuditSink, Entry, EntryKind},
    domain::{Caller, MicroUsd, Usage},
    storage::postgres,
};

use super::{
    super::support::{Batch, append, caller, denial, intent, settle},
    Postgres,
};

type Sums = (i64, i64, i64, i64, i64);

async fn sums(postgres: &Postgres) -> Vec<Sums> {
    postgres
        .rows(
            "SELECT calls, input_tokens, output_tokens, cached_input_tokens, cost_micro_usd \
             FROM tollgate.audit_usage ORDER BY day, calls",
        )
        .await
}

#[tokio::test]
async fn only_first_ends_of_calls_are_added_and_only_once() {
    let postgres = Postgres::start().await;
    let call = intent();
    let entries = [call.clone(), settle(&call), settle(&call), denial()];
    let batch = Batch::of(&entries);
    for _ in 0..3 {
        postgres.sink.append(&batch.linked()).await.unwrap();
    }
    append(&postgres.sink, &[call.follow_up(EntryKind::Canceled)]).await.unwrap();
    assert_eq!(sums(&postgres).await, [(1, 312, 118, 100, 198)]);

    let other = intent();
    append(&postgres.sink, &[settle(&other)]).await.unwrap();
    assert_eq!(sums(&postgres).await, [(2, 624, 236, 200, 396)]);
}

#[tokio::test]
async fn they_are_by_day_and_every_dimension() {
    type Dimensions = (
        String,
        Option<String>,
        Option<String>,
        Option<String>,
        Option<String>,
        Option<String>,
        Option<String>,
        Option<String>,
    );
    let postgres = Postgres::start().await;
    let end = settle(&intent());
    let yesterday = Entry {
        time: end.time - jiff::SignedDuration::from_hours(24),
        caller: None,
        capability: None,
        model: None,
        ..settle(&intent())
    };
    append(&postgres.sink, &[end.clone(), yesterday.clone()]).await.unwrap();
    let rows: Vec<Dimensions> = postgres
        .rows(
            "SELECT day::text, subject, agent, tier, model, provider, capability, cost_center \
             FROM tollgate.audit_usage ORDER BY day",
        )
        .await;
    let day = |entry: &Entry| entry.time.strftime("%Y-%m-%d").to_string();
    let text = |value: &str| Some(value.to_owned());
    let first = (day(&yesterday), None, None, None, None, text("scripted"), None, None);
    let second = (
        day(&end),
        text("user-1"),
        text("coder"),
        text("pro"),
        text("demo"),
        text("scripted"),
        text("model:reasoning"),
        text("42"),
    );
    assert_eq!(rows, [first, second]);
}

#[tokio::test]
async fn nothing_that_is_said_or_counted_makes_a_row_that_is_refused() {
    let postgres = Postgres::start().await;
    let most = |caller: Caller| Entry {
        caller: Some(Arc::new(caller)),
        model: Some("\u{10ffff}é".repeat(4_000)),
        usage: Some(Usage { input_tokens: u64::MAX, output_tokens: u64::MAX, ..Usage::default() }),
        cost: Some(MicroUsd(u64::MAX)),
        ..settle(&intent())
    };
    let with = |cost_center: &str| {
        let extra = BTreeMap::from([("cost_center".to_owned(), cost_center.to_owned())]);
        Caller { extra, ..Caller::clone(&caller()) }
    };
    let long = |length| Caller { subject: "s".repeat(length), ..Caller::clone(&caller()) };
    // Cut in the middle of its JSON; what is no text to Postgres; what looks like JSON.
    let callers =
        [with(&"x".repeat(9_000)), with("\0"), with("\",\"cost_center\":\""), long(9_000), long(1)];
    let entries: Vec<_> = callers.map(most).into();
    append(&postgres.sink, &entries).await.unwrap();
    append(&postgres.sink, &[most(long(9_000)), most(long(9_000))]).await.unwrap();
    assert_eq!(postgres.number("SELECT count(*) FROM tollgate.audit").await, 7);
    assert_eq!(postgres.number("SELECT count(*) FROM tollgate.audit_dead_letter").await, 0);
    assert_eq!(postgres.number("SELECT sum(calls)::int8 FROM tollgate.audit_usage").await, 7);
    let largest = "SELECT max(input_tokens) FROM tollgate.audit_usage";
    assert_eq!(postgres.number(largest).await, i64::MAX);
    let centers: Vec<(Option<String>,)> = postgres
        .rows("SELECT cost_center FROM tollgate.audit_usage WHERE length(cost_center) > 2")
        .await;
    assert_eq!(centers, [(Some("\",\"cost_center\":\"".to_owned()),)]);
}

/// The same calls' ends, each sent by every gateway, some of them at once and in another order.
#[tokio::test]
async fn gateways_that_race_close_each_call_once_and_add_up() {
    let postgres = Postgres::start().await;
    postgres::migrate(&postgres.config).await.unwrap();
    let calls: Vec<_> = (0..120).map(|_| intent()).collect();
    append(&postgres.sink, &calls).await.unwrap();
    let gateway = |number: usize| {
        let config = postgres.config.clone();
        let mut ends: Vec<_> = calls.iter().map(settle).collect();
        ends.rotate_left(number * 17);
        async move {
            let sink = postgres::sink(&config).unwrap();
            for ends in ends.chunks(30) {
                append(&sink, ends).await?;
            }
            Ok::<_, tollgate::audit::SinkError>(())
        }
    };
    try_join_all((0..6).map(gateway)).await.unwrap();
    let count =
        |of: &str| format!("SELECT count(*) FROM tollgate.audit WHERE kind = 'settle' AND {of}");
    assert_eq!(postgres.number(&count("superseded")).await, 5 * 120);
    assert_eq!(postgres.number(&count("NOT superseded")).await, 120);
    let calls = "SELECT count(DISTINCT call_id) FROM tollgate.audit \
                 WHERE kind = 'settle' AND NOT superseded";
    assert_eq!(postgres.number(calls).await, 120);
    assert_eq!(sums(&postgres).await, [(120, 120 * 312, 120 * 118, 120 * 100, 120 * 198)]);
}
