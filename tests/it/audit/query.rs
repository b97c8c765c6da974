//! What every store that can be asked holds to. A new one gets a [`Fixture`] and one line at the
//! end.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};
use tollgate::{
    audit::{
        AuditSink, ContentDigest, Entry, EntryKind, StoredEntry,
        query::{AuditQuery, Cursor, Dimension, Filter, MAX_GROUPS, Order, Run, Sums, UsageFilter},
    },
    domain::{CallId, Caller, MicroUsd, StreamId, TrustLevel, Usage, Vocabulary},
    storage::{
        postgres::{self, PostgresTrail},
        sqlite::{self, AuditReader, SqliteSink},
    },
};
use uuid::Uuid;

use super::{
    postgres::Postgres,
    support::{Batch, TempDir, append, caller, denial, intent, settle},
};

/// A store that is written and asked.
#[async_trait(?Send)]
pub trait Fixture: Sized {
    /// As many as the store has to have for all of its ways to find some.
    const ROWS: usize;

    async fn make() -> Self;
    fn sink(&self) -> &dyn AuditSink;
    fn trail(&self) -> &dyn AuditQuery;
}

pub struct Sqlite {
    _directory: TempDir,
    sink: SqliteSink,
    trail: AuditReader,
}

#[async_trait(?Send)]
impl Fixture for Sqlite {
    /// One block that is summed up, and one that is not.
    const ROWS: usize = 4_500;

    async fn make() -> Self {
        let directory = TempDir::new();
        let sink = sqlite::open(&directory.file()).await.unwrap();
        let trail = AuditReader::open(&directory.file()).await.unwrap();
        Self { _directory: directory, sink, trail }
    }

    fn sink(&self) -> &dyn AuditSink {
        &self.sink
    }

    fn trail(&self) -> &dyn AuditQuery {
        &self.trail
    }
}

pub struct OnPostgres {
    store: Postgres,
    trail: PostgresTrail,
}

#[async_trait(?Send)]
impl Fixture for OnPostgres {
    const ROWS: usize = 700;

    async fn make() -> Self {
        let store = Postgres::start().await;
        postgres::migrate(&store.config).await.unwrap();
        let trail = PostgresTrail::new(&store.config).unwrap();
        Self { store, trail }
    }

    fn sink(&self) -> &dyn AuditSink {
        &self.store.sink
    }

    fn trail(&self) -> &dyn AuditQuery {
        &self.trail
    }
}

const EPOCH: &str = "2026-11-20T00:00:00Z";

fn at(minutes: i64) -> Timestamp {
    EPOCH.parse::<Timestamp>().unwrap() + SignedDuration::from_mins(minutes)
}

fn filter(terms: &[(&str, &str)]) -> Filter {
    let mut filter = Filter::default();
    for (name, value) in terms {
        assert!(filter.set(name, value, at(0)).unwrap(), "{name}");
    }
    filter
}

/// All pages of `size`, put together.
async fn all(trail: &dyn AuditQuery, filter: &Filter, order: Order, size: u32) -> Vec<StoredEntry> {
    let mut found: Vec<StoredEntry> = Vec::new();
    loop {
        let behind = found.last().map(Cursor::from);
        let page = trail.page(filter, order, behind, size).await.unwrap();
        assert!(page.len() <= size as usize);
        let is_last = page.len() < size as usize;
        found.extend(page);
        if is_last {
            return found;
        }
    }
}

fn ids(entries: &[StoredEntry]) -> Vec<String> {
    entries.iter().map(|entry| entry.id.clone()).collect()
}

