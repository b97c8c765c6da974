//! Old days leave the database, each once it is in a file.

use std::{
    io::Read,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use aws_lc_rs::digest::{SHA256, digest};
use flate2::read::GzDecoder;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value as Json;
use tollgate::{
    audit::{AuditSink, Chain, Entry, FIELDS, FieldType, Link, Record, Value},
    config::AuditConfig,
    storage::postgres,
};

use super::{
    super::support::{Batch, TempDir, append, denial, intent, settle},
    Postgres,
};
use crate::support::postgres::run;

/// Its partition, rows, file and the file's hash.
type Retired = (String, i64, String, Vec<u8>);

const ROWS: &str = "SELECT count(*) FROM tollgate.audit";

/// Of 30 days, to files of that directory.
fn retaining(postgres: &Postgres, directory: &Path) -> AuditConfig {
    AuditConfig {
        retention_days: Some(30),
        archive: Some(directory.to_owned()),
        ..postgres.config.clone()
    }
}

fn ago(days: i64) -> Timestamp {
    Timestamp::now() - SignedDuration::from_hours(24 * days)
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).map(|entries| entries.flatten().collect::<Vec<_>>());
    let mut files: Vec<_> =
        entries.unwrap_or_default().iter().map(std::fs::DirEntry::path).collect();
    files.sort();
    files
}

fn lines(file: &Path) -> Vec<Json> {
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(file).unwrap()).read_to_string(&mut text).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn name(time: Timestamp) -> String {
    format!("audit-{}.jsonl.gz", time.strftime("%Y%m%d"))
}

#[tokio::test]
async fn days_that_are_over_go_to_files_with_all_that_the_chain_needs() {
    let (postgres, directory) = (Postgres::start().await, TempDir::new());
    let config = retaining(&postgres, &directory.path().join("archive"));
    let call = Entry { time: ago(40), ..intent() };
    let end = Entry { time: ago(40), ..settle(&call) };
    let second = Entry { time: ago(40), ..settle(&call) };
    let entries = [call, end, second, Entry { time: ago(33), ..denial() }, denial()];
    let batch = Batch::of(&entries);
    postgres.sink.append(&batch.linked()).await.unwrap();

    assert_eq!(postgres::retire(&config, Timestamp::now()).await.unwrap(), 4);
    assert_eq!(postgres.number(ROWS).await, 1);
    let files = files(&directory.path().join("archive"));
    let names: Vec<_> =
        files.iter().map(|file| file.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, [name(ago(40)), name(ago(33))]);
    let rows: Vec<Json> = files.iter().flat_map(|file| lines(file)).collect();
    let superseded: Vec<_> = rows.iter().map(|row| row["superseded"].as_bool().unwrap()).collect();
    assert_eq!(superseded, [false, false, true, false]);
    expect_chain(&rows, &batch);

    let retired: Vec<Retired> = postgres
        .rows("SELECT partition, row_count, file, file_hash FROM tollgate.audit_retired ORDER BY 1")
        .await;
    assert_eq!(retired.iter().map(|row| row.1).collect::<Vec<_>>(), [3, 1]);
    for ((_, _, path, hash), file) in retired.iter().zip(&files) {
        assert_eq!(Path::new(path), file);
        assert_eq!(hash, digest(&SHA256, &std::fs::read(file).unwrap()).as_ref());
        assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    }
    assert_eq!(postgres::retire(&config, Timestamp::now()).await.unwrap(), 0, "once");
    assert_eq!(postgres.number("SELECT calls FROM tollgate.audit_usage").await, 1, "sums stay");
}

/// The records' bytes can be made again from what the file says, and their hashes follow.
fn expect_chain(rows: &[Json], batch: &Batch) {
    for (row, sent) in rows.iter().zip(batch.linked()) {
        let values = FIELDS.map(|(name, field)| match (field, &row[name]) {
            (_, Json::Null) => Value::Null,
            (FieldType::Text, value) => Value::Text(value.as_str().unwrap()),
            (FieldType::Number, value) => Value::Number(value.as_i64().unwrap()),
        });
        assert_eq!(Record::new(&values), sent.record);
        let hash = row["hash"].as_str().unwrap();
        let bytes = (0..32).map(|at| u8::from_str_radix(&hash[2 * at..2 * at + 2], 16).unwrap());
        assert_eq!(bytes.collect::<Vec<_>>(), sent.link.hash);
    }
    let first = batch.linked()[0];
    let mut chain = Chain::after(Link::origin(first.link.writer));
    let (link, _) = chain.link(|to| first.record.encode(to));
    assert_eq!(link.hash, first.link.hash);
}

