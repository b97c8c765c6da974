//! What is as it was written is found to be so, also while the gateway goes on, and what is
//! missing for a reason is told apart from what is missing.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use jiff::{SignedDuration, Timestamp};
use proptest::{collection::vec, prelude::*};
use tollgate::audit::{
    Chain, Entry, Link, MAX_TEXT_BYTES,
    checkpoint::{CheckpointKey, CheckpointLog, Head},
    encode,
    spool::{DirectoryDisk, SEGMENT_BYTES, Spool, SpoolSettings},
    verify::{self, FindingKind, Options},
};

use super::{
    support::{TempDir, denial, intent, settle},
    trail::{
        EPOCHS, InPostgres, Sqlite, Stage, TamperStore, WRITER_ROWS, append, entries, found, suite,
    },
};

async fn two_gateways_of_several_epochs_are_verified<S: TamperStore>(stage: &mut Stage<S>) {
    let trail = stage.trail().await;
    let report = trail.verify_later().await;
    assert!(report.is_clean && report.notes.is_empty(), "{report:#?}");
    assert_eq!(report.rows, 2 * WRITER_ROWS);
    let writers: Vec<_> = report.writers.iter().map(|writer| writer.writer).collect();
    assert_eq!(writers, trail.writers);
    for writer in &report.writers {
        assert_eq!((writer.first_epoch, writer.last_epoch), (1, EPOCHS));
        assert_eq!((writer.first_seq, writer.last_seq), (1, WRITER_ROWS));
        assert_eq!((writer.covered_seq, writer.checkpoints), (WRITER_ROWS, WRITER_ROWS / 8));
    }
    assert_eq!(report.checkpoints.unwrap().checkpoints, WRITER_ROWS / 4);
}

async fn an_empty_store_is_verified_and_many_rows_in_chunks<S: TamperStore>(stage: &mut Stage<S>) {
    let directory = TempDir::new();
    let store = stage.store(&directory).await;
    let options = Options {
        checkpoints: None,
        keys: Vec::new(),
        spool: None,
        from: None,
        to: None,
        retention_days: None,
        contents: false,
        now: Timestamp::now(),
    };
    let mut chain = store.chain().await;
    let report = verify::verify(&mut *chain, options.clone(), &|_, _| {}).await.unwrap();
    assert!(report.is_clean && report.rows == 0, "{report:#?}");

    let count = 2 * verify::CHUNK_ROWS as u64 + 7;
    let all: Vec<_> = (0..count).map(|_| denial()).collect();
    let mut writer = Chain::after(Link::origin(uuid::Uuid::now_v7()));
    append(&*store, &mut writer, &all).await;
    let (seen, calls) = (AtomicU64::new(0), AtomicU64::new(0));
    let progress = |done, of| {
        assert_eq!(of, count);
        assert!(seen.swap(done, Ordering::Relaxed) < done);
        calls.fetch_add(1, Ordering::Relaxed);
    };
    let report = verify::verify(&mut *chain, options, &progress).await.unwrap();
    assert!(report.is_clean && report.rows == count, "{report:#?}");
    assert_eq!((seen.into_inner(), calls.into_inner()), (count, 3));
}

/// Only what was written in a time, found by the rows and by the checkpoints around it.
async fn a_part_of_the_time_is_verified<S: TamperStore>(stage: &mut Stage<S>) {
    let trail = stage.trail().await;
    let report = trail.verify_later().await;
    assert!(report.is_clean);
    for (seq, micros) in (1..).zip(0..WRITER_ROWS) {
        let time = 1_700_000_000_000_000 + 1_000_000 * micros;
        let set = format!("UPDATE audit SET time_micros = {time} WHERE ");
        trail.store.execute(&(set + &trail.at(0, seq))).await;
    }
    trail.forge(0, 1).await;
    let at = |seconds: i64| Timestamp::from_second(1_700_000_000 + seconds).unwrap();
    let options = || Options { checkpoints: None, ..trail.options() };
    let part = Options { from: Some(at(10)), to: Some(at(29)), ..options() };
    let report = trail.verify_with(part.clone()).await;
    assert!(report.is_clean && report.rows == 20, "{report:#?}");

    let edit = |seq: u64| format!("UPDATE audit SET status = 599 WHERE {}", trail.at(0, seq));
    trail.store.execute(&edit(9)).await;
    trail.store.execute(&edit(31)).await;
    assert!(trail.verify_with(part.clone()).await.is_clean, "neither is of that time");
    trail.store.execute(&edit(20)).await;
    let report = trail.verify_with(part).await;
    assert_eq!(found(&report, FindingKind::Edited).spot.seq, Some(20));
    assert_eq!(report.finding_count, 1);
    let nothing = Options { from: Some(at(-100)), to: Some(at(-50)), ..options() };
    assert_eq!(trail.verify_with(nothing).await.rows, 0);

    // By the checkpoints, which are all of now: after them there is nothing, before them all.
    let checkpoints = trail.options().checkpoints;
    let since = Options { from: Some(Timestamp::now()), checkpoints, ..options() };
    assert_eq!(trail.verify_with(since).await.rows, 0);
    let until = Options { to: Some(Timestamp::now()), ..trail.options() };
    assert_eq!(trail.verify_with(until).await.rows, 2 * WRITER_ROWS);
}

