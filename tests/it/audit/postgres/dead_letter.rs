//! Rows that the database refuses do not hold up the others.

use tollgate::audit::{AuditSink, Entry, Record};

use super::{
    super::support::{Batch, append, denial, intent, settle},
    Postgres,
};
use crate::support::postgres::run;

/// A text that an index takes no row of: what a stranger may call a model.
fn unwieldy() -> String {
    std::iter::repeat_with(|| uuid::Uuid::new_v4().simple().to_string()).take(250).collect()
}

/// Somebody has made an index that the schema's comment warns of.
async fn with_an_index_too_many() -> Postgres {
    let postgres = Postgres::start().await;
    append(&postgres.sink, &[denial()]).await.unwrap();
    let mut superuser = postgres.database.superuser().await;
    run(&mut superuser, "CREATE INDEX ON tollgate.audit (model)").await;
    postgres
}

const ROWS: &str = "SELECT count(*) FROM tollgate.audit";

#[tokio::test]
async fn they_are_kept_apart_whole_and_counted_and_the_rest_is_written_in_order() {
    let postgres = with_an_index_too_many().await;
    let mut entries: Vec<Entry> = (0..300).map(|_| denial()).collect();
    for at in [0, 7, 8, 150, 299] {
        entries[at].model = Some(unwieldy());
    }
    let batch = Batch::of(&entries);
    for _ in 0..2 {
        postgres.sink.append(&batch.linked()).await.unwrap();
    }
    assert_eq!(postgres.number(ROWS).await, 1 + 295);
    let misplaced = "SELECT count(*) FROM (SELECT chain_seq - lag(chain_seq) OVER (ORDER BY seq) AS \
                     step FROM tollgate.audit WHERE seq > 1) AS steps WHERE step < 0";
    assert_eq!(postgres.number(misplaced).await, 0);
    assert_eq!(postgres.sink.dead_letters(), 2 * 5, "each time it is tried");

    let letters: Vec<(i64, Vec<u8>, Vec<u8>, String)> = postgres
        .rows(
            "SELECT chain_seq, hash, record, error FROM tollgate.audit_dead_letter \
             ORDER BY chain_seq",
        )
        .await;
    let linked = batch.linked();
    let seqs: Vec<_> = letters.iter().map(|letter| letter.0).collect();
    assert_eq!(seqs, [1, 8, 9, 151, 300]);
    for (seq, hash, record, error) in &letters {
        let sent = &linked[usize::try_from(*seq).unwrap() - 1];
        assert_eq!(hash, &sent.link.hash);
        assert_eq!(Record::decode(record).unwrap(), sent.record);
        assert!(error.contains("index row"), "{error}");
    }
}

#[tokio::test]
async fn what_is_refused_is_no_ones_end_and_adds_to_no_sum() {
    let postgres = with_an_index_too_many().await;
    let call = intent();
    let refused = Entry { model: Some(unwieldy()), ..settle(&call) };
    append(&postgres.sink, &[call.clone(), refused]).await.unwrap();
    assert_eq!(postgres.number("SELECT count(*) FROM tollgate.audit_closed").await, 0);
    assert_eq!(postgres.number("SELECT count(*) FROM tollgate.audit_usage").await, 0);
    append(&postgres.sink, &[settle(&call)]).await.unwrap();
    assert_eq!(
        postgres.number(&format!("{ROWS} WHERE kind = 'settle' AND NOT superseded")).await,
        1
    );
}

#[tokio::test]
async fn a_fault_of_the_tables_refuses_the_batch_and_no_row_of_it() {
    let postgres = Postgres::start().await;
    append(&postgres.sink, &[denial()]).await.unwrap();
    let mut superuser = postgres.database.superuser().await;
    for (break_it, mend_it) in [
        ("ALTER TABLE tollgate.audit RENAME TO gone", "ALTER TABLE tollgate.gone RENAME TO audit"),
        (
            "ALTER TABLE tollgate.audit RENAME COLUMN detail TO gone",
            "ALTER TABLE tollgate.audit RENAME COLUMN gone TO detail",
        ),
    ] {
        run(&mut superuser, break_it).await;
        append(&postgres.sink, &[denial()]).await.unwrap_err();
        run(&mut superuser, mend_it).await;
    }
    append(&postgres.sink, &[denial()]).await.unwrap();
    assert_eq!(postgres.number("SELECT count(*) FROM tollgate.audit_dead_letter").await, 0);
    assert_eq!(postgres.number(ROWS).await, 2);
}
