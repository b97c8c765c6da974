//! What every store that can be asked holds to, where entries are summed up: usage, and runs.

use tollgate::{
    audit::{
        ContentDigest, Entry, EntryKind,
        query::{Dimension, MAX_GROUPS, Order, Run, Sums, UsageFilter},
    },
    domain::{MicroUsd, Usage},
};

use super::{
    query::{Fixture, OnPostgres, Sqlite, all, at, filter, suite},
    support::{Batch, append, denial, intent, settle},
};

/// Thirty calls, one each hour, and one with more tokens than there are; all sent three times.
async fn spent<F: Fixture>() -> (F, UsageFilter) {
    let fixture = F::make().await;
    let mut entries = Vec::new();
    for number in 0..30_u64 {
        let call = Entry { time: at(0), ..intent() };
        let mut end = settle(&call);
        end.time = at(i64::try_from(number).unwrap() * 60);
        end.model = Some(format!("model-{}", number % 2));
        end.usage = Some(Usage { input_tokens: number, output_tokens: 1, ..Usage::default() });
        end.cost = Some(MicroUsd(number * 10));
        let late = Entry { cost: Some(MicroUsd(999)), ..call.follow_up(EntryKind::Canceled) };
        entries.extend([call, end, late, Entry { time: at(0), ..denial() }]);
    }
    let huge = Usage { input_tokens: u64::MAX, ..Usage::default() };
    let call = Entry { time: at(0), ..intent() };
    let mut end = Entry { usage: Some(huge), ..settle(&call) };
    (end.model, end.time) = (Some("huge".to_owned()), at(0));
    entries.extend([call, end]);
    let batch = Batch::of(&entries);
    for _ in 0..3 {
        for part in batch.linked().chunks(17) {
            fixture.sink().append(part).await.unwrap();
        }
    }
    let mut filter = UsageFilter::until(at(0));
    for (name, value) in [("to", "2026-11-21"), ("group_by", "day,model")] {
        assert!(filter.set(name, value).unwrap());
    }
    (fixture, filter)
}

async fn usage_is_the_sum_of_the_ends_that_stand<F: Fixture>() {
    let (fixture, filter) = spent::<F>().await;
    let usage = fixture.trail().usage(&filter).await.unwrap();
    assert!(!usage.is_cut);
    assert_eq!(usage.total.calls, 31);
    let groups: Vec<(String, String, Sums)> = usage
        .groups
        .iter()
        .map(|group| {
            let [Some(day), Some(model)] = &group.key[..] else { panic!("{group:?}") };
            (day.clone(), model.clone(), group.sums)
        })
        .collect();
    let expected = |day: &str, model: u64| {
        let hours = if day == "2026-11-20" { 0..24 } else { 24..30 };
        let numbers: Vec<i64> =
            hours.filter(|number| number % 2 == model).map(u64::cast_signed).collect();
        let tokens: i64 = numbers.iter().sum();
        Sums {
            calls: i64::try_from(numbers.len()).unwrap(),
            input_tokens: tokens,
            output_tokens: i64::try_from(numbers.len()).unwrap(),
            cached_input_tokens: 0,
            cost_micro_usd: tokens * 10,
        }
    };
    assert_eq!(groups.len(), 5, "{groups:?}");
    for (day, model, sums) in &groups {
        if model == "huge" {
            assert_eq!(sums.calls, 1);
            assert!(sums.input_tokens >= 1_000_000_000_000, "{sums:?}");
            continue;
        }
        let number = model.strip_prefix("model-").unwrap().parse().unwrap();
        assert_eq!(*sums, expected(day, number), "{day} {model}");
    }
    let days: Vec<&str> = groups.iter().map(|(day, ..)| day.as_str()).collect();
    assert!(days.is_sorted(), "{days:?}");
}

async fn usage_can_be_narrowed<F: Fixture>() {
    let (fixture, filter) = spent::<F>().await;
    for (name, value, calls) in [
        ("cost_center", "42", 31),
        ("cost_center", "43", 0),
        ("model", "model-1", 15),
        ("agent", "coder", 31),
        ("agent", "", 0),
        ("from", "2026-11-21", 6),
        ("to", "2026-11-19", 0),
    ] {
        let mut narrowed = filter.clone();
        assert!(narrowed.set(name, value).unwrap());
        let usage = fixture.trail().usage(&narrowed).await.unwrap();
        assert_eq!(usage.total.calls, calls, "{name}={value}");
        let in_groups: i64 = usage.groups.iter().map(|group| group.sums.calls).sum();
        assert_eq!(in_groups, calls, "{name}={value}");
    }
}