async fn what_is_older_than_the_retention_may_be_gone<S: TamperStore>(stage: &mut Stage<S>) {
    let trail = stage.trail().await;
    let gone = "chain_seq <= 15 OR chain_seq = 17";
    trail.store.execute(&format!("DELETE FROM audit WHERE {gone}")).await;
    let later = Timestamp::now() + SignedDuration::from_hours(49);
    let kept = |days| Options { retention_days: Some(days), now: later, ..trail.options() };
    let report = trail.verify_with(kept(2)).await;
    assert!(report.is_clean && report.notes.len() == 4, "{report:#?}");
    // Not that old yet, or not by this: then they are missing.
    for options in [kept(3), Options { retention_days: None, ..kept(2) }] {
        let report = trail.verify_with(options).await;
        let gap = found(&report, FindingKind::Gap);
        assert_eq!((gap.spot.seq, gap.spot.last_seq), (Some(1), Some(15)));
    }
    trail.store.execute("DELETE FROM audit").await;
    let report = trail.verify_with(kept(2)).await;
    assert!(report.is_clean && report.rows == 0, "{report:#?}");
    assert_eq!(trail.verify().await.finding_count, 2, "both writers are gone");
}

/// A gateway whose store does not take all: entries in its spool are missing nowhere.
async fn what_waits_in_the_spool_is_not_missing<S: TamperStore>(stage: &mut Stage<S>) {
    let directory = TempDir::new();
    let store = stage.store(&directory).await;
    let spool_path = directory.path().join("spool");
    let settings =
        SpoolSettings { limit_bytes: 64 << 20, segment_bytes: SEGMENT_BYTES, is_strict: true };
    let disk = Arc::new(DirectoryDisk::open(&spool_path).unwrap());
    let Spool { mut writer, mut reader, state } = Spool::open(disk, settings).unwrap();
    for entry in entries(20) {
        writer.add(&entry);
    }
    writer.commit().unwrap();
    reader.read().unwrap();
    store.sink().append(&reader.batch().unwrap()[..12]).await.unwrap();
    let (key, path) = (directory.path().join("key.pem"), directory.path().join("log.jsonl"));
    let key = CheckpointKey::open(&key).unwrap();
    let mut log = CheckpointLog::open(&path).unwrap();
    log.add(&key, vec![Head { link: state.head().unwrap(), stored: 12 }]).unwrap();

    let options = |spool: bool| Options {
        checkpoints: Some(vec![path.clone()]),
        keys: vec![key.public()],
        spool: spool.then(|| spool_path.clone()),
        from: None,
        to: None,
        retention_days: None,
        contents: false,
        now: Timestamp::now(),
    };
    let verify = async |spool| {
        let mut chain = store.chain().await;
        verify::verify(&mut *chain, options(spool), &|_, _| {}).await.unwrap()
    };
    // From elsewhere it can't be told whether they come, and is said.
    let report = verify(false).await;
    assert!(report.is_clean, "{report:#?}");
    assert_eq!((report.rows, report.writers[0].waiting), (12, 8));
    assert!(report.notes[0].contains("8 entries"), "{report:#?}");
    // From beside it they are seen.
    let report = verify(true).await;
    assert!(report.is_clean && report.notes.is_empty(), "{report:#?}");
    assert_eq!((report.rows, report.writers[0].waiting), (12, 8));
    assert_eq!(report.writers[0].covered_seq, 20);

    // What the store had said that it has is missing in either case.
    store.execute("DELETE FROM audit WHERE chain_seq > 10").await;
    let report = verify(false).await;
    let truncated = found(&report, FindingKind::Truncated);
    assert_eq!((truncated.spot.seq, truncated.spot.last_seq), (Some(11), Some(12)));
    // The spool has it still, so it can be put back.
    assert!(verify(true).await.is_clean);
    reader.acknowledge();
    writer.close().unwrap();
    reader.remove_finished().unwrap();
    let report = verify(true).await;
    let truncated = found(&report, FindingKind::Truncated);
    assert_eq!((truncated.spot.seq, truncated.spot.last_seq), (Some(11), Some(20)));
}

async fn rows_of_before_the_chain_are_counted<S: TamperStore>(stage: &mut Stage<S>) {
    let trail = stage.trail().await;
    let old = "INSERT INTO audit (seq, id, time_micros, kind, request_id, operation) \
               VALUES (-1, 'a', 1, 'intent', 'r', 'o'), (0, 'b', 2, 'intent', 'r', 'o')";
    trail.store.execute(old).await;
    let report = trail.verify().await;
    assert!(report.is_clean, "{report:#?}");
    assert_eq!((report.unchained_rows, report.rows), (2, 2 * WRITER_ROWS));
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[\0a\u{e9}\u{1f600}'\"\\\\]{0,9}",
        (any::<char>(), MAX_TEXT_BYTES - 4..MAX_TEXT_BYTES + 4)
            .prop_map(|(c, count)| c.to_string().repeat(count / c.len_utf8() + 1)),
    ]
}

