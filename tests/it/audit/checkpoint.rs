//! Checkpoints: their key, their log, and the task that makes them.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, sync::Arc, time::Duration};

use tollgate::audit::{
    AuditStatus, Link,
    checkpoint::{
        CHECKPOINT_INTERVAL, Checkpoint, CheckpointKey, CheckpointLog, Checkpointer, Head,
        KeyError, LogError, read_public_keys,
    },
};
use uuid::Uuid;

use super::{
    fake_disk::FakeDisk,
    faulty::Mode,
    handle::{LONG, SETTINGS, Stage, eventually},
    support::{TempDir, denial, intent, settle},
};

fn heads(seq: u64) -> Vec<Head> {
    let link = Link { epoch: 3, seq, ..Link::origin(Uuid::from_u128(7)) };
    vec![Head { link, stored: seq - 1 }]
}

fn read(path: &Path) -> Vec<Checkpoint> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| Checkpoint::parse(line).unwrap()).collect()
}

/// Each is numbered, signed, and linked to the one before.
#[track_caller]
fn are_linked(checkpoints: &[Checkpoint]) {
    let mut previous = [0; 32];
    for (number, checkpoint) in (1..).zip(checkpoints) {
        assert_eq!((checkpoint.number, checkpoint.previous), (number, previous));
        assert!(checkpoint.is_signed());
        previous = checkpoint.hash();
    }
}

#[test]
fn a_key_is_made_once_for_its_owner_alone() {
    let directory = TempDir::new();
    let path = directory.path().join("made/checkpoint.pem");
    CheckpointKey::check(&path).unwrap();
    assert!(!path.exists(), "to check makes nothing");
    let public = CheckpointKey::open(&path).unwrap().public();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(CheckpointKey::open(&path).unwrap().public(), public);
    assert!(!format!("{:?}", CheckpointKey::load(&path).unwrap()).contains("PRIVATE"));

    let exported = directory.path().join("keys.pub");
    let other = CheckpointKey::open(&directory.path().join("other.pem")).unwrap().public();
    fs::write(&exported, public.to_pem() + "and\n" + &other.to_pem()).unwrap();
    assert_eq!(read_public_keys(&exported).unwrap(), [public, other]);
    assert!(matches!(read_public_keys(&path), Err(KeyError::NoPublicKey { .. })));

    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    assert!(matches!(CheckpointKey::check(&path), Err(KeyError::Exposed { .. })));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&path, public.to_pem()).unwrap();
    assert!(matches!(CheckpointKey::open(&path), Err(KeyError::NotAKey { .. })));
}

#[test]
fn a_line_comes_back_and_no_other_does() {
    let directory = TempDir::new();
    let key = CheckpointKey::open(&directory.path().join("key.pem")).unwrap();
    let checkpoint = Checkpoint::sign(&key, Some((8, [5; 32])), heads(10));
    let line = checkpoint.to_line();
    assert_eq!(Checkpoint::parse(&line).unwrap(), checkpoint);
    assert_eq!((checkpoint.number, checkpoint.key), (9, key.public()));
    for at in 0..line.len() {
        let mut other = line.clone().into_bytes();
        other[at] ^= 1;
        let other = String::from_utf8(other).unwrap();
        let is_good = Checkpoint::parse(&other).is_ok_and(|read| read.is_signed());
        assert!(!is_good, "{other}");
    }
    Checkpoint::parse(&line.replace("\"checkpoint\":1", "\"checkpoint\":2")).unwrap_err();
}

