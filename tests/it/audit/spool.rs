//! The spool on a real disk, and what it does about damage.

use std::{os::unix::fs::PermissionsExt, path::Path, sync::Arc};

use proptest::prelude::*;
use tollgate::audit::{
    Entry,
    spool::{
        DirectoryDisk, Disk, Room, Spool, SpoolError, SpoolReader, SpoolSettings, SpoolWriter, scan,
    },
};

use super::{
    fake_disk::FakeDisk,
    support::{TempDir, denial},
};

const SETTINGS: SpoolSettings =
    SpoolSettings { limit_bytes: 1 << 20, segment_bytes: 2_000, is_strict: false };

fn open(path: &Path) -> Spool {
    Spool::open(Arc::new(DirectoryDisk::open(path).unwrap()), SETTINGS).unwrap()
}

/// Writes a group of each entry's own.
fn write(writer: &mut SpoolWriter, count: usize) -> Vec<String> {
    let entries: Vec<Entry> = (0..count).map(|_| denial()).collect();
    for entry in &entries {
        writer.add(entry);
        writer.commit().unwrap();
    }
    entries.iter().map(|entry| entry.id.to_string()).collect()
}

fn read_all(reader: &mut SpoolReader) -> Vec<String> {
    let mut ids = Vec::new();
    while reader.read().unwrap() > 0 {
        let batch = reader.batch().unwrap();
        ids.extend(batch.iter().map(|linked| linked.record.get("id").text().unwrap().to_owned()));
        reader.acknowledge();
    }
    ids
}

fn names(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn what_is_written_outlives_the_process_and_is_removed_once_shipped() {
    let directory = TempDir::new();
    let path = directory.path().join("data/spool");
    let Spool { mut writer, .. } = open(&path);
    let mut ids = write(&mut writer, 40);
    drop(writer);
    let Spool { mut writer, mut reader, state } = open(&path);
    assert_eq!(state.unshipped(), 40);
    ids.extend(write(&mut writer, 5));
    assert!(names(&path).len() > 3, "{:?}", names(&path));
    state.sync().unwrap();
    assert_eq!(read_all(&mut reader), ids);
    writer.close().unwrap();
    reader.remove_finished().unwrap();
    assert_eq!(names(&path), ["head", "lock"]);
    assert_eq!((state.unshipped(), state.bytes()), (0, 0));
    drop((reader, state));

    let Spool { mut writer, mut reader, state } = open(&path);
    let ids = write(&mut writer, 1);
    state.sync().unwrap();
    assert_eq!(reader.read().unwrap(), 1);
    let link = reader.batch().unwrap()[0].link;
    assert_eq!((link.epoch, link.seq), (3, 46), "the chain goes on");
    assert_eq!(read_all(&mut reader), ids);
}

#[test]
fn the_directory_and_its_files_are_the_owners_alone() {
    let directory = TempDir::new();
    let path = directory.path().join("spool");
    let Spool { mut writer, mut reader, .. } = open(&path);
    write(&mut writer, 20);
    read_all(&mut reader);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    for name in names(&path) {
        assert_eq!(mode(&path.join(&name)), 0o600, "{name}");
    }
}

#[test]
fn a_second_process_is_told_whose_directory_it_is() {
    let directory = TempDir::new();
    let path = directory.path().join("spool");
    let spool = open(&path);
    let error = DirectoryDisk::open(&path).unwrap_err();
    assert!(matches!(error, SpoolError::Locked { .. }), "{error}");
    assert!(error.to_string().contains("in use by another tollgate"), "{error}");
    drop(spool);
    open(&path);

    std::fs::write(directory.path().join("file"), "").unwrap();
    let error = DirectoryDisk::open(&directory.path().join("file/spool")).unwrap_err();
    assert!(error.to_string().contains("can't open the directory"), "{error}");
}

#[test]
fn a_segment_that_is_deleted_while_it_is_written_is_told_of() {
    let directory = TempDir::new();
    let path = directory.path().join("spool");
    let Spool { mut writer, state, .. } = open(&path);
    write(&mut writer, 1);
    state.sync().unwrap();
    write(&mut writer, 1);
    std::fs::remove_file(path.join("00000000000000000001.segment")).unwrap();
    let error = state.sync().unwrap_err().to_string();
    assert!(error.contains("was deleted while it was written to: restart tollgate"), "{error}");
    state.sync().unwrap_err();
    assert_eq!((state.committed(), state.synced()), (2, 1));
}

#[test]
fn a_newer_versions_files_are_left_to_it() {
    let disk = Arc::new(FakeDisk::default());
    let Spool { mut writer, mut reader, .. } = Spool::open(disk.clone(), SETTINGS).unwrap();
    write(&mut writer, 1);
    writer.close().unwrap();
    read_all(&mut reader);
    let Spool { mut writer, .. } = Spool::open(disk.clone(), SETTINGS).unwrap();
    write(&mut writer, 3);
    for name in ["head", "00000000000000000002.segment"] {
        disk.tamper(name, |bytes| bytes[7] += 1);
        let before = disk.names();
        let error = Spool::open(disk.clone(), SETTINGS).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("written by a newer tollgate"), "{error}");
        assert_eq!(disk.names(), before);
        disk.tamper(name, |bytes| bytes[7] -= 1);
    }
    assert_eq!(Spool::open(disk, SETTINGS).unwrap().state.unshipped(), 3);
}