/// An entry of few different values, the time later than those before.
fn entry_of(index: usize, seed: u64) -> Entry {
    let of = |shift: u32, count: u64| seed >> shift & 0xff_ffff & (count - 1);
    let vocabulary = Vocabulary::new(["fleet:write", "model:reasoning"]);
    let kind = EntryKind::ALL[usize::try_from(of(0, 8)).unwrap().min(6)];
    let mut entry = Entry::new(kind, "create_chat_completion", format!("r-{index}"));
    entry.time = at(i64::try_from(index).unwrap() * 4);
    let uuid = |number: u64| Uuid::from_u128(u128::from(number));
    entry.call_id = (of(3, 4) > 0).then(|| uuid(of(5, 16)).to_string().parse::<CallId>().unwrap());
    entry.stream_id =
        (of(9, 4) == 0).then(|| uuid(of(11, 4)).to_string().parse::<StreamId>().unwrap());
    entry.trace_id = Some(u128::from(of(13, 8)));
    entry.run_id = (of(16, 2) == 0).then(|| format!("run-{}", of(17, 4)));
    // So long that only its beginning can be in an index.
    let long = "arcadedb-".repeat(40);
    entry.tool = (of(19, 2) == 0).then(|| format!("{long}{}", of(20, 2)));
    entry.model = (of(21, 4) > 0).then(|| format!("model-{}", of(22, 2)));
    entry.outcome = [None, Some("ok"), Some("rate_limited"), Some("unknown")]
        [usize::try_from(of(24, 4)).unwrap()];
    let name = ["fleet:write", "model:reasoning"][usize::try_from(of(26, 2)).unwrap()];
    entry.capability = vocabulary.get(name);
    entry.input = Some(ContentDigest { hash: [u8::try_from(of(27, 4)).unwrap(); 32], bytes: 5 });
    entry.caller = (of(29, 4) > 0).then(|| {
        Arc::new(Caller {
            subject: format!("user-{}", of(31, 4)),
            tier: ["pro", "free"][usize::try_from(of(33, 2)).unwrap()].to_owned(),
            agent: (of(34, 2) > 0).then(|| format!("agent-{}", of(35, 2))),
            trust: TrustLevel::L1,
            extra: BTreeMap::new(),
            ..(*caller()).clone()
        })
    });
    entry
}

/// Which of the entries stand: of a call's ends the first alone.
fn standing<'e>(entries: &'e [Entry], batch: &Batch) -> Vec<(&'e Entry, usize)> {
    let mut closed = std::collections::BTreeSet::new();
    let stands = |entry: &&Entry| {
        let call = entry.call_id.filter(|_| entry.kind.is_terminal());
        call.is_none_or(|call| closed.insert(call))
    };
    assert_eq!(entries.len(), batch.linked().len());
    let numbered: Vec<&Entry> = entries.iter().collect();
    let kept: Vec<&Entry> = numbered.iter().copied().filter(stands).collect();
    let place = |entry: &'e Entry| (entry, entries.iter().position(|e| e.id == entry.id).unwrap());
    kept.into_iter().map(place).collect()
}

fn filters() -> impl Strategy<Value = Vec<(&'static str, String)>> {
    let uuid = |number: u128| Uuid::from_u128(number).to_string();
    let one_of = |name: &'static str, values: Vec<String>| {
        proptest::option::weighted(0.25, proptest::sample::select(values))
            .prop_map(move |value| value.map(|value| (name, value)))
    };
    let long = "arcadedb-".repeat(40);
    let terms: Vec<_> = vec![
        one_of("call_id", (0..4).map(uuid).collect()).boxed(),
        one_of("stream_id", (0..4).map(uuid).collect()).boxed(),
        one_of("trace_id", (0..8).map(|n| format!("{n:032X}")).collect()).boxed(),
        one_of("run_id", (0..5).map(|n| format!("run-{n}")).collect()).boxed(),
        one_of("tool", vec![format!("{long}0"), format!("{long}1"), long]).boxed(),
        one_of("model", vec!["model-0".into(), "model-1".into(), "none".into()]).boxed(),
        one_of("outcome", vec!["ok".into(), "rate_limited".into()]).boxed(),
        one_of("capability", vec!["fleet:write".into(), "model:reasoning".into()]).boxed(),
        one_of("subject", vec!["user-0".into(), "user-3".into()]).boxed(),
        one_of("agent", vec!["agent-0".into(), "\0".into()]).boxed(),
        one_of("tier", vec!["pro".into(), "free".into()]).boxed(),
        one_of("kind", EntryKind::ALL.map(|kind| kind.as_str().to_owned()).into()).boxed(),
        one_of("input_hash", (0..4).map(|n: u8| format!("{n:02x}").repeat(32)).collect()).boxed(),
        one_of("from", (0..6).map(|n| at(n * 531).to_string()).collect()).boxed(),
        one_of("to", (0..6).map(|n| at(n * 531).to_string()).collect()).boxed(),
    ];
    // Few at once, else nothing is ever found.
    (terms, proptest::collection::vec(0..15_usize, 0..3)).prop_map(|(terms, keep)| {
        let kept = terms.into_iter().enumerate().filter(|(at, _)| keep.contains(at));
        kept.filter_map(|(_, term)| term).collect()
    })
}

