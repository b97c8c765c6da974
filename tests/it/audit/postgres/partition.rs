//! A partition for each day, and one for what has none.

use jiff::{SignedDuration, Timestamp};
use tollgate::audit::Entry;

use super::{
    super::support::{append, denial},
    Postgres,
};
use crate::support::postgres::run;

fn at(time: Timestamp) -> Entry {
    Entry { time, ..denial() }
}

fn days(days: i64) -> SignedDuration {
    SignedDuration::from_hours(24 * days)
}

/// The partitions that have rows, with how many.
async fn filled(postgres: &Postgres) -> Vec<(String, i64)> {
    postgres
        .rows("SELECT tableoid::regclass::text, count(*) FROM tollgate.audit GROUP BY 1 ORDER BY 1")
        .await
}

fn name(time: Timestamp) -> String {
    format!("tollgate.audit_{}", time.strftime("%Y%m%d"))
}

const DEFAULT: &str = "tollgate.audit_default";

#[tokio::test]
async fn days_have_partitions_before_they_begin_and_those_of_a_batch_are_made() {
    let postgres = Postgres::start().await;
    let now = Timestamp::now();
    let times = [now - days(40), now - days(1), now];
    append(&postgres.sink, &times.map(at)).await.unwrap();
    assert_eq!(filled(&postgres).await, times.map(|time| (name(time), 1)));
    for ahead in 0..=7 {
        let sql = format!("SELECT count(to_regclass('{}'))", name(now + days(ahead)));
        assert_eq!(postgres.number(&sql).await, 1, "{ahead} days ahead");
    }
}

#[tokio::test]
async fn no_time_is_refused() {
    let postgres = Postgres::start().await;
    let now = Timestamp::now();
    let times = [
        Timestamp::MIN,
        Timestamp::UNIX_EPOCH,
        now,
        now + days(300),
        now - days(800),
        Timestamp::MAX,
    ];
    append(&postgres.sink, &times.map(at)).await.unwrap();
    assert_eq!(filled(&postgres).await, [(name(now), 1), (DEFAULT.to_owned(), 5)]);
    assert_eq!(postgres.number("SELECT count(*) FROM tollgate.audit_dead_letter").await, 0);
}

/// Making one needs the default partition for a moment, which whoever reads all days holds.
#[tokio::test]
async fn while_none_can_be_made_rows_go_to_the_default_one_and_stay() {
    let postgres = Postgres::start().await;
    append(&postgres.sink, &[denial()]).await.unwrap();
    let mut reader = postgres.database.superuser().await;
    run(&mut reader, "BEGIN; SELECT * FROM tollgate.audit LIMIT 1").await;
    let yesterday = Timestamp::now() - days(1);
    append(&postgres.sink, &[at(yesterday)]).await.unwrap();
    run(&mut reader, "COMMIT").await;
    assert!(filled(&postgres).await.contains(&(DEFAULT.to_owned(), 1)));

    // Another gateway asks for that day: its rows join those that are there.
    let other = tollgate::storage::postgres::sink(&postgres.config).unwrap();
    append(&other, &[at(yesterday), at(yesterday - days(1))]).await.unwrap();
    let filled = filled(&postgres).await;
    assert!(filled.contains(&(DEFAULT.to_owned(), 2)), "{filled:?}");
    assert!(filled.contains(&(name(yesterday - days(1)), 1)), "{filled:?}");
}

#[tokio::test]
async fn a_batch_sent_again_after_its_days_partition_was_made_is_written_once() {
    let postgres = Postgres::start().await;
    let entries: Vec<_> = (0..3).map(|day| at(Timestamp::now() - days(day * 900))).collect();
    for _ in 0..2 {
        let sink = tollgate::storage::postgres::sink(&postgres.config).unwrap();
        append(&sink, &entries).await.unwrap();
    }
    assert_eq!(postgres.number("SELECT count(*) FROM tollgate.audit").await, 3);
}
