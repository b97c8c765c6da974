//! What the gateway's role can do.

use sqlx::AssertSqlSafe;
use tollgate::storage::postgres::{self, PostgresError};

use super::{
    super::support::{append, intent, settle},
    Postgres,
};
use crate::support::postgres::run;

/// As the gateway's role, from its own connection.
async fn refused(postgres: &Postgres, sql: &str) -> String {
    let mut connection = postgres.gateway().await;
    let done = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut connection).await;
    done.expect_err(sql).to_string()
}

#[tokio::test]
async fn the_gateways_role_adds_rows_reads_them_and_nothing_else() {
    let postgres = Postgres::start().await;
    let call = intent();
    append(&postgres.sink, &[call.clone(), settle(&call)]).await.unwrap();
    let partition: Vec<(String,)> =
        postgres.rows("SELECT tableoid::regclass::text FROM tollgate.audit LIMIT 1").await;
    let partition = &partition[0].0;
    let statements = [
        "UPDATE tollgate.audit SET subject = 'somebody else'",
        "UPDATE tollgate.audit_usage SET calls = 0",
        "INSERT INTO tollgate.audit_usage SELECT * FROM tollgate.audit_usage",
        "DELETE FROM tollgate.audit",
        "DELETE FROM tollgate.audit_closed",
        "UPDATE tollgate.audit_closed SET entry_id = call_id",
        "DELETE FROM tollgate.audit_dead_letter",
        "UPDATE tollgate.audit_content SET text = ''",
        "DELETE FROM tollgate.audit_content",
        "UPDATE tollgate.audit_swept SET seq = 0",
        "TRUNCATE tollgate.audit",
        "DROP TABLE tollgate.audit",
        "DROP SCHEMA tollgate CASCADE",
        "ALTER TABLE tollgate.audit DISABLE TRIGGER audit_usage",
        "ALTER TABLE tollgate.audit DROP COLUMN hash",
        "CREATE TABLE tollgate.mine (x int)",
        "UPDATE tollgate.compatibility SET oldest_migration = 99",
        "DELETE FROM tollgate._sqlx_migrations",
        "SELECT setval('tollgate.audit_seq_seq', 1)",
        "BEGIN; LOCK TABLE tollgate.audit IN ACCESS EXCLUSIVE MODE",
        &format!("DELETE FROM {partition}"),
        &format!("INSERT INTO {partition} SELECT * FROM tollgate.audit"),
        &format!("ALTER TABLE tollgate.audit DETACH PARTITION {partition}"),
        &format!("DROP TABLE {partition}"),
    ];
    for statement in statements {
        let error = refused(&postgres, statement).await;
        let is_denied = error.contains("permission denied") || error.contains("must be owner");
        assert!(is_denied, "{statement}: {error}");
    }
    assert_eq!(postgres.number("SELECT count(*) FROM tollgate.audit").await, 2);
}

#[tokio::test]
async fn its_calls_of_the_owners_functions_can_do_no_harm() {
    let postgres = Postgres::start().await;
    append(&postgres.sink, &[intent()]).await.unwrap();
    let error = refused(&postgres, "SELECT tollgate.audit_add_usage()").await;
    assert!(error.contains("permission denied") || error.contains("as triggers"), "{error}");
    let tables = "SELECT count(*) FROM pg_inherits";
    let before = postgres.number(tables).await;
    let mut gateway = postgres.gateway().await;
    // Far away, nowhere, there already.
    let made = "SELECT tollgate.make_partitions(ARRAY[0, -5, 9000000, NULL, \
                floor(extract(epoch FROM now()) / 86400)]::int8[])";
    let made: i64 = sqlx::query_scalar(made).fetch_one(&mut gateway).await.unwrap();
    assert_eq!(made, 0);
    assert_eq!(postgres.number(tables).await, before);
    // Beyond the last row, there, and back.
    for (upto, swept) in [(2, 0), (1, 1), (0, 1)] {
        let mark = sqlx::query("SELECT tollgate.mark_swept($1)").bind(upto);
        mark.execute(&mut gateway).await.unwrap();
        assert_eq!(postgres.number("SELECT seq FROM tollgate.audit_swept").await, swept);
    }
}

#[tokio::test]
async fn without_the_owner_a_gateway_writes_to_what_is_migrated_and_says_what_is_missing_else() {
    let postgres = Postgres::start().await;
    let alone = tollgate::config::AuditConfig { owner_url: None, ..postgres.config.clone() };
    let sink = postgres::sink(&alone).unwrap();
    let error = append(&sink, &[intent()]).await.unwrap_err().to_string();
    assert!(error.contains("run `tollgate migrate`"), "{error}");
    assert!(error.contains("audit.owner_url"), "{error}");
    postgres::migrate(&postgres.config).await.unwrap();
    append(&sink, &[intent()]).await.unwrap();
    assert_eq!(postgres.number("SELECT count(*) FROM tollgate.audit").await, 1);
}

#[tokio::test]
async fn one_role_can_do_both() {
    let postgres = Postgres::start().await;
    let owner = tollgate::config::AuditConfig {
        url: Some(postgres.database.owner_url()),
        owner_url: None,
        ..postgres.config.clone()
    };
    append(&postgres::sink(&owner).unwrap(), &[intent()]).await.unwrap();
    assert_eq!(postgres.number("SELECT count(*) FROM tollgate.audit").await, 1);
}

#[tokio::test]
async fn a_role_that_is_not_there_is_named() {
    let postgres = Postgres::start().await;
    let mut superuser = postgres.database.superuser().await;
    run(&mut superuser, &format!("DROP ROLE {}", postgres.database.gateway_role())).await;
    let error = postgres::migrate(&postgres.config).await.unwrap_err();
    assert!(matches!(error, PostgresError::NoRole { .. }), "{error}");
    assert!(error.to_string().contains(&postgres.database.gateway_role()), "{error}");
}
