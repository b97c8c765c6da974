//! Whoever may do anything to the store, and something to the checkpoints, is found out, and where.

use tollgate::audit::{
    Chain, Entry, FIELDS, FieldType, Link, MAX_TEXT_BYTES,
    verify::{Finding, FindingKind, Options, Report},
};
use uuid::Uuid;

use super::{
    support::denial,
    trail::{
        EPOCH_ROWS, InPostgres, Sqlite, Stage, TamperStore, Trail, WRITER_ROWS, append, found,
        suite,
    },
};

/// A row in the midst of the first writer's second epoch: a settle, with every field set.
pub const MIDST: u64 = EPOCH_ROWS + 10;

#[track_caller]
pub fn is_at(finding: &Finding, writer: Uuid, seq: u64) {
    assert_eq!((finding.spot.writer, finding.spot.seq), (Some(writer), Some(seq)), "{finding}");
}

#[track_caller]
pub fn only(report: &Report) -> &Finding {
    assert_eq!(report.finding_count, 1, "{report:#?}");
    &report.findings[0]
}

/// Each in a row of its own, so that one look finds many.
async fn each_column_that_is_edited_is_found<S: TamperStore>(stage: &mut Stage<S>) {
    // Every fourth row, from the second on, is an end with every field set.
    let ends: Vec<u64> = (2..=WRITER_ROWS).step_by(4).collect();
    let required = ["id", "time_micros", "kind", "request_id", "operation"];
    let (texts, gone) = (FIELDS.map(|(name, field)| (name, other(name, field))), "NULL".to_owned());
    let nulls = FIELDS.map(|(name, _)| (name, gone.clone()));
    let nulls = nulls.into_iter().filter(|(name, _)| !required.contains(name));
    let edits: Vec<_> = texts.into_iter().chain(nulls).collect();
    for edits in edits.chunks(ends.len()) {
        let trail = stage.trail().await;
        assert!(trail.verify().await.is_clean);
        let set = |(seq, (name, other)): (&u64, &(&str, String))| {
            format!("UPDATE audit SET {name} = {other} WHERE {};", trail.at(0, *seq))
        };
        let all: String = ends.iter().zip(edits).map(set).collect();
        trail.store.execute(&all).await;
        let report = trail.verify().await;
        let is_edit = |finding: &&Finding| finding.kind == FindingKind::Edited;
        let found: Vec<_> = report.findings.iter().filter(is_edit).collect();
        assert_eq!(found.len(), edits.len(), "{edits:?}: {report:#?}");
        for (finding, seq) in found.iter().zip(&ends) {
            is_at(finding, trail.writers[0], *seq);
            assert!(finding.expected.is_some() && finding.found.is_some(), "{finding:?}");
        }
        // A call's later end is hidden by an end that it has no more.
        let others = report.findings.iter().filter(|finding| !is_edit(finding));
        assert!(others.into_iter().all(|one| one.kind == FindingKind::Hidden), "{report:#?}");
    }
}

/// Another value of a column.
fn other(name: &str, field: FieldType) -> String {
    match (name, field) {
        ("id" | "call_id" | "stream_id", _) => format!("'{}'", Uuid::now_v7()),
        (_, FieldType::Text) => format!("{name} || 'x'"),
        (_, FieldType::Number) => format!("{name} + 1"),
    }
}

async fn each_column_of_a_link_that_is_edited_is_found<S: TamperStore>(stage: &mut Stage<S>) {
    let hash = S::blob(&[7; 32]);
    let short = S::blob(&[7; 31]);
    for (set, kind) in [
        ("epoch = epoch + 1".to_owned(), FindingKind::Edited),
        ("epoch = -1".to_owned(), FindingKind::Malformed),
        (format!("hash = {hash}"), FindingKind::HashEdited),
        (format!("hash = {short}"), FindingKind::Malformed),
        ("chain_seq = -5".to_owned(), FindingKind::Malformed),
        (format!("chain_seq = {}", WRITER_ROWS + 9), FindingKind::Gap),
        (format!("writer = '{}'", Uuid::max()), FindingKind::Gap),
        ("superseded = NOT superseded".to_owned(), FindingKind::Hidden),
    ] {
        let trail = stage.trail().await;
        trail.store.execute(&format!("UPDATE audit SET {set} WHERE {}", trail.at(0, MIDST))).await;
        let report = trail.verify().await;
        let finding = found(&report, kind);
        let seq = if set == "chain_seq = -5" { None } else { Some(MIDST) };
        assert_eq!(finding.spot.seq, seq, "{set}: {finding}");
        assert_eq!(finding.spot.writer, Some(trail.writers[0]), "{set}: {finding}");
    }
}

