//! What every sink holds to. A new sink gets a [`Fixture`] and one line at the end.

use std::path::PathBuf;

use async_trait::async_trait;
use tollgate::{
    audit::{AuditSink, EntryKind},
    storage::sqlite,
};

use super::{
    faulty::{FaultySink, Mode},
    postgres::Postgres,
    support::{Line, TempDir, append, denial, intent, kinds_of, settle},
};

/// A sink whose rows can be read back by a connection of their own.
#[async_trait(?Send)]
pub trait Fixture: Sized {
    async fn make() -> Self;
    fn sink(&self) -> &dyn AuditSink;
    async fn lines(&self) -> Vec<Line>;
}

pub struct Sqlite {
    directory: TempDir,
    sink: sqlite::SqliteSink,
}

impl Sqlite {
    pub fn path(&self) -> PathBuf {
        self.directory.file()
    }
}

#[async_trait(?Send)]
impl Fixture for Sqlite {
    async fn make() -> Self {
        let directory = TempDir::new();
        let sink = sqlite::open(&directory.file()).await.unwrap();
        Self { directory, sink }
    }

    fn sink(&self) -> &dyn AuditSink {
        &self.sink
    }

    async fn lines(&self) -> Vec<Line> {
        let mut reader = sqlite::AuditReader::open(&self.directory.file()).await.unwrap();
        let mut lines = Vec::new();
        let mut last = 0;
        loop {
            let entries = reader.after(last).await.unwrap();
            let Some(newest) = entries.last() else { return lines };
            last = newest.seq;
            lines.extend(entries.into_iter().map(Line::from));
        }
    }
}

#[async_trait(?Send)]
impl Fixture for FaultySink {
    async fn make() -> Self {
        Self::new(Mode::Work)
    }

    fn sink(&self) -> &dyn AuditSink {
        self
    }

    async fn lines(&self) -> Vec<Line> {
        FaultySink::lines(self)
    }
}

async fn a_batch_of_any_size_is_written_whole_and_in_order<F: Fixture>() {
    // A server that several stand on is there as long as one of them is.
    let _first = F::make().await;
    for size in [0, 1, 2, 3, 5, 63, 64, 65, 255, 256, 257, 700] {
        let fixture = F::make().await;
        let entries: Vec<_> = (0..size).map(|_| denial()).collect();
        append(fixture.sink(), &entries).await.unwrap();
        let expected: Vec<_> = entries.iter().map(Line::from).collect();
        assert_eq!(fixture.lines().await, expected, "a batch of {size}");
    }
}

async fn a_batch_sent_again_is_written_once<F: Fixture>() {
    let fixture = F::make().await;
    let entries: Vec<_> = (0..10).map(|_| denial()).collect();
    append(fixture.sink(), &entries[..6]).await.unwrap();
    append(fixture.sink(), &entries).await.unwrap();
    append(fixture.sink(), &entries).await.unwrap();
    let expected: Vec<_> = entries.iter().map(Line::from).collect();
    assert_eq!(fixture.lines().await, expected);
}

async fn of_a_calls_ends_the_first_is_kept<F: Fixture>() {
    let fixture = F::make().await;
    let call = intent();
    append(fixture.sink(), &[call.clone(), settle(&call)]).await.unwrap();
    let second = call.follow_up(EntryKind::Canceled);
    let third = call.follow_up(EntryKind::Denied);
    append(fixture.sink(), &[second, third]).await.unwrap();
    assert_eq!(kinds_of(&call, &fixture.lines().await), ["intent", "settle"]);

    let other = intent();
    let ends = [EntryKind::Canceled, EntryKind::Settle].map(|kind| other.follow_up(kind));
    append(fixture.sink(), &ends).await.unwrap();
    assert_eq!(kinds_of(&other, &fixture.lines().await), ["canceled"], "within one batch");
}

async fn entries_that_end_nothing_may_repeat<F: Fixture>() {
    let fixture = F::make().await;
    let call = intent();
    let tools = [EntryKind::ToolCall, EntryKind::ToolCall].map(|kind| call.follow_up(kind));
    append(fixture.sink(), &tools).await.unwrap();
    assert_eq!(kinds_of(&call, &fixture.lines().await), ["tool_call", "tool_call"]);
    append(fixture.sink(), &[denial(), denial()]).await.unwrap();
    assert_eq!(fixture.lines().await.len(), 4, "denials without a call");
}

async fn writers_that_race_lose_nothing<F: Fixture>() {
    let fixture = F::make().await;
    let batches: Vec<Vec<_>> = (0..8).map(|_| (0..40).map(|_| denial()).collect()).collect();
    let appends = batches.iter().map(|batch| append(fixture.sink(), batch));
    futures_util::future::try_join_all(appends).await.unwrap();
    assert_eq!(fixture.lines().await.len(), 320);
}

/// One test a rule for one sink.
macro_rules! suite {
    ($name:ident, $fixture:ty) => {
        mod $name {
            use super::*;

            suite!(@ $fixture, a_batch_of_any_size_is_written_whole_and_in_order);
            suite!(@ $fixture, a_batch_sent_again_is_written_once);
            suite!(@ $fixture, of_a_calls_ends_the_first_is_kept);
            suite!(@ $fixture, entries_that_end_nothing_may_repeat);
            suite!(@ $fixture, writers_that_race_lose_nothing);
        }
    };
    (@ $fixture:ty, $rule:ident) => {
        #[tokio::test]
        async fn $rule() {
            super::$rule::<$fixture>().await;
        }
    };
}

suite!(sqlite_sink, Sqlite);
suite!(postgres_sink, Postgres);
suite!(faulty_sink, FaultySink);