#[test]
fn a_log_goes_on_from_its_last_whole_line() {
    let directory = TempDir::new();
    let path = directory.path().join("logs/checkpoints.jsonl");
    let key = CheckpointKey::open(&directory.path().join("key.pem")).unwrap();
    let mut log = CheckpointLog::open(&path).unwrap();
    assert!(log.last().is_none());
    log.add(&key, heads(1)).unwrap();
    log.add(&key, heads(2)).unwrap();
    let busy = CheckpointLog::open(&path).unwrap_err();
    assert!(matches!(busy, LogError::Locked { .. }) && busy.to_string().contains("own"), "{busy}");
    drop(log);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

    let whole = fs::read(&path).unwrap();
    for torn in ["{", "{\"checkpoint\":1,\"number\":3", &"x".repeat(5_000)] {
        fs::write(&path, [&whole, torn.as_bytes()].concat()).unwrap();
        let log = CheckpointLog::open(&path).unwrap();
        assert_eq!(log.last().map(|last| last.number), Some(2));
        assert_eq!(fs::read(&path).unwrap(), whole);
    }
    let mut log = CheckpointLog::open(&path).unwrap();
    log.add(&key, heads(3)).unwrap();
    are_linked(&read(&path));

    // What is no line of ours stays where it is, for whoever verifies.
    drop(log);
    let kept = fs::read_to_string(&path).unwrap();
    fs::write(&path, kept.clone() + "damaged\n").unwrap();
    let mut log = CheckpointLog::open(&path).unwrap();
    let next = log.add(&key, heads(4)).unwrap();
    assert_eq!(next.number, 4);
    assert!(fs::read_to_string(&path).unwrap().starts_with(&(kept + "damaged\n")));
}

#[test]
fn a_log_that_is_moved_or_cut_goes_on_in_its_place() {
    let directory = TempDir::new();
    let path = directory.path().join("checkpoints.jsonl");
    let moved = directory.path().join("moved.jsonl");
    let key = CheckpointKey::open(&directory.path().join("key.pem")).unwrap();
    let mut log = CheckpointLog::open(&path).unwrap();
    log.add(&key, heads(1)).unwrap();
    fs::rename(&path, &moved).unwrap();
    log.add(&key, heads(2)).unwrap();
    are_linked(&[read(&moved), read(&path)].concat());
    fs::write(&path, "").unwrap();
    log.add(&key, heads(3)).unwrap();
    assert_eq!(read(&path)[0].number, 3, "that one is missing is seen");
    // A disk that fails: nothing in part is left, and the number is not used up.
    fs::rename(&path, &moved).unwrap();
    fs::create_dir(&path).unwrap();
    log.add(&key, heads(4)).unwrap_err();
    fs::remove_dir(&path).unwrap();
    assert_eq!(log.add(&key, heads(4)).unwrap().number, 4);
}

#[test]
fn what_went_to_stdout_is_gone_on_with() {
    let directory = TempDir::new();
    let kept = directory.path().join("checkpoint.last");
    let key = CheckpointKey::open(&directory.path().join("key.pem")).unwrap();
    let mut checkpoints = Vec::new();
    for seq in 1..4 {
        let mut log = CheckpointLog::stdout(kept.clone()).unwrap();
        checkpoints.push(log.add(&key, heads(seq)).unwrap().clone());
    }
    are_linked(&checkpoints);
}

/// A trail with checkpoints after so many rows.
struct Sealed {
    stage: Stage,
    directory: TempDir,
}

impl Sealed {
    fn new(rows: u64) -> Self {
        Self::over(TempDir::new(), Arc::default(), rows)
    }

    fn over(directory: TempDir, disk: Arc<FakeDisk>, rows: u64) -> Self {
        let stage = Stage::over(disk, Mode::Work, SETTINGS);
        let sealed = Self { stage, directory };
        let key = CheckpointKey::open(&sealed.directory.path().join("key.pem")).unwrap();
        let log = CheckpointLog::open(&sealed.log()).unwrap();
        sealed.stage.audit.seal(Checkpointer::new(log, key, rows));
        sealed
    }

    fn log(&self) -> std::path::PathBuf {
        self.directory.path().join("checkpoints.jsonl")
    }

    fn seqs(&self) -> Vec<u64> {
        read(&self.log()).iter().map(|checkpoint| checkpoint.heads[0].link.seq).collect()
    }

    fn status(&self) -> AuditStatus {
        self.stage.audit.status()
    }

    async fn write(&self, entries: u64) {
        for _ in 0..entries {
            self.stage.audit.record(denial()).await;
        }
        self.stage.audit.flush(LONG).await.unwrap();
    }

    /// Ends as a gateway does.
    async fn end(self) -> (TempDir, Arc<FakeDisk>) {
        self.stage.audit.shutdown(LONG).await.unwrap();
        let Stage { audit, disk, tasks, .. } = self.stage;
        drop(audit);
        tasks.close();
        tasks.wait().await;
        (self.directory, disk)
    }
}