/// Encoding cuts a text: what is behind the cut must not be a place to hide.
async fn what_encoding_would_take_away_is_found<S: TamperStore>(stage: &mut Stage<S>) {
    let trail = stage.trail().await;
    let rows = trail.rows(0).await;
    // The fourth of four is the one with the texts that were cut and mended.
    let at = trail.at(0, 4);
    assert!(rows[3].record.len() > MAX_TEXT_BYTES);
    trail
        .store
        .execute(&format!("UPDATE audit SET detail = detail || 'and more' WHERE {at}"))
        .await;
    let report = trail.verify().await;
    assert_eq!(only(&report).kind, FindingKind::Malformed);
    is_at(only(&report), trail.writers[0], 4);
}

async fn rows_that_are_gone_are_found<S: TamperStore>(stage: &mut Stage<S>) {
    for (first, last) in [(1, 1), (1, 20), (MIDST, MIDST), (MIDST, MIDST + 17)] {
        let trail = stage.trail().await;
        let writer = trail.writers[1];
        let between = format!("writer = '{writer}' AND chain_seq BETWEEN {first} AND {last}");
        trail.store.execute(&format!("DELETE FROM audit WHERE {between}")).await;
        let report = trail.verify().await;
        let gap = found(&report, FindingKind::Gap);
        is_at(gap, writer, first);
        assert_eq!(gap.spot.last_seq, Some(last));
        // What has lost its end of a call, or its place before a row, is told of as well.
        let others = report.findings.iter().filter(|other| other.kind != FindingKind::Hidden);
        assert_eq!(others.count(), 1, "{report:#?}");
    }
}

async fn rows_that_are_gone_from_the_end_are_found<S: TamperStore>(stage: &mut Stage<S>) {
    for last in [WRITER_ROWS - 1, 40, 0] {
        let trail = stage.trail().await;
        let writer = trail.writers[0];
        let behind = format!("writer = '{writer}' AND chain_seq > {last}");
        trail.store.execute(&format!("DELETE FROM audit WHERE {behind}")).await;
        let report = trail.verify().await;
        let finding = found(&report, FindingKind::Truncated);
        is_at(finding, writer, last + 1);
        assert_eq!(finding.spot.last_seq, Some(WRITER_ROWS));
        assert!(finding.spot.file.is_some() && finding.spot.checkpoint.is_some(), "{finding:?}");
        // The chain alone is sound then: that is what checkpoints are for.
        let alone = Options { checkpoints: None, ..trail.options() };
        let alone = trail.verify_with(alone).await;
        assert!(!alone.findings.iter().any(|finding| finding.kind == FindingKind::Truncated));
    }
}

/// The row at `from` once more, as another entry, with these columns of a link.
async fn insert<S: TamperStore>(trail: &Trail<S>, from: u64, link: [&str; 4]) {
    let fields: Vec<_> = FIELDS.iter().map(|(name, _)| *name).collect();
    let values = fields.iter().map(|name| match *name {
        "id" | "call_id" => format!("'{}'", Uuid::now_v7()),
        name => name.to_owned(),
    });
    let insert = format!(
        "INSERT INTO audit ({}, superseded, writer, epoch, chain_seq, hash) SELECT {}, superseded, {} \
         FROM audit WHERE {}",
        fields.join(", "),
        values.collect::<Vec<_>>().join(", "),
        link.join(", "),
        trail.at(0, from)
    );
    trail.store.execute(&insert).await;
}

async fn rows_that_are_added_are_found<S: TamperStore>(stage: &mut Stage<S>) {
    // At a place that is taken.
    let trail = stage.trail().await;
    insert(&trail, MIDST, ["writer", "epoch", "chain_seq", "hash"]).await;
    let report = trail.verify().await;
    is_at(found(&report, FindingKind::Fork), trail.writers[0], MIDST);
    assert_eq!(report.finding_count, 1, "the chain goes on behind either: {report:#?}");

    // In between, the rows behind it one further.
    let trail = stage.trail().await;
    let writer = format!("writer = '{}'", trail.writers[0]);
    for by in ["-chain_seq - 1", "-chain_seq"] {
        let rows = format!("{writer} AND (chain_seq > {MIDST} OR chain_seq < 0)");
        trail.store.execute(&format!("UPDATE audit SET chain_seq = {by} WHERE {rows}")).await;
    }
    insert(&trail, MIDST, ["writer", "epoch", "chain_seq + 1", "hash"]).await;
    let report = trail.verify().await;
    is_at(found(&report, FindingKind::Edited), trail.writers[0], MIDST + 1);
}

async fn rows_that_are_in_no_chain_are_found<S: TamperStore>(stage: &mut Stage<S>) {
    let trail = stage.trail().await;
    insert(&trail, MIDST, ["NULL", "NULL", "NULL", "NULL"]).await;
    insert(&trail, MIDST, ["writer", "epoch", "NULL", "hash"]).await;
    let report = trail.verify().await;
    assert!(only(&report).message.starts_with("2 rows"), "{report:#?}");
    assert_eq!(only(&report).kind, FindingKind::Unchained);
}

