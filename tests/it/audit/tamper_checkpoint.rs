//! Whoever changes the checkpoints, and has not the key that signs them, is found out, and where.

use jiff::SignedDuration;
use tollgate::audit::{
    checkpoint::{Checkpoint, CheckpointKey, CheckpointLog},
    verify::{FindingKind, Options},
};
use uuid::Uuid;

use super::{
    tamper::{MIDST, is_at, only},
    trail::{Sqlite, Stage, TamperStore, found},
};

#[tokio::test]
async fn checkpoints_that_are_edited_are_found() {
    let trail = Stage::<Sqlite>::new().trail().await;
    let lines = trail.lines(0);
    let line: serde_json::Value = serde_json::from_str(&lines[3]).unwrap();
    let mut edits = Vec::new();
    for (name, value) in line.as_object().unwrap() {
        let mut edited = line.clone();
        edited[name] = match value.as_str() {
            Some(time) if name == "time" => time.replace("20", "19").into(),
            Some(digits) => flipped(digits).into(),
            None if value.is_u64() => 99.into(),
            None => serde_json::json!([]),
        };
        edits.push(edited.to_string());
    }
    for (name, value) in line["heads"][0].as_object().unwrap() {
        let mut edited = line.clone();
        edited["heads"][0][name] = match value.as_str() {
            Some(_) if name == "writer" => Uuid::now_v7().to_string().into(),
            Some(digits) => flipped(digits).into(),
            None => 99.into(),
        };
        edits.push(edited.to_string());
    }
    edits.extend([String::new(), "{".to_owned(), lines[3].replace(':', ": "), "x".repeat(1 << 20)]);
    assert_eq!(edits.len(), 16);
    for edit in edits {
        let mut edited = lines.clone();
        edited[3] = edit;
        trail.set_lines(0, &edited);
        let report = trail.verify().await;
        let finding = only(&report);
        let is_right =
            matches!(finding.kind, FindingKind::CheckpointEdited | FindingKind::CheckpointKey);
        assert!(is_right && finding.spot.line == Some(4), "{}: {finding}", edited[3]);
        let file = trail.log(0).display().to_string();
        assert_eq!(finding.spot.file.as_deref(), Some(&*file));
    }
}

fn flipped(digits: &str) -> String {
    let (first, rest) = digits.split_at(1);
    format!("{}{rest}", if first == "0" { "1" } else { "0" })
}

#[tokio::test]
async fn checkpoints_that_are_removed_or_reordered_are_found() {
    let trail = Stage::<Sqlite>::new().trail().await;
    let lines = trail.lines(0);
    for gone in [0, 4] {
        let mut left = lines.clone();
        left.remove(gone);
        trail.set_lines(0, &left);
        let report = trail.verify().await;
        let finding = only(&report);
        assert_eq!(finding.kind, FindingKind::CheckpointGap);
        assert_eq!(finding.spot.checkpoint, Some(gone as u64 + 2), "{finding}");
    }
    let mut swapped = lines.clone();
    swapped.swap(4, 5);
    trail.set_lines(0, &swapped);
    let report = trail.verify().await;
    assert_eq!(report.findings[0].kind, FindingKind::CheckpointGap);
    assert_eq!(report.findings[0].spot.line, Some(5), "{report:#?}");

    // From the end, all, and the whole log: the rows should have them since long.
    for kept in [lines.len() - 1, 0] {
        trail.set_lines(0, &lines[..kept]);
        let report = trail.verify_later().await;
        let finding = found(&report, FindingKind::Uncovered);
        is_at(finding, trail.writers[0], kept as u64 * 8 + 1);
    }
    let options = trail.options();
    let others = Options { checkpoints: Some(vec![trail.log(1)]), ..options };
    let now = others.now + SignedDuration::from_hours(1);
    let report = trail.verify_with(Options { now, ..others }).await;
    is_at(only(&report), trail.writers[0], 1);
}

#[tokio::test]
async fn checkpoints_of_another_are_found() {
    // Those of the other gateway in the place of some.
    let trail = Stage::<Sqlite>::new().trail().await;
    let (mut mixed, others) = (trail.lines(0), trail.lines(1));
    mixed[3].clone_from(&others[3]);
    trail.set_lines(0, &mixed);
    let report = trail.verify().await;
    assert_eq!(report.findings[0].kind, FindingKind::CheckpointGap);
    assert_eq!(report.findings[0].spot.line, Some(4), "{report:#?}");

    // All, signed by a key of the intruder's, over a chain that was made anew.
    let trail = Stage::<Sqlite>::new().trail().await;
    trail
        .store
        .execute(&format!("UPDATE audit SET status = 500 WHERE {}", trail.at(0, MIDST)))
        .await;
    trail.forge(0, MIDST).await;
    let rows = trail.rows(0).await;
    let lines = trail.lines(0);
    std::fs::remove_file(trail.log(0)).unwrap();
    let intruder = CheckpointKey::open(&trail.directory.path().join("intruder.pem")).unwrap();
    let mut log = CheckpointLog::open(&trail.log(0)).unwrap();
    for line in &lines {
        let mut heads = Checkpoint::parse(line).unwrap().heads;
        for head in &mut heads {
            head.link = rows[usize::try_from(head.link.seq).unwrap() - 1].link;
        }
        log.add(&intruder, heads).unwrap();
    }
    let report = trail.verify().await;
    assert_eq!(report.finding_count, lines.len() as u64, "{report:#?}");
    let are_all = report.findings.iter().all(|one| one.kind == FindingKind::CheckpointKey);
    assert!(are_all, "{report:#?}");
    // Only who has the gateway's own key gets away with it.
    let mut options = trail.options();
    options.keys.push(intruder.public());
    assert!(trail.verify_with(options).await.is_clean);
}
