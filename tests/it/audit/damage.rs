//! Damage to the spool that a start can't mend: what was written is told from what is made of it.

use std::{fs, path::Path, sync::Arc, time::Duration};

use tollgate::audit::{
    spool::{DirectoryDisk, Spool, SpoolSettings},
    verify::{Finding, FindingKind},
};

use super::{
    contract::Sqlite,
    life::{Life, SweptStore, findings},
    postgres::Postgres,
    support::{TempDir, denial},
};

const PATIENCE: Duration = Duration::from_secs(20);
const NEVER: Duration = Duration::from_hours(1);

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// The one segment of a spool.
fn segment(spool: &Path) -> std::path::PathBuf {
    let mut paths = fs::read_dir(spool).unwrap().map(|entry| entry.unwrap().path());
    paths.find(|path| path.extension().is_some_and(|it| it == "segment")).expect("a segment")
}

/// The numbers of records that were cut off are given again. The store had them: it has two rows for
/// each number now, and verifying names the first of them.
async fn damage_to_what_was_shipped_is_a_fork<S: SweptStore>() {
    let (store, [before, after]) = (S::make().await, [TempDir::new(), TempDir::new()]);
    let life = Life::begin(&store, &before, NEVER).await;
    for _ in 0..6 {
        life.audit.denied(denial());
    }
    life.audit.flush(PATIENCE).await.unwrap();
    // As a kill -9 leaves it: shipped, and not removed.
    let spool = after.path().join("spool");
    copy(&before.path().join("spool"), &spool);
    life.end().await;
    let path = segment(&spool);
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).unwrap();

    let life = Life::begin(&store, &after, NEVER).await;
    for _ in 0..2 {
        life.audit.denied(denial());
    }
    life.end().await;
    assert_eq!(store.lines().await.len(), 8, "nothing that was shipped is lost");
    let kept = fs::read_dir(&spool).unwrap().map(|it| it.unwrap().path());
    assert!(kept.into_iter().any(|path| path.extension().is_some_and(|it| it == "bad")));
    let report = findings(&store).await;
    assert!(!report.is_clean);
    let first = &report.findings[0];
    assert_eq!(first.kind, FindingKind::Fork, "{report:#?}");
    assert!(first.spot.seq.is_some_and(|seq| (3..=5).contains(&seq)), "{first:?}");
}

/// A segment that somebody deleted before it was shipped: those behind it are, and what is missing is
/// named.
async fn what_was_deleted_is_a_gap<S: SweptStore>() {
    let (store, directory) = (S::make().await, TempDir::new());
    let settings = SpoolSettings { limit_bytes: 1 << 20, segment_bytes: 2_000, is_strict: false };
    let disk = Arc::new(DirectoryDisk::open(directory.path()).unwrap());
    let Spool { mut writer, mut reader, state } = Spool::open(disk, settings).unwrap();
    for _ in 0..30 {
        writer.add(&denial());
        writer.commit().unwrap();
    }
    state.sync().unwrap();
    let files = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
    let mut segments: Vec<_> =
        files.filter(|it| it.to_string_lossy().contains("segment")).collect();
    segments.sort();
    fs::remove_file(&segments[1]).unwrap();
    while reader.read().unwrap() > 0 {
        store.sink().append(&reader.batch().unwrap()).await.unwrap();
        reader.acknowledge();
    }
    let first_of =
        |path: &Path| path.file_stem().unwrap().to_str().unwrap().parse::<u64>().unwrap();
    let (first, next) = (first_of(&segments[1]), first_of(&segments[2]));
    assert_eq!(store.lines().await.len() as u64, 30 - (next - first));
    let report = findings(&store).await;
    assert_eq!(report.finding_count, 1, "{report:#?}");
    let Finding { kind, spot, .. } = &report.findings[0];
    assert_eq!((*kind, spot.seq, spot.last_seq), (FindingKind::Gap, Some(first), Some(next - 1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_tells_records_that_were_made_anew() {
    damage_to_what_was_shipped_is_a_fork::<Sqlite>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_tells_records_that_were_made_anew() {
    damage_to_what_was_shipped_is_a_fork::<Postgres>().await;
}

#[tokio::test]
async fn sqlite_tells_records_that_were_deleted() {
    what_was_deleted_is_a_gap::<Sqlite>().await;
}

#[tokio::test]
async fn postgres_tells_records_that_were_deleted() {
    what_was_deleted_is_a_gap::<Postgres>().await;
}