#[test]
fn what_is_not_synced_is_not_shipped() {
    let disk = Arc::new(FakeDisk::default());
    let Spool { mut writer, mut reader, state } = Spool::open(disk, SETTINGS).unwrap();
    write(&mut writer, 3);
    assert!(!state.has_shippable());
    assert_eq!(reader.read().unwrap(), 0);
    assert!(state.sync().unwrap());
    assert!(state.has_shippable());
    write(&mut writer, 1);
    assert_eq!(reader.read().unwrap(), 3);
}

#[test]
fn a_spool_that_is_full_keeps_an_eighth_for_ends() {
    let disk = Arc::new(FakeDisk::default());
    let settings = SpoolSettings { limit_bytes: 8_000, ..SETTINGS };
    let Spool { mut writer, mut reader, state } = Spool::open(disk, settings).unwrap();
    let mut seen = vec![writer.room()];
    while writer.room() != Room::None {
        write(&mut writer, 1);
        seen.push(writer.room());
        assert_eq!(state.is_full(), writer.room() != Room::ForAll);
    }
    seen.dedup();
    assert_eq!(seen, [Room::ForAll, Room::ForEnds, Room::None]);
    assert!((9_000..10_000).contains(&state.bytes()), "{}", state.bytes());
    state.sync().unwrap();
    read_all(&mut reader);
    assert_eq!(writer.room(), Room::ForAll);
}

/// Writes 30 records into several segments, changes one as told, and opens again.
fn damaged(which: usize, change: impl FnOnce(&mut Vec<u8>)) -> (Arc<FakeDisk>, Vec<String>, Spool) {
    let disk = Arc::new(FakeDisk::default());
    let Spool { mut writer, .. } = Spool::open(disk.clone(), SETTINGS).unwrap();
    let ids = write(&mut writer, 30);
    let names = disk.names();
    assert!(names.len() > 2, "{names:?}");
    disk.tamper(&names[which.min(names.len() - 1)], change);
    let spool = Spool::open(disk.clone(), SETTINGS).unwrap();
    (disk, ids, spool)
}

fn bad(disk: &FakeDisk) -> Vec<String> {
    disk.names().into_iter().filter(|name| name.contains(".bad")).collect()
}

#[test]
fn a_torn_end_is_cut_at_the_last_good_record() {
    let (disk, ids, mut spool) = damaged(usize::MAX, |bytes| bytes.truncate(bytes.len() - 7));
    assert_eq!(read_all(&mut spool.reader), ids[..29]);
    assert!(bad(&disk).is_empty());
    let (disk, ids, mut spool) = damaged(usize::MAX, |bytes| bytes.extend([0; 100]));
    assert_eq!(read_all(&mut spool.reader), ids);
    assert!(bad(&disk).is_empty());
    let (_, ids, mut spool) = damaged(usize::MAX, |bytes| bytes.truncate(9));
    let rest = read_all(&mut spool.reader);
    assert_eq!(rest, ids[..rest.len()]);
}

#[test]
fn a_bad_record_elsewhere_keeps_the_rest_of_its_segment_aside() {
    for which in [0, usize::MAX] {
        let (disk, ids, mut spool) = damaged(which, |bytes| bytes[100] ^= 1);
        let [kept] = &bad(&disk)[..] else { panic!("one file is kept aside") };
        assert!(disk.bytes_of(kept).len() > 500);
        let read = read_all(&mut spool.reader);
        assert!(read.len() < 30 && read.iter().all(|id| ids.contains(id)));
        let unshipped = spool.state.unshipped();
        assert_eq!(unshipped, 0);
        Spool::open(disk.clone(), SETTINGS).unwrap();
        assert_eq!(bad(&disk).len(), 1, "once");
    }
    let (disk, _, _) = damaged(1, |bytes| bytes[3] ^= 1);
    assert_eq!(bad(&disk).len(), 1, "a header");
}

