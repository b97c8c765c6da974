//! The schema's versions. They are part of the binary, only go forward, and leave gateways of the
//! version before running: a migration that can't says so in `compatibility`.

use std::borrow::Cow;

use sqlx::{
    PgConnection, SqlSafeStr,
    migrate::{Migration, MigrationType, Migrator},
};

use super::{
    PostgresError,
    connection::{Connector, Role},
    error::{INSUFFICIENT_PRIVILEGE, code},
    role,
};

/// `migrations/postgres/`, each once it is released never changed: its checksum is stored.
const MIGRATIONS: &[(i64, &str, &str)] = &[
    (1, "audit", include_str!("../../../migrations/postgres/0001_audit.sql")),
    (2, "query", include_str!("../../../migrations/postgres/0002_query.sql")),
];
const TABLE: &str = "tollgate._sqlx_migrations";
/// Of gateways that start at once one migrates, and the others wait.
const LOCK: i64 = 0x7467_6d69_6772;
/// A migration may rewrite a table; what it locks it must get soon, for calls' rows wait behind it.
const LIMITS: &str = "SET statement_timeout = '1h'; SET lock_timeout = '10s'";
const WAIT_FOR_OTHERS: &str = "SET lock_timeout = '15min'";

/// Sees to a schema that this version can write to; migrates it if it may.
///
/// Returns how many migrations were applied.
pub(super) async fn prepare(
    connector: &Connector,
    connection: &mut PgConnection,
) -> Result<usize, PostgresError> {
    if is_current(connection).await? {
        check(connection).await?;
        return Ok(0);
    }
    run(connector).await
}

/// Is the schema of this version, or of a newer one?
pub(super) async fn is_current(connection: &mut PgConnection) -> Result<bool, PostgresError> {
    let applied = match applied(connection).await {
        // The role was given nothing yet.
        Err(PostgresError::Query(error)) if is_denied(&error) => return Ok(false),
        applied => applied?,
    };
    Ok(MIGRATIONS.iter().all(|(version, ..)| applied.contains(version)))
}

/// Applies what is missing, and gives the gateway's role what it needs.
///
/// Returns how many migrations were applied.
pub(super) async fn run(connector: &Connector) -> Result<usize, PostgresError> {
    let mut owner = connector.connect(Role::Owner).await?;
    let user = "SELECT current_user::text";
    let role: String = sqlx::query_scalar(user).fetch_one(&mut owner).await?;
    match apply(&mut owner).await {
        Err(PostgresError::Query(error)) if is_denied(&error) => {
            Err(PostgresError::NotMigrated { role })
        }
        Err(PostgresError::Migrate(error)) if is_denied_to_migrate(&error) => {
            Err(PostgresError::NotMigrated { role })
        }
        applied => {
            let applied = applied?;
            if role != connector.gateway_role() {
                role::grant(&mut owner, connector.gateway_role()).await?;
            }
            Ok(applied)
        }
    }
}

async fn apply(owner: &mut PgConnection) -> Result<usize, PostgresError> {
    sqlx::raw_sql(LIMITS).execute(&mut *owner).await?;
    sqlx::raw_sql(WAIT_FOR_OTHERS).execute(&mut *owner).await?;
    // Held until the connection ends, which it does after this.
    sqlx::query("SELECT pg_advisory_lock($1)").bind(LOCK).execute(&mut *owner).await?;
    sqlx::raw_sql(LIMITS).execute(&mut *owner).await?;
    let exists = "SELECT to_regnamespace('tollgate') IS NOT NULL";
    if !sqlx::query_scalar::<_, bool>(exists).fetch_one(&mut *owner).await? {
        sqlx::raw_sql("CREATE SCHEMA tollgate").execute(&mut *owner).await?;
    }
    let before = applied(owner).await?.len();
    if before > 0 {
        check(owner).await?;
    }
    migrator().run_direct(None, &mut *owner, false).await?;
    Ok(applied(owner).await?.len() - before)
}

/// Does the schema allow gateways of this version?
async fn check(connection: &mut PgConnection) -> Result<(), PostgresError> {
    let oldest = "SELECT oldest_migration FROM tollgate.compatibility";
    let oldest: i64 = sqlx::query_scalar(oldest).fetch_one(connection).await?;
    if MIGRATIONS.iter().all(|(version, ..)| *version < oldest) {
        return Err(PostgresError::Incompatible(oldest));
    }
    Ok(())
}

async fn applied(connection: &mut PgConnection) -> Result<Vec<i64>, PostgresError> {
    let exists = "SELECT to_regclass('tollgate._sqlx_migrations') IS NOT NULL";
    if !sqlx::query_scalar::<_, bool>(exists).fetch_one(&mut *connection).await? {
        return Ok(Vec::new());
    }
    let versions = "SELECT version FROM tollgate._sqlx_migrations WHERE success ORDER BY version";
    Ok(sqlx::query_scalar(versions).fetch_all(connection).await?)
}

fn is_denied(error: &sqlx::Error) -> bool {
    code(error).as_deref() == Some(INSUFFICIENT_PRIVILEGE)
}

fn is_denied_to_migrate(error: &sqlx::migrate::MigrateError) -> bool {
    use sqlx::migrate::MigrateError::{Execute, ExecuteMigration};
    matches!(error, Execute(source) | ExecuteMigration(source, _) if is_denied(source))
}

fn migrator() -> Migrator {
    let migration = |&(version, name, sql): &(i64, &'static str, &'static str)| {
        let sql = sql.into_sql_str();
        Migration::new(version, Cow::Borrowed(name), MigrationType::Simple, sql, false)
    };
    let mut migrator = Migrator::with_migrations(MIGRATIONS.iter().map(migration).collect());
    migrator.dangerous_set_table_name(TABLE);
    // A newer version's migrations may be there, and our own lock is held.
    migrator.set_ignore_missing(true).set_locking(false);
    migrator
}
