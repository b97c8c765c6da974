//! A disk without room: calls are refused, nothing is lost, and shipping makes room again.

use std::{fs::File, os::fd::AsRawFd, path::PathBuf, process::Command, sync::Arc};

use tokio_util::task::TaskTracker;
use tollgate::{
    audit::{
        Audit, Entry,
        spool::{DirectoryDisk, Disk, Spool, SpoolSettings},
    },
    redact::LiveRedactor,
};

use super::{
    fake_disk::FakeDisk,
    faulty::{FaultySink, Mode},
    handle::{LONG, SETTINGS, eventually},
    support::{TempDir, intent, kinds_of, settle},
};

/// So many calls end while there is no room.
const ENDS: usize = 20;

/// Over a disk that `segment_bytes` go into more than twice, with a store that is away.
async fn fill_and_drain(disk: Arc<dyn Disk>, segment_bytes: u64) {
    let (sink, tasks) = (Arc::new(FaultySink::new(Mode::Fail)), TaskTracker::new());
    let spool = Spool::open(disk, SpoolSettings { segment_bytes, ..SETTINGS }).unwrap();
    let audit = Audit::start(spool, sink.clone(), LiveRedactor::default(), &tasks).unwrap();
    let mut calls: Vec<Entry> = Vec::new();
    let refused = loop {
        let call = intent();
        if audit.intent(call.clone()).await.is_err() {
            break call;
        }
        calls.push(call);
    };
    assert!(calls.len() > 2 * ENDS, "{}", calls.len());
    let status = audit.status();
    assert!(!status.is_spool_up && !status.is_spool_full && !audit.healthy(), "{status:?}");
    for call in &calls[..ENDS] {
        audit.record(settle(call)).await;
    }

    sink.set(Mode::Work);
    audit.flush(LONG).await.unwrap();
    let lines = sink.lines();
    for (at, call) in calls.iter().enumerate() {
        let ends = if at < ENDS { &["intent", "settle"][..] } else { &["intent"] };
        assert_eq!(kinds_of(call, &lines), ends);
    }
    assert_eq!(kinds_of(&refused, &lines), ["denied"]);
    assert_eq!(sink.seqs(), (1..=lines.len() as u64).collect::<Vec<_>>());
    eventually(|| audit.healthy()).await;
    audit.intent(intent()).await.unwrap();
    audit.shutdown(LONG).await.unwrap();
    assert_eq!(audit.status().unshipped, 0);
}

#[tokio::test]
async fn a_full_disk_refuses_calls_and_loses_nothing() {
    for blocks in 8..12 {
        let disk = Arc::new(FakeDisk::default());
        disk.set_capacity(Some(blocks));
        fill_and_drain(disk, 8_000).await;
    }
}

/// A directory on a file system in memory that has no name any more: it goes with the process,
/// whatever ends that. `None` where this process may not mount one.
fn small_file_system(directory: &TempDir) -> Option<File> {
    let path = directory.path().join("small");
    std::fs::create_dir(&path).unwrap();
    let run = |command: &str, options: &[&str]| {
        let done = Command::new(command).args(options).arg(&path).output();
        done.is_ok_and(|done| done.status.success())
    };
    if !run("mount", &["-t", "tmpfs", "-o", "size=512k,mode=700", "tmpfs"]) {
        return None;
    }
    let opened = File::open(&path);
    assert!(run("umount", &["-l"]));
    Some(opened.unwrap())
}

#[tokio::test]
#[expect(clippy::print_stderr, reason = "a test that shows nothing is to say so")]
async fn a_full_file_system_refuses_calls_and_loses_nothing() {
    let directory = TempDir::new();
    let Some(small) = small_file_system(&directory) else {
        eprintln!("skipped: mounting a tmpfs takes root; the test above simulates it");
        return;
    };
    let path = PathBuf::from(format!("/proc/self/fd/{}", small.as_raw_fd()));
    fill_and_drain(Arc::new(DirectoryDisk::open(&path).unwrap()), 64 << 10).await;
}