async fn groups_are_bounded_and_the_dearest_come_first<F: Fixture>() {
    let fixture = F::make().await;
    let mut entries = Vec::new();
    for number in 0..u64::from(MAX_GROUPS) + 20 {
        let call = intent();
        let mut end = Entry { time: at(0), cost: Some(MicroUsd(number)), ..settle(&call) };
        end.model = Some(format!("model-{number}"));
        entries.push(end);
    }
    append(fixture.sink(), &entries).await.unwrap();
    let mut filter = UsageFilter::until(at(0));
    filter.set("group_by", "model").unwrap();
    assert_eq!(filter.group_by, [Dimension::Model]);
    let usage = fixture.trail().usage(&filter).await.unwrap();
    assert!(usage.is_cut);
    assert_eq!(usage.groups.len(), MAX_GROUPS as usize);
    assert_eq!(usage.total.calls, i64::from(MAX_GROUPS) + 20);
    let costs: Vec<i64> = usage.groups.iter().map(|group| group.sums.cost_micro_usd).collect();
    assert!(costs.is_sorted_by(|a, b| a >= b) && costs[0] == i64::from(MAX_GROUPS) + 19);
}

async fn a_run_is_told_in_the_order_of_its_calls<F: Fixture>() {
    let fixture = F::make().await;
    let begin = |minutes: i64, hash: u8| {
        let mut call = Entry { time: at(minutes), ..intent() };
        call.run_id = Some("nightly".to_owned());
        let digest = ContentDigest { hash: [hash; 32], bytes: 3 };
        let mut end = settle(&call);
        (end.run_id, end.time, end.input) = (call.run_id.clone(), at(minutes + 5), Some(digest));
        (call, end)
    };
    let ((one, one_end), (two, two_end), (three, _)) = (begin(0, 1), begin(1, 2), begin(2, 1));
    let (four, mut four_end) = begin(3, 1);
    (four_end.kind, four_end.outcome) = (EntryKind::Canceled, Some("canceled"));
    let mut denied = Entry { time: at(4), run_id: one.run_id.clone(), ..denial() };
    denied.latency = None;
    let other = Entry { run_id: Some("other".to_owned()), time: at(2), ..intent() };
    let mut tool = Entry { time: at(6), ..one.follow_up(EntryKind::ToolCall) };
    tool.tool = Some("arcadedb".to_owned());
    let entries = [one, two, two_end, three, other, four, denied, one_end, tool, four_end];
    append(fixture.sink(), &entries).await.unwrap();
    let of_run = filter(&[("run_id", "nightly")]);
    let found = all(fixture.trail(), &of_run, Order::OldestFirst, 4).await;
    let run = Run::new("nightly".to_owned(), found.clone(), None);
    let told: Vec<_> = run.calls.iter().map(|call| (call.kind, call.status)).collect();
    assert_eq!(
        told,
        [
            ("model_call", "ok"),
            ("model_call", "ok"),
            ("model_call", "open"),
            ("model_call", "canceled"),
            ("model_call", "denied"),
            ("tool_call", "ok"),
        ]
    );
    assert_eq!(run.calls[0].started_at, at(0));
    assert_eq!(run.calls[0].ended_at, Some(at(5)));
    assert_eq!(run.calls[0].input_tokens, Some(312));
    assert_eq!((run.started_at, run.last_at), (Some(at(0)), Some(at(8))));
    let totals = run.totals;
    assert_eq!((totals.calls, totals.ok, totals.open), (6, 3, 1));
    assert_eq!((totals.canceled, totals.denied, totals.cost_micro_usd), (1, 1, 3 * 198));

    let hash = "01".repeat(32);
    let tried = Run::new("nightly".to_owned(), found, Some(&hash));
    let told: Vec<_> = tried.calls.iter().map(|call| call.status).collect();
    assert_eq!(told, ["ok", "canceled"]);
    assert_eq!(tried.totals, totals, "of the whole run");
}

suite!(sqlite_trail, Sqlite:
    usage_is_the_sum_of_the_ends_that_stand,
    usage_can_be_narrowed,
    groups_are_bounded_and_the_dearest_come_first,
    a_run_is_told_in_the_order_of_its_calls,
);
suite!(postgres_trail, OnPostgres:
    usage_is_the_sum_of_the_ends_that_stand,
    usage_can_be_narrowed,
    groups_are_bounded_and_the_dearest_come_first,
    a_run_is_told_in_the_order_of_its_calls,
);