/// The chain has no secret, so anyone may go on with it, or begin one.
async fn rows_that_are_added_with_a_sound_chain_are_found_later<S: TamperStore>(
    stage: &mut Stage<S>,
) {
    let trail = stage.trail().await;
    let last = trail.rows(0).await.last().unwrap().link;
    let forged: Vec<Entry> = (0..3).map(|_| denial()).collect();
    append(&*trail.store, &mut Chain::after(last), &forged).await;
    let stranger = Uuid::now_v7();
    append(&*trail.store, &mut Chain::after(Link::origin(stranger)), &forged_anew()).await;

    // For a while they may be a gateway's that is about to speak of them.
    let report = trail.verify().await;
    assert!(report.is_clean && report.notes.len() == 2, "{report:#?}");
    let report = trail.verify_later().await;
    let kinds: Vec<_> = report.findings.iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, [FindingKind::Uncovered; 2], "{report:#?}");
    is_at(&report.findings[0], trail.writers[0], WRITER_ROWS + 1);
    is_at(&report.findings[1], stranger, 1);

    // And when the gateway goes on, it goes on from its own last row.
    trail.write(0, last, 4..=4).await;
    let report = trail.verify().await;
    is_at(found(&report, FindingKind::Fork), trail.writers[0], WRITER_ROWS + 1);
}

fn forged_anew() -> Vec<Entry> {
    (0..3).map(|_| denial()).collect()
}

async fn rows_that_are_reordered_are_found<S: TamperStore>(stage: &mut Stage<S>) {
    // All that two rows are has changed places, but for their links.
    let trail = stage.trail().await;
    for by in [("chain_seq", MIDST, "-1"), ("chain_seq", MIDST + 3, &MIDST.to_string())] {
        let (column, seq, to) = by;
        let at = trail.at(0, seq);
        trail.store.execute(&format!("UPDATE audit SET {column} = {to} WHERE {at}")).await;
    }
    let writer = format!("writer = '{}'", trail.writers[0]);
    let last =
        format!("UPDATE audit SET chain_seq = {} WHERE {writer} AND chain_seq = -1", MIDST + 3);
    trail.store.execute(&last).await;
    let report = trail.verify().await;
    let places: Vec<_> = report.findings.iter().map(|finding| finding.spot.seq).collect();
    assert!(places.contains(&Some(MIDST)) && places.contains(&Some(MIDST + 3)), "{report:#?}");
    is_at(&report.findings[0], trail.writers[0], MIDST);
}

async fn a_chain_that_is_made_anew_is_found<S: TamperStore>(stage: &mut Stage<S>) {
    let trail = stage.trail().await;
    let at = trail.at(0, MIDST);
    trail.store.execute(&format!("UPDATE audit SET cost_micro_usd = 0 WHERE {at}")).await;
    trail.forge(0, MIDST).await;
    let report = trail.verify().await;
    let first = &report.findings[0];
    assert_eq!(first.kind, FindingKind::Rewritten, "{report:#?}");
    // The first checkpoint behind it; the one before vouches for all up to itself.
    is_at(first, trail.writers[0], MIDST.next_multiple_of(8));
    assert!(first.message.contains(&format!("after seq {}", MIDST / 8 * 8)), "{first}");
    let alone = trail.verify_with(Options { checkpoints: None, ..trail.options() }).await;
    assert!(alone.is_clean, "{alone:#?}");
}

suite!(sqlite_store, Sqlite:
    each_column_that_is_edited_is_found,
    each_column_of_a_link_that_is_edited_is_found,
    what_encoding_would_take_away_is_found,
    rows_that_are_gone_are_found,
    rows_that_are_gone_from_the_end_are_found,
    rows_that_are_added_are_found,
    rows_that_are_in_no_chain_are_found,
    rows_that_are_added_with_a_sound_chain_are_found_later,
    rows_that_are_reordered_are_found,
    a_chain_that_is_made_anew_is_found,
);

/// A few of them in each test, as a server takes long to start.
#[tokio::test]
async fn postgres_columns_that_are_edited_are_found() {
    let stage = &mut Stage::<InPostgres>::new();
    each_column_that_is_edited_is_found(stage).await;
    what_encoding_would_take_away_is_found(stage).await;
}

#[tokio::test]
async fn postgres_links_that_are_edited_are_found() {
    let stage = &mut Stage::<InPostgres>::new();
    each_column_of_a_link_that_is_edited_is_found(stage).await;
}

#[tokio::test]
async fn postgres_rows_that_are_gone_are_found() {
    let stage = &mut Stage::<InPostgres>::new();
    rows_that_are_gone_are_found(stage).await;
    rows_that_are_gone_from_the_end_are_found(stage).await;
}

#[tokio::test]
async fn postgres_rows_that_are_added_or_made_anew_are_found() {
    let stage = &mut Stage::<InPostgres>::new();
    rows_that_are_added_are_found(stage).await;
    rows_that_are_added_with_a_sound_chain_are_found_later(stage).await;
    rows_that_are_reordered_are_found(stage).await;
    a_chain_that_is_made_anew_is_found(stage).await;
}