#[tokio::test]
async fn the_first_row_has_a_checkpoint_and_then_so_many_and_the_last() {
    let sealed = Sealed::new(10);
    sealed.write(1).await;
    eventually(|| sealed.seqs() == [1]).await;
    sealed.write(9).await;
    eventually(|| sealed.status().checkpoints.unsealed == 9).await;
    assert_eq!(sealed.seqs(), [1], "not that many yet");
    sealed.write(1).await;
    eventually(|| sealed.seqs() == [1, 11]).await;
    eventually(|| sealed.status().checkpoints.unsealed == 0).await;
    sealed.write(3).await;
    let log = sealed.log();
    let (_directory, _) = sealed.end().await;
    let checkpoints = read(&log);
    are_linked(&checkpoints);
    let head = checkpoints.last().unwrap().heads[0];
    assert_eq!((head.link.seq, head.stored, head.link.epoch), (14, 14, 1));
}

#[tokio::test]
async fn a_checkpoint_is_made_each_minute_if_there_is_something_to_say() {
    let sealed = Sealed::new(1_000);
    sealed.write(1).await;
    eventually(|| sealed.status().checkpoints.written == 1).await;
    sealed.write(5).await;
    assert_eq!(sealed.seqs(), [1]);
    tokio::time::pause();
    // A timer goes off at the end of its millisecond.
    tokio::time::advance(CHECKPOINT_INTERVAL + Duration::from_millis(2)).await;
    eventually(|| sealed.status().checkpoints.written == 2).await;
    assert_eq!(sealed.seqs(), [1, 6]);
    let stored = read(&sealed.log())[1].heads[0].stored;
    for _ in 0..5 {
        tokio::time::advance(CHECKPOINT_INTERVAL).await;
        tokio::task::yield_now().await;
    }
    assert_eq!((sealed.seqs(), stored), (vec![1, 6], 6), "nothing is new");
    tokio::time::resume();
    sealed.end().await;
}

#[tokio::test]
async fn a_start_speaks_of_what_no_checkpoint_does_and_of_its_own_rows_after() {
    let first = Sealed::new(1_000);
    first.write(4).await;
    let (directory, disk) = first.end().await;
    // This one has no checkpoints, as if it had been killed before it could make any.
    let killed = Stage::over(disk, Mode::Work, SETTINGS);
    let call = intent();
    killed.audit.intent(call.clone()).await.unwrap();
    killed.audit.record(settle(&call)).await;
    killed.audit.shutdown(LONG).await.unwrap();

    let next = Sealed::over(directory, Arc::new(killed.disk.copy()), 1_000);
    eventually(|| next.seqs().last() == Some(&6)).await;
    let (directory, _) = next.end().await;
    let checkpoints = read(&directory.path().join("checkpoints.jsonl"));
    are_linked(&checkpoints);
    let epochs: Vec<u32> = checkpoints.iter().map(|one| one.heads[0].link.epoch).collect();
    assert_eq!((epochs[0], epochs.last()), (1, Some(&2)), "a row's own epoch");
}

#[tokio::test]
async fn a_log_that_cannot_be_written_is_told_and_stops_no_call() {
    let sealed = Sealed::new(2);
    sealed.write(2).await;
    eventually(|| sealed.status().checkpoints.unsealed == 0).await;
    let moved = sealed.directory.path().join("moved.jsonl");
    fs::rename(sealed.log(), &moved).unwrap();
    fs::create_dir(sealed.log()).unwrap();
    sealed.write(2).await;
    eventually(|| !sealed.status().checkpoints.is_up).await;
    let call = intent();
    sealed.stage.audit.intent(call.clone()).await.unwrap();
    sealed.stage.audit.record(settle(&call)).await;
    sealed.stage.audit.flush(LONG).await.unwrap();
    assert!(sealed.stage.audit.healthy());
    assert!(sealed.status().checkpoints.unsealed >= 4);
    fs::remove_dir(sealed.log()).unwrap();
    let log = sealed.log();
    let (_directory, _) = sealed.end().await;
    let all = [read(&moved), read(&log)].concat();
    are_linked(&all);
    assert_eq!(all.last().unwrap().heads[0].link.seq, 6);
}
