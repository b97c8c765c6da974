//! `audit verify --content`: what is kept of prompts and answers is held against the rows' hashes.

use jiff::{SignedDuration, Timestamp};
use tollgate::audit::{
    Content, ContentDigest, Entry, MAX_CONTENT_BYTES, keep,
    verify::{self, ContentReport, FindingKind, Options, Report},
};

use super::{
    support::{Batch, TempDir, denial, intent, settle},
    trail::{InPostgres, Sqlite, Stage, TamperStore, found, suite},
};

const CALLS: usize = 70;

/// The end of a call of which `input` and `output` are kept, or just their hashes.
fn end(input: &str, output: &str, is_kept: bool) -> Entry {
    let content = Content { input: Some(keep(input)), output: Some(keep(output)) };
    Entry {
        input: Some(ContentDigest::of(input.as_bytes())),
        output: Some(ContentDigest::of(output.as_bytes())),
        content: is_kept.then(|| Box::new(content)),
        ..settle(&intent())
    }
}

/// Calls with contents, more than are read at once; the first is too long to be kept in whole, and of
/// the last nothing is kept.
fn entries() -> Vec<Entry> {
    let long = "é".repeat(MAX_CONTENT_BYTES);
    let mut entries = vec![end(&long, "short", true)];
    entries.extend((1..CALLS).map(|number| end(&format!("in {number}"), "out", true)));
    entries.extend([end("not kept", "", false), denial()]);
    entries
}

async fn stored<S: TamperStore>(stage: &mut Stage<S>) -> (std::sync::Arc<S>, Vec<Entry>, TempDir) {
    let directory = TempDir::new();
    let store = stage.store(&directory).await;
    let entries = entries();
    store.sink().append(&Batch::of(&entries).linked()).await.unwrap();
    (store, entries, directory)
}

async fn verify<S: TamperStore>(store: &S, retention_days: Option<u32>, now: Timestamp) -> Report {
    let options = Options {
        checkpoints: None,
        keys: Vec::new(),
        spool: None,
        from: None,
        to: None,
        retention_days,
        contents: true,
        now,
    };
    let mut chain = store.chain().await;
    verify::verify(&mut *chain, options, &|_, _| {}).await.unwrap()
}

const ALL: u64 = 2 * CALLS as u64;

async fn what_is_missing_is_no_finding<S: TamperStore>(stage: &mut Stage<S>) {
    let (store, entries, _directory) = stored(stage).await;
    let now = Timestamp::now();
    let whole = ContentReport { checked: ALL, truncated: 1, missing: 2, ..Default::default() };
    let report = verify(&*store, Some(1), now).await;
    assert!(report.is_clean, "{report:#?}");
    assert_eq!(report.contents, Some(whole));

    let gone = format!("DELETE FROM audit_content WHERE entry_id = '{}'", entries[5].id);
    store.execute(&gone).await;
    let report = verify(&*store, Some(1), now).await;
    assert!(report.is_clean, "{report:#?}");
    let less = ContentReport { checked: ALL - 2, missing: 4, ..whole };
    assert_eq!(report.contents, Some(less));
    // Two days later what is not there may have gone with the retention.
    let later = now + SignedDuration::from_hours(48);
    let report = verify(&*store, Some(1), later).await;
    assert!(report.is_clean, "{report:#?}");
    assert_eq!(report.contents, Some(ContentReport { expired: 4, missing: 0, ..less }));
    let report = verify(&*store, None, later).await;
    assert_eq!(report.contents, Some(less));
}

async fn what_is_altered_is_named<S: TamperStore>(stage: &mut Stage<S>) {
    for (at, side, set) in [
        (3, "input", "text = 'in 4'"),
        (3, "output", "text = ''"),
        (CALLS - 1, "output", "text = 'ouT'"),
        (7, "input", "full_bytes = 4711"),
        (7, "input", "full_bytes = NULL"),
        // Of what is kept in part: as long as it says, and as its row says.
        (0, "input", "text = replace(text, ' of 131072 ', ' of 131073 ')"),
        (0, "input", "text = substr(text, 2)"),
        (0, "input", "text = 'é'"),
        // A whole text may not pass for the beginning of one.
        (4, "input", "text = 'x\u{1e}truncated: the first 1 of 4 bytes'"),
    ] {
        let (store, entries, _directory) = stored(stage).await;
        let id = entries[at].id;
        let edit =
            format!("UPDATE audit_content SET {set} WHERE entry_id = '{id}' AND side = '{side}'");
        store.execute(&edit).await;
        let report = verify(&*store, None, Timestamp::now()).await;
        assert_eq!(report.finding_count, 1, "{set}: {report:#?}");
        let finding = found(&report, FindingKind::ContentEdited);
        assert_eq!(finding.spot.entry, Some(id.to_string()), "{set}");
        assert_eq!(finding.spot.seq, Some(at as u64 + 1), "{set}");
        assert!(finding.message.contains(side), "{finding}");
        assert!(finding.expected.is_some() && finding.found.is_some(), "{finding}");
        store.execute("DELETE FROM audit_content").await;
    }
}

async fn what_no_row_speaks_of_is_told<S: TamperStore>(stage: &mut Stage<S>) {
    let (store, entries, _directory) = stored(stage).await;
    let stranger = uuid::Uuid::now_v7();
    let (denied, call) = (&entries[CALLS + 1], &entries[1]);
    for (id, time) in [(stranger, call.time), (denied.id, denied.time)] {
        let add = format!(
            "INSERT INTO audit_content (entry_id, side, time_micros, text, full_bytes) \
             VALUES ('{id}', 'input', {}, 'mine', 4)",
            time.as_microsecond()
        );
        store.execute(&add).await;
    }
    let report = verify(&*store, None, Timestamp::now()).await;
    assert_eq!(report.contents.unwrap().without_row, 1);
    // A row that has no content has been given some.
    let finding = found(&report, FindingKind::ContentEdited);
    assert_eq!(finding.spot.entry, Some(denied.id.to_string()));
    assert_eq!(finding.expected.as_deref(), Some("none"));
    assert_eq!(report.finding_count, 1);
}

suite!(sqlite_content, Sqlite:
    what_is_missing_is_no_finding,
    what_is_altered_is_named,
    what_no_row_speaks_of_is_told,
);
suite!(postgres_content, InPostgres:
    what_is_missing_is_no_finding,
    what_is_altered_is_named,
    what_no_row_speaks_of_is_told,
);
