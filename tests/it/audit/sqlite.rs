//! The SQLite file: what is in it, who may read it, and what it refuses.

use std::{os::unix::fs::PermissionsExt, path::Path};

use sqlx::{
    ConnectOptions, Connection, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode},
};
use tollgate::{
    audit::{
        AuditSink, Entry, EntryKind, StoredEntry,
        query::{AuditQuery, Field, Filter, Order, UsageFilter},
    },
    domain::{MicroUsd, Usage},
    storage::sqlite::{self, AuditReader, StorageError},
};

use super::support::{Batch, TempDir, append, denial, intent, settle};

/// A connection of a stranger's, who may write.
pub async fn connect(path: &Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(path).connect().await.unwrap()
}

async fn open(directory: &TempDir) -> sqlite::SqliteSink {
    sqlite::open(&directory.file()).await.unwrap()
}

async fn read_all(path: &Path) -> Vec<StoredEntry> {
    AuditReader::open(path).await.unwrap().after(0).await.unwrap()
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn every_field_comes_back_as_it_was_written() {
    let directory = TempDir::new();
    let sink = open(&directory).await;
    let call = intent();
    let end = settle(&call);
    append(&sink, &[call.clone(), end.clone()]).await.unwrap();

    let [first, second] = &read_all(&directory.file()).await[..] else { panic!("two rows") };
    assert_eq!((first.seq, second.seq), (1, 2));
    assert_eq!((first.kind.as_str(), &first.outcome, first.status), ("intent", &None, None));
    assert_eq!((first.input_tokens, first.latency_micros), (None, None));
    let text = |value: &str| Some(value.to_owned());
    let expected = StoredEntry {
        seq: 2,
        time: jiff::Timestamp::from_microsecond(end.time.as_microsecond()).unwrap(),
        id: end.id.to_string(),
        call_id: call.call_id.map(|id| id.to_string()),
        kind: "settle".to_owned(),
        outcome: text("ok"),
        status: Some(200),
        request_id: "req-1".to_owned(),
        operation: "create_chat_completion".to_owned(),
        subject: text("user-1"),
        issuer: text("https://bff.example"),
        tier: text("pro"),
        agent: text("coder"),
        trust: text("L2"),
        capabilities: text("code:read model:reasoning"),
        required: text("model:reasoning"),
        extra: Some(serde_json::json!({"cost_center": "42"})),
        model: text("demo"),
        provider: text("scripted"),
        provider_model: text("demo-1"),
        stream_id: end.stream_id.map(|id| id.to_string()),
        trace_id: text("0000000000000000000000000af76519"),
        client_address: text("127.0.0.1"),
        input_tokens: Some(312),
        output_tokens: Some(118),
        cached_input_tokens: Some(100),
        reasoning_tokens: Some(8),
        usage_source: text("provider"),
        cost_micro_usd: Some(198),
        finish_reason: text("stop"),
        latency_micros: Some(1_234_567),
        time_to_first_micros: Some(98_765),
        redactions: Some(serde_json::json!({"aws": 2})),
        detail: text("all is well"),
        run_id: text("run-7"),
        tool: text("fleet_ps"),
        capability: text("model:reasoning"),
        input_hash: Some("ab".repeat(32)),
        input_bytes: Some(70_000),
        output_hash: Some("0c".repeat(32)),
        output_bytes: Some(0),
    };
    assert_eq!(*second, expected);
}

#[tokio::test]
async fn nothing_a_stranger_sends_makes_a_row_that_is_refused() {
    let directory = TempDir::new();
    let sink = open(&directory).await;
    let huge = "é".repeat(1 << 20);
    let entry = Entry {
        request_id: "\0'; DROP TABLE audit; --".to_owned(),
        model: Some(huge.clone()),
        finish_reason: Some(huge.clone()),
        redactions: Some(huge),
        usage: Some(Usage { input_tokens: u64::MAX, ..Usage::default() }),
        cost: Some(MicroUsd(u64::MAX)),
        latency: Some(std::time::Duration::MAX),
        trace_id: Some(u128::MAX),
        ..intent()
    };
    append(&sink, &[entry]).await.unwrap();
    let row = &read_all(&directory.file()).await[0];
    assert_eq!(row.request_id, "\u{fffd}'; DROP TABLE audit; --");
    assert_eq!(row.model.as_ref().map(String::len), Some(8_192));
    assert_eq!((row.input_tokens, row.cost_micro_usd), (Some(i64::MAX), Some(i64::MAX)));
}

#[tokio::test]
async fn links_come_back_and_later_ends_are_kept_aside() {
    let directory = TempDir::new();
    let sink = open(&directory).await;
    let call = intent();
    let entries = [call.clone(), settle(&call), call.follow_up(EntryKind::Canceled), denial()];
    let batch = Batch::of(&entries);
    for _ in 0..2 {
        sink.append(&batch.linked()).await.unwrap();
    }
    let shown = read_all(&directory.file()).await;
    let kinds: Vec<_> = shown.iter().map(|row| row.kind.as_str()).collect();
    assert_eq!(kinds, ["intent", "settle", "denied"]);

    let mut stranger = connect(&directory.file()).await;
    let rows: Vec<(String, u32, i64, Vec<u8>, bool)> = sqlx::query_as(
        "SELECT writer, epoch, chain_seq, hash, superseded FROM audit ORDER BY chain_seq",
    )
    .fetch_all(&mut stranger)
    .await
    .unwrap();
    let expected: Vec<_> = (batch.linked().iter().map(|linked| linked.link))
        .map(|link| {
            let seq = i64::try_from(link.seq).unwrap();
            (link.writer.to_string(), link.epoch, seq, link.hash.to_vec(), seq == 3)
        })
        .collect();
    assert_eq!(rows, expected);
}

#[tokio::test]
async fn a_database_of_before_the_chain_opens_and_goes_on() {
    let directory = TempDir::new();
    sqlite::migrate(&directory.file()).await.unwrap();
    let mut stranger = connect(&directory.file()).await;
    // As the first migration left it.
    for undo in [
        "DROP TABLE audit; DROP TABLE audit_block; DROP TABLE audit_filter; DROP TABLE audit_usage; \
         DROP TABLE audit_content; DROP TABLE audit_swept",
        include_str!("../../../migrations/sqlite/0001_audit.sql"),
        "DELETE FROM _sqlx_migrations WHERE version > 1",
        "INSERT INTO audit (id, call_id, time_micros, kind, request_id, operation, model) \
         VALUES ('a', 'c', 1, 'intent', 'r', 'o', 'm'), ('b', 'c', 2, 'settle', 'r', 'o', 'm')",
    ] {
        sqlx::raw_sql(undo).execute(&mut stranger).await.unwrap();
    }
    let sink = open(&directory).await;
    append(&sink, &[denial()]).await.unwrap();
    let rows = read_all(&directory.file()).await;
    assert_eq!(rows.iter().map(|row| row.seq).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(rows[1].id, "b");
    let linked: i64 =
        sqlx::query_scalar("SELECT count(hash) FROM audit").fetch_one(&mut stranger).await.unwrap();
    assert_eq!(linked, 1);
    // What was there before is found, and summed.
    let trail = AuditReader::open(&directory.file()).await.unwrap();
    let mut filter = Filter::default();
    filter.to = Some(jiff::Timestamp::from_second(60).unwrap());
    for (field, value) in [(Field::Model, "m"), (Field::Kind, "settle")] {
        filter.set_field(field, value).unwrap();
    }
    let found = trail.page(&filter, Order::NewestFirst, None, 10).await.unwrap();
    assert_eq!(found.iter().map(|entry| &*entry.id).collect::<Vec<_>>(), ["b"]);
    let mut filter = UsageFilter::until(jiff::Timestamp::UNIX_EPOCH);
    filter.set("group_by", "model").unwrap();
    let usage = trail.usage(&filter).await.unwrap();
    assert_eq!(usage.groups[0].key, [Some("m".to_owned())]);
    assert_eq!(usage.total.calls, 1);
    for error in [
        sqlx::query("UPDATE audit SET superseded = 1").execute(&mut stranger).await.unwrap_err(),
        sqlx::query(
            "INSERT INTO audit (id, call_id, time_micros, kind, request_id, operation) \
             VALUES ('d', 'c', 3, 'canceled', 'r', 'o')",
        )
        .execute(&mut stranger)
        .await
        .unwrap_err(),
    ] {
        assert!(!error.to_string().is_empty());
    }
}

#[tokio::test]
async fn the_file_and_its_directory_are_the_owners_alone() {
    let directory = TempDir::new();
    let sink = open(&directory).await;
    append(&sink, &[denial()]).await.unwrap();
    assert_eq!(mode(&directory.path().join("data")), 0o700);
    for name in ["tollgate.db", "tollgate.db-wal", "tollgate.db-shm"] {
        assert_eq!(mode(&directory.path().join("data").join(name)), 0o600, "{name}");
    }
}

#[tokio::test]
async fn a_directory_that_was_there_keeps_its_mode() {
    let directory = TempDir::new();
    let data = directory.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).unwrap();
    open(&directory).await;
    assert_eq!(mode(&data), 0o755);
}

#[tokio::test]
async fn rows_can_be_neither_changed_nor_deleted() {
    let directory = TempDir::new();
    let sink = open(&directory).await;
    let call = intent();
    append(&sink, &[call.clone(), settle(&call)]).await.unwrap();
    let before = read_all(&directory.file()).await;

    let mut stranger = connect(&directory.file()).await;
    for tampering in [
        "UPDATE audit SET subject = 'somebody else'",
        "UPDATE audit SET cost_micro_usd = 0 WHERE kind = 'settle'",
        "DELETE FROM audit WHERE seq = 2",
        "DELETE FROM audit",
    ] {
        let error = sqlx::query(tampering).execute(&mut stranger).await.unwrap_err();
        assert!(error.to_string().contains("append-only"), "{tampering}: {error}");
    }
    assert_eq!(read_all(&directory.file()).await, before);
}

#[tokio::test]
async fn opening_again_keeps_what_is_there_and_migrates_once() {
    let directory = TempDir::new();
    assert_eq!(sqlite::migrate(&directory.file()).await.unwrap(), 5);
    assert_eq!(sqlite::migrate(&directory.file()).await.unwrap(), 0);
    append(&open(&directory).await, &[denial()]).await.unwrap();
    append(&open(&directory).await, &[denial()]).await.unwrap();
    assert_eq!(sqlite::migrate(&directory.file()).await.unwrap(), 0);
    assert_eq!(read_all(&directory.file()).await.len(), 2);
}

#[tokio::test]
async fn processes_that_start_at_once_migrate_once() {
    let directory = TempDir::new();
    let path = directory.file();
    let opened = futures_util::future::join_all((0..4).map(|_| sqlite::migrate(&path))).await;
    let applied: usize = opened.into_iter().map(Result::unwrap).sum();
    assert_eq!(applied, 5);
}

#[tokio::test]
async fn a_newer_database_is_refused_by_name_and_left_alone() {
    let directory = TempDir::new();
    sqlite::migrate(&directory.file()).await.unwrap();
    let mut newer = connect(&directory.file()).await;
    sqlx::query(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
         VALUES (9999, 'from the future', 1, x'00', 0)",
    )
    .execute(&mut newer)
    .await
    .unwrap();

    let for_writing = sqlite::open(&directory.file()).await.unwrap_err();
    let for_reading = AuditReader::open(&directory.file()).await.unwrap_err();
    for error in [for_writing, for_reading] {
        assert!(matches!(error, StorageError::Newer { version: 9999, .. }), "{error}");
        assert!(error.to_string().contains("written by a newer tollgate"), "{error}");
    }
}

#[tokio::test]
async fn a_place_where_no_file_can_be_is_named() {
    let directory = TempDir::new();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let path = file.join("data/tollgate.db");
    let error = sqlite::open(&path).await.unwrap_err().to_string();
    assert!(error.contains("can't make the directory"), "{error}");
    assert!(error.contains("file/data"), "{error}");

    let error = sqlite::open(directory.path()).await.unwrap_err().to_string();
    assert!(error.contains("can't make the audit database"), "{error}");
}

#[tokio::test]
async fn a_file_of_another_kind_is_refused_by_name_and_left_alone() {
    let directory = TempDir::new();
    let path = directory.path().join("notes.txt");
    std::fs::write(&path, "not a database, ".repeat(1_000)).unwrap();
    for error in
        [sqlite::open(&path).await.unwrap_err(), AuditReader::open(&path).await.unwrap_err()]
    {
        assert!(error.to_string().contains("notes.txt"), "{error}");
        assert!(error.to_string().contains("not a database"), "{error}");
    }
    assert_eq!(std::fs::read(&path).unwrap(), "not a database, ".repeat(1_000).as_bytes());
}

#[tokio::test]
async fn a_reader_of_a_database_that_is_not_there_makes_none() {
    let directory = TempDir::new();
    let error = AuditReader::open(&directory.file()).await.unwrap_err().to_string();
    assert!(error.starts_with("no audit database at "), "{error}");
    assert!(error.contains("start tollgate first, or pass --config or --path"), "{error}");
    assert!(!directory.path().join("data").exists());

    let other = directory.path().join("other.db");
    let mut connection = SqliteConnectOptions::new()
        .filename(&other)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .connect()
        .await
        .unwrap();
    sqlx::query("CREATE TABLE t (x)").execute(&mut connection).await.unwrap();
    let error = AuditReader::open(&other).await.unwrap_err();
    assert!(matches!(error, StorageError::NoAudit(_)), "{error}");
}

#[tokio::test]
async fn another_processs_lock_is_waited_for_and_then_an_error_that_can_be_retried() {
    let directory = TempDir::new();
    let sink = open(&directory).await;
    let mut stranger = connect(&directory.file()).await;
    let transaction = stranger.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let entries: Vec<_> = (0..300).map(|_| denial()).collect();
    append(&sink, &entries).await.unwrap_err();
    transaction.rollback().await.unwrap();
    append(&sink, &entries).await.unwrap();
    assert_eq!(read_all(&directory.file()).await.len(), 300);
}

#[tokio::test]
async fn a_database_that_is_full_takes_none_of_a_batch_and_goes_on_once_there_is_room() {
    let directory = TempDir::new();
    let sink = open(&directory).await;
    append(&sink, &[denial()]).await.unwrap();
    let mut stranger = connect(&directory.file()).await;
    // A trigger stands in for the disk: it fails a batch at its last row.
    sqlx::query(
        "CREATE TRIGGER full BEFORE INSERT ON audit WHEN NEW.detail = 'no room' \
         BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END",
    )
    .execute(&mut stranger)
    .await
    .unwrap();
    let mut entries: Vec<_> = (0..300).map(|_| denial()).collect();
    entries[250].detail = Some("no room".to_owned());
    let error = append(&sink, &entries).await.unwrap_err().to_string();
    assert!(error.contains("disk is full"), "{error}");
    append(&sink, &entries[200..256]).await.unwrap_err();
    assert_eq!(read_all(&directory.file()).await.len(), 1);
    sqlx::query("DROP TRIGGER full").execute(&mut stranger).await.unwrap();
    append(&sink, &entries).await.unwrap();
    assert_eq!(read_all(&directory.file()).await.len(), 301);
}

#[tokio::test]
async fn the_first_end_of_a_call_stands_against_a_stranger_too() {
    let directory = TempDir::new();
    let sink = open(&directory).await;
    let call = intent();
    append(&sink, &[call.clone(), settle(&call)]).await.unwrap();
    let end = call.follow_up(EntryKind::Canceled);
    let mut stranger = connect(&directory.file()).await;
    let error = sqlx::query(
        "INSERT INTO audit (id, call_id, time_micros, kind, request_id, operation) \
         VALUES (?, ?, 0, 'canceled', '', '')",
    )
    .bind(end.id.to_string())
    .bind(end.call_id.map(|id| id.to_string()))
    .execute(&mut stranger)
    .await
    .unwrap_err();
    assert!(error.to_string().contains("UNIQUE"), "{error}");
}