#[tokio::test]
async fn late_rows_of_a_day_that_is_gone_go_to_a_file_of_their_own() {
    let (postgres, directory) = (Postgres::start().await, TempDir::new());
    let config = retaining(&postgres, directory.path());
    for _ in 0..2 {
        append(&postgres::sink(&config).unwrap(), &[Entry { time: ago(40), ..denial() }])
            .await
            .unwrap();
        assert_eq!(postgres::retire(&config, Timestamp::now()).await.unwrap(), 1);
    }
    let files = files(directory.path());
    assert_eq!(files.len(), 2);
    assert_eq!(files.iter().map(|file| lines(file).len()).collect::<Vec<_>>(), [1, 1]);
}

#[tokio::test]
async fn old_rows_without_a_partition_go_and_those_of_days_to_come_stay() {
    let (postgres, directory) = (Postgres::start().await, TempDir::new());
    let config = retaining(&postgres, directory.path());
    let times = [ago(900), Timestamp::UNIX_EPOCH, ago(-900)];
    append(&postgres.sink, &times.map(|time| Entry { time, ..denial() })).await.unwrap();
    assert_eq!(postgres::retire(&config, Timestamp::now()).await.unwrap(), 2);
    assert_eq!(postgres.number(ROWS).await, 1);
    let files = files(directory.path());
    assert_eq!(files[0].file_name().unwrap(), "audit-other.jsonl.gz");
    assert_eq!(lines(&files[0]).len(), 2);
}

#[tokio::test]
async fn calls_of_days_that_are_gone_are_forgotten() {
    let (postgres, directory) = (Postgres::start().await, TempDir::new());
    let config = retaining(&postgres, directory.path());
    let call = intent();
    append(&postgres.sink, &[settle(&call)]).await.unwrap();
    let closed = "SELECT count(*) FROM tollgate.audit_closed";
    postgres::retire(&config, Timestamp::now()).await.unwrap();
    assert_eq!(postgres.number(closed).await, 1);
    postgres::retire(&config, Timestamp::now() + SignedDuration::from_hours(24 * 40))
        .await
        .unwrap();
    assert_eq!(postgres.number(closed).await, 0);
}

#[tokio::test]
async fn what_can_t_be_written_to_a_file_stays() {
    let (postgres, directory) = (Postgres::start().await, TempDir::new());
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let config = retaining(&postgres, &file);
    append(&postgres.sink, &[Entry { time: ago(40), ..denial() }]).await.unwrap();
    let error = postgres::retire(&config, Timestamp::now()).await.unwrap_err().to_string();
    assert!(error.contains("audit.archive"), "{error}");
    assert_eq!(postgres.number(ROWS).await, 1);
}

/// A reader of all days keeps a partition from going; its file, which is whole, is another time's.
#[tokio::test]
async fn what_is_being_read_stays_until_it_is_not() {
    let (postgres, directory) = (Postgres::start().await, TempDir::new());
    let config = retaining(&postgres, directory.path());
    append(&postgres.sink, &[Entry { time: ago(40), ..denial() }]).await.unwrap();
    let mut reader = postgres.database.superuser().await;
    run(&mut reader, "BEGIN; SELECT * FROM tollgate.audit LIMIT 1").await;
    postgres::retire(&config, Timestamp::now()).await.unwrap_err();
    run(&mut reader, "COMMIT").await;
    assert_eq!(postgres.number(ROWS).await, 1);
    assert_eq!(postgres::retire(&config, Timestamp::now()).await.unwrap(), 1);
    assert_eq!(postgres.number("SELECT count(*) FROM tollgate.audit_retired").await, 1);
}

#[tokio::test]
async fn the_gateways_role_can_take_nothing_out() {
    let (postgres, directory) = (Postgres::start().await, TempDir::new());
    append(&postgres.sink, &[Entry { time: ago(40), ..denial() }]).await.unwrap();
    let config = AuditConfig { owner_url: None, ..retaining(&postgres, directory.path()) };
    let error = postgres::retire(&config, Timestamp::now()).await.unwrap_err().to_string();
    assert!(error.contains("permission denied"), "{error}");
    assert_eq!(postgres.number(ROWS).await, 1);
}
