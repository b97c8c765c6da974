//! What is in the tables.

use tollgate::{audit::EntryKind, storage::postgres};

use super::{
    super::support::{Batch, append, denial, intent, settle},
    Postgres,
};
use tollgate::audit::AuditSink;

#[tokio::test]
async fn links_come_back_and_later_ends_are_kept_aside() {
    let postgres = Postgres::start().await;
    let call = intent();
    let entries = [call.clone(), settle(&call), call.follow_up(EntryKind::Canceled), denial()];
    let batch = Batch::of(&entries);
    for _ in 0..2 {
        postgres.sink.append(&batch.linked()).await.unwrap();
    }
    let rows: Vec<(String, i64, i64, Vec<u8>, bool)> = postgres
        .rows(
            "SELECT writer::text, epoch, chain_seq, hash, superseded FROM tollgate.audit \
             ORDER BY chain_seq",
        )
        .await;
    let expected: Vec<_> = (batch.linked().iter().map(|linked| linked.link))
        .map(|link| {
            let seq = i64::try_from(link.seq).unwrap();
            (link.writer.to_string(), link.epoch.into(), seq, link.hash.to_vec(), seq == 3)
        })
        .collect();
    assert_eq!(rows, expected);
}

#[tokio::test]
async fn opening_again_keeps_what_is_there_and_migrates_once() {
    let postgres = Postgres::start().await;
    assert_eq!(postgres::migrate(&postgres.config).await.unwrap(), 2);
    assert_eq!(postgres::migrate(&postgres.config).await.unwrap(), 0);
    for _ in 0..2 {
        let sink = postgres::sink(&postgres.config).unwrap();
        append(&sink, &[denial()]).await.unwrap();
    }
    assert_eq!(postgres.number("SELECT count(*) FROM tollgate.audit").await, 2);
}
