//! What SQLite keeps of full blocks of rows says of them what the rows themselves would.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use tollgate::{
    audit::{
        AuditSink as _, Entry, EntryKind, Linked,
        query::{AuditQuery as _, Field, Filter, Order, UsageFilter},
    },
    domain::MicroUsd,
    storage::sqlite::{self, AuditReader, SqliteSink},
};

use super::support::{Batch, TempDir, intent, settle};

const CALLS: usize = 5_000;

fn epoch() -> Timestamp {
    "2026-11-20T00:00:00Z".parse().unwrap()
}

/// Calls over two days: of each twentieth there are two ends, and each thousandth is by another
/// model.
fn entries() -> Vec<Entry> {
    let mut entries = Vec::new();
    for number in 0..CALLS {
        let time = epoch() + SignedDuration::from_secs(i64::try_from(number).unwrap() * 30);
        let mut call = Entry { time, trace_id: Some(number as u128 + 1), ..intent() };
        call.model = Some(format!("model-{}", if number % 1_000 == 0 { 9 } else { number % 3 }));
        let end = Entry { cost: Some(MicroUsd(number as u64)), time, ..settle(&call) };
        let end = Entry { model: call.model.clone(), trace_id: call.trace_id, ..end };
        let late = Entry { time, ..call.follow_up(EntryKind::Canceled) };
        entries.extend([call, end]);
        entries.extend((number % 20 == 0).then_some(late));
    }
    entries
}

/// By day and model: the calls, and what they cost.
async fn sums(trail: &AuditReader) -> BTreeMap<(String, String), (i64, i64)> {
    let mut filter = UsageFilter::until(epoch() + SignedDuration::from_hours(24 * 3));
    filter.set("group_by", "day,model").unwrap();
    let usage = trail.usage(&filter).await.unwrap();
    let key = |key: &[Option<String>]| (key[0].clone().unwrap(), key[1].clone().unwrap());
    let sums = |group: &tollgate::audit::query::UsageGroup| {
        (key(&group.key), (group.sums.calls, group.sums.cost_micro_usd))
    };
    usage.groups.iter().map(sums).collect()
}

fn expected() -> BTreeMap<(String, String), (i64, i64)> {
    let mut expected = BTreeMap::new();
    for number in 0..CALLS {
        let day = if number * 30 < 86_400 { "2026-11-20" } else { "2026-11-21" };
        let model = if number % 1_000 == 0 { 9 } else { number % 3 };
        let sum: &mut (i64, i64) =
            expected.entry((day.to_owned(), format!("model-{model}"))).or_default();
        sum.0 += 1;
        sum.1 += i64::try_from(number).unwrap();
    }
    expected
}

/// Of every value that was written all rows are found, and of one that was not, none.
async fn found(trail: &AuditReader, field: Field, value: &str) -> usize {
    let mut filter = Filter::default();
    filter.set_field(field, value).unwrap();
    let newest = trail.page(&filter, Order::NewestFirst, None, 1_000).await.unwrap();
    let oldest = trail.page(&filter, Order::OldestFirst, None, 1_000).await.unwrap();
    assert!(newest.iter().rev().eq(&oldest));
    newest.len()
}

async fn check(directory: &TempDir) {
    let trail = AuditReader::open(&directory.file()).await.unwrap();
    assert_eq!(sums(&trail).await, expected());
    assert_eq!(found(&trail, Field::Model, "model-9").await, 2 * CALLS / 1_000);
    for number in [1, 17, CALLS / 2, CALLS] {
        assert_eq!(found(&trail, Field::TraceId, &format!("{number:032x}")).await, 2);
    }
    assert_eq!(found(&trail, Field::TraceId, &format!("{:032x}", CALLS + 1)).await, 0);
    assert_eq!(found(&trail, Field::Tool, "none").await, 0);
}

async fn open(directory: &TempDir) -> SqliteSink {
    sqlite::open(&directory.file()).await.unwrap()
}

#[tokio::test]
async fn summaries_are_the_same_however_rows_come() {
    let entries = entries();
    let batch = Batch::of(&entries);
    let linked = batch.linked();
    let directory = TempDir::new();
    let mut sink = open(&directory).await;
    // Another process on the same file, which each sees the rows of.
    let other = open(&directory).await;
    let mut rest = &linked[..];
    for (round, size) in [1, 512, 700, 64, 333].into_iter().cycle().enumerate() {
        let part: &[Linked<'_>];
        (part, rest) = rest.split_at(rest.len().min(size));
        let writer = if round % 7 == 3 { &other } else { &sink };
        writer.append(part).await.unwrap();
        if round % 4 == 1 {
            // As after a crash: some are there, and some are not yet.
            let (first, again) = (part.len() / 2, rest.len().min(100));
            let mut overlapping = part[first..].to_vec();
            overlapping.extend(&rest[..again]);
            sink.append(&overlapping).await.unwrap();
        }
        if round % 5 == 4 {
            drop(sink);
            sink = open(&directory).await;
        }
        if rest.is_empty() {
            break;
        }
    }
    check(&directory).await;
}

#[tokio::test]
async fn rows_of_before_there_were_summaries_are_summed_up_at_the_start() {
    let directory = TempDir::new();
    let entries = entries();
    open(&directory).await.append(&Batch::of(&entries).linked()).await.unwrap();
    let mut stranger = super::sqlite::connect(&directory.file()).await;
    let undo = "DELETE FROM audit_block; DELETE FROM audit_filter; DELETE FROM audit_usage";
    sqlx::raw_sql(undo).execute(&mut stranger).await.unwrap();
    check(&directory).await;
    drop(open(&directory).await);
    let blocks: i64 = sqlx::query_scalar("SELECT count(*) FROM audit_block")
        .fetch_one(&mut stranger)
        .await
        .unwrap();
    assert_eq!(blocks, i64::try_from(entries.len() / 4_096).unwrap());
    check(&directory).await;
}

#[tokio::test]
async fn numbers_that_no_row_has_are_passed_over() {
    let directory = TempDir::new();
    let sink = open(&directory).await;
    sink.append(&Batch::of(&entries()[..5_000]).linked()).await.unwrap();
    drop(sink);
    let mut stranger = super::sqlite::connect(&directory.file()).await;
    let forged = "INSERT INTO audit (seq, id, time_micros, kind, request_id, operation, tool, superseded) \
         VALUES (1 << 50, 'forged', 0, 'approval', 'r', 'o', 'far', 0)";
    sqlx::raw_sql(forged).execute(&mut stranger).await.unwrap();
    let sink = open(&directory).await;
    sink.append(&Batch::of(&[intent()]).linked()).await.unwrap();
    let trail = AuditReader::open(&directory.file()).await.unwrap();
    assert_eq!(found(&trail, Field::Tool, "far").await, 1);
    assert_eq!(found(&trail, Field::TraceId, &format!("{:032x}", 1_999)).await, 2);
}