#[test]
fn damage_that_comes_later_is_kept_aside_too() {
    let disk = Arc::new(FakeDisk::default());
    let Spool { mut writer, mut reader, state } = Spool::open(disk.clone(), SETTINGS).unwrap();
    let ids = write(&mut writer, 30);
    state.sync().unwrap();
    let names = disk.names();
    disk.tamper(&names[1], |bytes| bytes[500] ^= 1);
    disk.tamper(names.last().unwrap(), |bytes| bytes[40] ^= 1);
    let read = read_all(&mut reader);
    assert!(read.len() > 5 && read.len() < 30);
    assert!(read.iter().all(|id| ids.contains(id)));
    assert_eq!((bad(&disk).len(), state.unshipped()), (2, 0));
    let more = write(&mut writer, 2);
    state.sync().unwrap();
    assert_eq!(read_all(&mut reader), more);
}

#[test]
fn what_is_behind_a_segment_that_was_deleted_does_not_wait_for_it() {
    for which in [0, 1] {
        let directory = TempDir::new();
        let Spool { mut writer, mut reader, state } = open(directory.path());
        let ids = write(&mut writer, 30);
        state.sync().unwrap();
        let segments = names(directory.path());
        let segments: Vec<_> = segments.iter().filter(|it| it.ends_with(".segment")).collect();
        if which == 0 {
            assert!(reader.read().unwrap() > 0, "it was read, and not acknowledged");
        }
        std::fs::remove_file(directory.path().join(segments[which])).unwrap();
        let read = read_all(&mut reader);
        assert!(read.len() > 10 && read.len() < 30, "{} of 30", read.len());
        assert_eq!(read.last(), ids.last());
        assert_eq!(state.unshipped(), 0);
        let more = write(&mut writer, 3);
        state.sync().unwrap();
        assert_eq!(read_all(&mut reader), more);
        writer.close().unwrap();
        reader.remove_finished().unwrap();
        assert_eq!(state.bytes(), 0, "nothing is counted that is not there");
    }
}

#[test]
fn a_damaged_head_starts_a_chain_of_its_own_and_says_so() {
    let disk = Arc::new(FakeDisk::default());
    let Spool { mut writer, mut reader, .. } = Spool::open(disk.clone(), SETTINGS).unwrap();
    write(&mut writer, 1);
    writer.close().unwrap();
    read_all(&mut reader);
    assert_eq!(disk.names(), ["head"]);
    disk.tamper("head", |bytes| bytes[20] ^= 1);
    let spool = Spool::open(disk.clone(), SETTINGS).unwrap();
    assert_eq!(bad(&disk), ["head.bad"]);
    assert_eq!(spool.state.committed(), 0);
}

#[test]
fn files_of_others_are_left_alone() {
    let disk = Arc::new(FakeDisk::default());
    for name in ["notes.txt", "1.segment", "0000000000000000000x.segment"] {
        disk.create(name, b"not ours").unwrap();
    }
    Spool::open(disk.clone(), SETTINGS).unwrap();
    assert_eq!(disk.names().len(), 3);
}

/// The bytes of a segment of a dozen records.
fn segment() -> Vec<u8> {
    let disk = Arc::new(FakeDisk::default());
    let settings = SpoolSettings { segment_bytes: 1 << 20, ..SETTINGS };
    let Spool { mut writer, .. } = Spool::open(disk.clone(), settings).unwrap();
    write(&mut writer, 12);
    disk.bytes_of(&disk.names()[0])
}

proptest! {
    #[test]
    fn of_a_changed_segment_only_what_was_written_is_believed(
        at in any::<prop::sample::Index>(),
        changed in prop::collection::vec(any::<u8>(), 0..64),
        cut in any::<prop::sample::Index>(),
        first in prop_oneof![Just(1_u64), any::<u64>()],
    ) {
        let whole = segment();
        let mut bytes = whole.clone();
        let at = at.index(bytes.len());
        let end = bytes.len().min(at + changed.len());
        bytes[at..end].copy_from_slice(&changed[..end - at]);
        bytes.truncate(cut.index(bytes.len() + 1));
        let found = scan(&bytes, first);
        prop_assert_eq!(&bytes[..found.good], &whole[..found.good]);
        let again = scan(&bytes[..found.good], first);
        prop_assert_eq!((again.last, again.good), (found.last, found.good));
        prop_assert!(!again.is_damaged);
        prop_assert_eq!(found.last.is_some(), found.good > 32);
    }
}