/// Any filter, any page size, both ways: as a look at each record would have it.
async fn pages_have_what_a_filter_takes<F: Fixture>() {
    let fixture = F::make().await;
    let mut runner = TestRunner::deterministic();
    let seeds = proptest::collection::vec(any::<u64>(), F::ROWS);
    let seeds = seeds.new_tree(&mut runner).unwrap().current();
    let entries: Vec<_> = seeds.iter().enumerate().map(|(at, seed)| entry_of(at, *seed)).collect();
    let batch = Batch::of(&entries);
    let linked = batch.linked();
    for part in linked.chunks(F::ROWS / 8) {
        fixture.sink().append(part).await.unwrap();
        // Again, as after a crash.
        fixture.sink().append(&part[..part.len() / 3]).await.unwrap();
    }
    let standing = standing(&entries, &batch);
    let mut found_any = 0;
    for _ in 0..60 {
        let terms = filters().new_tree(&mut runner).unwrap().current();
        let terms: Vec<_> = terms.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let filter = filter(&terms);
        let mut expected: Vec<String> = standing
            .iter()
            .filter(|(_, at)| filter.takes(&linked[*at].record))
            .map(|(entry, _)| entry.id.to_string())
            .collect();
        found_any += usize::from(!expected.is_empty());
        let oldest = all(fixture.trail(), &filter, Order::OldestFirst, 301).await;
        assert_eq!(ids(&oldest), expected, "{terms:?}");
        expected.reverse();
        for size in [u32::try_from(F::ROWS / 17).unwrap(), 1_000] {
            let newest = all(fixture.trail(), &filter, Order::NewestFirst, size).await;
            assert_eq!(ids(&newest), expected, "{terms:?}");
        }
    }
    assert!(found_any > 20, "the filters find something now and then: {found_any}");
}

async fn what_is_written_meanwhile_moves_no_page<F: Fixture>() {
    let fixture = F::make().await;
    let entries: Vec<_> = (0..40).map(|at| entry_of(at, 0)).collect();
    append(fixture.sink(), &entries).await.unwrap();
    let all_of = filter(&[]);
    let mut found = Vec::new();
    for round in 0..4 {
        let behind = found.last().map(Cursor::from);
        let page = fixture.trail().page(&all_of, Order::NewestFirst, behind, 10).await.unwrap();
        found.extend(page);
        append(fixture.sink(), &[entry_of(40 + round, 0)]).await.unwrap();
    }
    let expected: Vec<_> = entries.iter().rev().map(|entry| entry.id.to_string()).collect();
    // Of the ends of one call that `entry_of` gives with this seed there is none.
    assert_eq!(ids(&found), expected);
}

async fn arrivals_come_once_however_late_they_are<F: Fixture>() {
    let fixture = F::make().await;
    assert_eq!(fixture.trail().last_arrival().await.unwrap(), 0);
    let of_run = filter(&[("run_id", "nightly")]);
    let (mut seq, mut found, mut expected) = (0, Vec::new(), Vec::new());
    for round in 0..6 {
        // What comes later may be older.
        let entries: Vec<_> = (0..5)
            .map(|number| Entry {
                time: at(100 - round * 10 + number),
                run_id: (number > 1).then(|| "nightly".to_owned()),
                ..denial()
            })
            .collect();
        append(fixture.sink(), &entries).await.unwrap();
        expected.extend(entries[2..].iter().map(|entry| entry.id.to_string()));
        loop {
            let arrived = fixture.trail().arrivals(&of_run, seq, 2).await.unwrap();
            seq = arrived.seq;
            found.extend(ids(&arrived.entries));
            if arrived.entries.len() < 2 {
                break;
            }
        }
        assert_eq!(found, expected, "after round {round}");
        assert_eq!(fixture.trail().last_arrival().await.unwrap(), seq);
    }
}

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

/// One test a rule for one store.
macro_rules! suite {
    ($name:ident, $fixture:ty) => {
        mod $name {
            use super::*;

            suite!(@ $fixture, pages_have_what_a_filter_takes);
            suite!(@ $fixture, what_is_written_meanwhile_moves_no_page);
            suite!(@ $fixture, arrivals_come_once_however_late_they_are);
            suite!(@ $fixture, usage_is_the_sum_of_the_ends_that_stand);
            suite!(@ $fixture, usage_can_be_narrowed);
            suite!(@ $fixture, groups_are_bounded_and_the_dearest_come_first);
            suite!(@ $fixture, a_run_is_told_in_the_order_of_its_calls);
        }
    };
    (@ $fixture:ty, $rule:ident) => {
        #[tokio::test]
        async fn $rule() {
            super::$rule::<$fixture>().await;
        }
    };
}

suite!(sqlite_trail, Sqlite);
suite!(postgres_trail, OnPostgres);
