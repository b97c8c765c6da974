//! What every store that can be asked holds to. A new one gets a [`Fixture`] and one line at the
//! end.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};
use tollgate::{
    audit::{
        AuditSink, ContentDigest, Entry, EntryKind, StoredEntry,
        query::{AuditQuery, Cursor, Filter, Order},
    },
    domain::{CallId, Caller, StreamId, TrustLevel, Vocabulary},
    storage::{
        postgres::{self, PostgresTrail},
        sqlite::{self, AuditReader, SqliteSink},
    },
};
use uuid::Uuid;

use super::{
    postgres::Postgres,
    support::{Batch, TempDir, append, caller, denial},
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

pub fn at(minutes: i64) -> Timestamp {
    EPOCH.parse::<Timestamp>().unwrap() + SignedDuration::from_mins(minutes)
}

pub fn filter(terms: &[(&str, &str)]) -> Filter {
    let mut filter = Filter::default();
    for (name, value) in terms {
        assert!(filter.set(name, value, at(0)).unwrap(), "{name}");
    }
    filter
}

/// All pages of `size`, put together.
pub async fn all(
    trail: &dyn AuditQuery,
    filter: &Filter,
    order: Order,
    size: u32,
) -> Vec<StoredEntry> {
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

/// One test a rule for one store.
macro_rules! suite {
    ($name:ident, $fixture:ty: $($rule:ident),* $(,)?) => {
        mod $name {
            use super::*;

            $(#[tokio::test]
            async fn $rule() {
                super::$rule::<$fixture>().await;
            })*
        }
    };
}

pub(super) use suite;

suite!(sqlite_trail, Sqlite:
    pages_have_what_a_filter_takes,
    what_is_written_meanwhile_moves_no_page,
    arrivals_come_once_however_late_they_are,
);
suite!(postgres_trail, OnPostgres:
    pages_have_what_a_filter_takes,
    what_is_written_meanwhile_moves_no_page,
    arrivals_come_once_however_late_they_are,
);
