//! The schema's versions. They are part of the binary and only go forward.

use std::{borrow::Cow, path::Path};

use sqlx::{
    Connection, SqlSafeStr, SqliteConnection,
    migrate::{MigrateError, Migration, MigrationType, Migrator},
};

use super::StorageError;

/// `migrations/sqlite/`, each once it is released never changed: its checksum is stored.
const MIGRATIONS: &[(i64, &str, &str)] = &[
    (1, "audit", include_str!("../../../migrations/sqlite/0001_audit.sql")),
    (2, "chain", include_str!("../../../migrations/sqlite/0002_chain.sql")),
    (10, "verify", include_str!("../../../migrations/sqlite/0010_verify.sql")),
    (11, "query", include_str!("../../../migrations/sqlite/0011_query.sql")),
    (20, "sweep", include_str!("../../../migrations/sqlite/0020_sweep.sql")),
];

/// Applies what is missing, all or nothing; returns how many that was.
pub(super) async fn run(
    path: &Path,
    connection: &mut SqliteConnection,
) -> Result<usize, StorageError> {
    apply(connection).await.map_err(|error| match error {
        MigrateError::VersionMissing(version) => {
            StorageError::Newer { path: path.to_owned(), version }
        }
        source => StorageError::Migrate { path: path.to_owned(), source: Box::new(source) },
    })
}

async fn apply(connection: &mut SqliteConnection) -> Result<usize, MigrateError> {
    // The lock is taken first, so that of two processes that start at once one waits.
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let before = applied(&mut transaction).await?.len();
    migrator().run_direct(None, &mut *transaction, false).await?;
    let after = applied(&mut transaction).await?.len();
    transaction.commit().await?;
    Ok(after - before)
}

/// Refuses a database that this binary does not know, without writing to it.
pub(super) async fn check(
    path: &Path,
    connection: &mut SqliteConnection,
) -> Result<(), StorageError> {
    let unreadable = |source| StorageError::Open { path: path.to_owned(), source };
    let versions = applied(connection).await.map_err(unreadable)?;
    if let Some(version) = versions.iter().find(|version| !migrator().version_exists(**version)) {
        return Err(StorageError::Newer { path: path.to_owned(), version: *version });
    }
    if versions.is_empty() {
        return Err(StorageError::NoAudit(path.to_owned()));
    }
    Ok(())
}

/// As [`check`], and refuses a database that lacks any of this version's migrations.
pub(super) async fn check_whole(
    path: &Path,
    connection: &mut SqliteConnection,
) -> Result<(), StorageError> {
    check(path, connection).await?;
    let unreadable = |source| StorageError::Open { path: path.to_owned(), source };
    let applied = applied(connection).await.map_err(unreadable)?;
    if applied.len() < MIGRATIONS.len() {
        return Err(StorageError::Older(path.to_owned()));
    }
    Ok(())
}

async fn applied(connection: &mut SqliteConnection) -> Result<Vec<i64>, sqlx::Error> {
    let tables = "SELECT count(*) FROM sqlite_schema WHERE name = '_sqlx_migrations'";
    if sqlx::query_scalar::<_, i64>(tables).fetch_one(&mut *connection).await? == 0 {
        return Ok(Vec::new());
    }
    let versions = "SELECT version FROM _sqlx_migrations ORDER BY version";
    sqlx::query_scalar(versions).fetch_all(connection).await
}

fn migrator() -> Migrator {
    let migration = |&(version, name, sql): &(i64, &'static str, &'static str)| {
        let sql = sql.into_sql_str();
        Migration::new(version, Cow::Borrowed(name), MigrationType::Simple, sql, false)
    };
    Migrator::with_migrations(MIGRATIONS.iter().map(migration).collect())
}