fn entry() -> impl Strategy<Value = Entry> {
    (vec(text(), 6), any::<[Option<u64>; 4]>(), any::<Option<u16>>()).prop_map(
        |(texts, numbers, status)| {
            let mut entry = settle(&intent());
            let mut texts = texts.into_iter();
            let mut next = || texts.next().unwrap_or_default();
            (entry.request_id, entry.detail, entry.model) = (next(), Some(next()), Some(next()));
            (entry.redactions, entry.run_id) = (Some(next()), Some(next()));
            let caller = entry.caller.as_mut().map(Arc::make_mut).unwrap();
            caller.extra.insert("key".to_owned(), next());
            if let (Some(usage), [input, output, cached, reasoning]) = (&mut entry.usage, numbers) {
                usage.input_tokens = input.unwrap_or_default();
                usage.output_tokens = output.unwrap_or_default();
                usage.cached_input_tokens = cached.unwrap_or(u64::MAX);
                usage.reasoning_tokens = reasoning.unwrap_or_default();
            }
            entry.status = status;
            entry
        },
    )
}

/// Out of its columns a record is, byte for byte, what was hashed.
fn every_record_comes_back_as_the_same_bytes<S: TamperStore>() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let directory = TempDir::new();
    let store = runtime.block_on(S::make(directory.path()));
    let config = ProptestConfig { cases: 24, ..ProptestConfig::default() };
    proptest!(config, |(entries in vec(entry(), 1..12))| {
        let writer = uuid::Uuid::now_v7();
        let mut chain = Chain::after(Link::origin(writer));
        runtime.block_on(append(&store, &mut chain, &entries));
        let rows = runtime.block_on(store.rows(writer));
        prop_assert_eq!(rows.len(), entries.len());
        for (row, entry) in rows.iter().zip(&entries) {
            let mut bytes = Vec::new();
            encode(entry, &mut bytes);
            prop_assert_eq!(&row.record, &bytes);
        }
    });
    let options = Options {
        checkpoints: None,
        keys: Vec::new(),
        spool: None,
        from: None,
        to: None,
        retention_days: None,
        contents: false,
        now: Timestamp::now(),
    };
    let report = runtime.block_on(async {
        let mut chain = store.chain().await;
        verify::verify(&mut *chain, options, &|_, _| {}).await.unwrap()
    });
    assert!(report.is_clean && report.rows > 24, "{report:#?}");
}

#[test]
fn sqlite_every_record_comes_back_as_the_same_bytes() {
    every_record_comes_back_as_the_same_bytes::<Sqlite>();
}

#[tokio::test]
async fn sqlite_rows_of_before_the_chain_are_counted() {
    rows_of_before_the_chain_are_counted::<Sqlite>(&mut Stage::new()).await;
}

suite!(sqlite_store, Sqlite:
    two_gateways_of_several_epochs_are_verified,
    an_empty_store_is_verified_and_many_rows_in_chunks,
    a_part_of_the_time_is_verified,
    what_is_older_than_the_retention_may_be_gone,
    what_waits_in_the_spool_is_not_missing,
);

/// One test, as a server takes long to start.
#[tokio::test]
async fn postgres_is_verified_as_well() {
    let stage = &mut Stage::<InPostgres>::new();
    two_gateways_of_several_epochs_are_verified(stage).await;
    an_empty_store_is_verified_and_many_rows_in_chunks(stage).await;
    a_part_of_the_time_is_verified(stage).await;
    what_is_older_than_the_retention_may_be_gone(stage).await;
    what_waits_in_the_spool_is_not_missing(stage).await;
}

#[tokio::test]
async fn rows_that_postgres_refused_are_part_of_the_chain() {
    let trail = Stage::<InPostgres>::new().trail().await;
    for row in &trail.rows(0).await[9..12] {
        let insert = format!(
            "INSERT INTO audit_dead_letter (writer, epoch, chain_seq, hash, record, error) \
             SELECT writer, epoch, chain_seq, hash, {}, '' FROM audit WHERE {}",
            InPostgres::blob(&row.record),
            trail.at(0, row.link.seq)
        );
        trail.store.execute(&insert).await;
    }
    let report = trail.verify().await;
    assert!(report.is_clean && report.rows == 2 * WRITER_ROWS, "twice the same: {report:#?}");
    // A later end stays behind what ends its call, so only rows that have none.
    trail.store.execute(&format!("DELETE FROM audit WHERE {}", trail.at(0, 12))).await;
    let report = trail.verify().await;
    assert!(report.is_clean && report.rows == 2 * WRITER_ROWS, "{report:#?}");
    let edit = "UPDATE audit_dead_letter SET record = record || '\\x00' WHERE chain_seq = 12";
    trail.store.execute(edit).await;
    let report = trail.verify().await;
    assert_eq!(found(&report, FindingKind::Edited).spot.seq, Some(12));
}

#[test]
fn postgres_every_record_comes_back_as_the_same_bytes() {
    every_record_comes_back_as_the_same_bytes::<InPostgres>();
}
