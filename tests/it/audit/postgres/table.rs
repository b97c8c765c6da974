//! What is in the tables.

use tollgate::audit::{AuditSink, EntryKind};

use super::{
    super::support::{Batch, denial, intent, settle},
    Postgres,
};
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
