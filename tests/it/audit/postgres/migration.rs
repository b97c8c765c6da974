//! The schema's versions.

use futures_util::future::join_all;
use tollgate::storage::postgres::{self, AuditReader, PostgresError};

use super::{
    super::support::{append, denial},
    Postgres,
};
use crate::support::postgres::run;

const ROWS: &str = "SELECT count(*) FROM tollgate.audit";

#[tokio::test]
async fn opening_again_keeps_what_is_there_and_migrates_once() {
    let postgres = Postgres::start().await;
    assert_eq!(postgres::migrate(&postgres.config).await.unwrap(), 4);
    assert_eq!(postgres::migrate(&postgres.config).await.unwrap(), 0);
    for _ in 0..2 {
        let sink = postgres::sink(&postgres.config).unwrap();
        append(&sink, &[denial()]).await.unwrap();
    }
    assert_eq!(postgres.number(ROWS).await, 2);
}

#[tokio::test]
async fn gateways_that_start_at_once_migrate_once() {
    let postgres = Postgres::start().await;
    let migrated = join_all((0..5).map(|_| postgres::migrate(&postgres.config))).await;
    let applied: usize = migrated.into_iter().map(Result::unwrap).sum();
    assert_eq!(applied, 4);
}

#[tokio::test]
async fn a_newer_schema_that_allows_it_is_written_to() {
    let postgres = Postgres::start().await;
    postgres::migrate(&postgres.config).await.unwrap();
    newer(&postgres).await;
    assert_eq!(postgres::migrate(&postgres.config).await.unwrap(), 0);
    append(&postgres.sink, &[denial()]).await.unwrap();
    assert_eq!(postgres.number(ROWS).await, 1);
}

#[tokio::test]
async fn one_that_does_not_is_refused_by_name_and_left_alone() {
    let postgres = Postgres::start().await;
    postgres::migrate(&postgres.config).await.unwrap();
    newer(&postgres).await;
    let mut superuser = postgres.database.superuser().await;
    run(&mut superuser, "UPDATE tollgate.compatibility SET oldest_migration = 9999").await;
    let error = postgres::migrate(&postgres.config).await.unwrap_err();
    assert!(matches!(error, PostgresError::Incompatible(9999)), "{error}");
    let error = append(&postgres.sink, &[denial()]).await.unwrap_err().to_string();
    assert!(error.contains("written by a newer tollgate"), "{error}");
    assert_eq!(postgres.number(ROWS).await, 0);
}

async fn newer(postgres: &Postgres) {
    let mut superuser = postgres.database.superuser().await;
    run(
        &mut superuser,
        "INSERT INTO tollgate._sqlx_migrations \
         (version, description, success, checksum, execution_time) \
         VALUES (9999, 'from the future', true, '', 0); \
         ALTER TABLE tollgate.audit ADD COLUMN of_the_future TEXT",
    )
    .await;
}

#[tokio::test]
async fn a_reader_of_a_database_without_an_audit_trail_makes_none() {
    let postgres = Postgres::start().await;
    let error = AuditReader::open(&postgres.config).await.unwrap_err();
    assert!(matches!(error, PostgresError::NotMigrated { .. }), "{error}");
    assert_eq!(postgres.number("SELECT count(to_regnamespace('tollgate'))").await, 0);
}

#[tokio::test]
async fn a_database_of_another_encoding_is_refused_by_name() {
    let postgres = Postgres::start_with("ENCODING 'LATIN1' LOCALE 'C'").await;
    let error = append(&postgres.sink, &[denial()]).await.unwrap_err();
    assert!(error.to_string().contains("encoding is LATIN1"), "{error}");
}
