//! The schema's versions. They are part of the binary, only go forward, and leave gateways of the
//! version before running: a migration that can't says so in `compatibility`.

use std::{borrow::Cow, time::Duration};

use sqlx::{
    PgConnection, Row, SqlSafeStr,
    migrate::{Migration, MigrationType, Migrator},
};
use tokio::time::timeout;

use super::{
    PostgresError,
    connection::{Connector, Role},
    error::{INSUFFICIENT_PRIVILEGE, INVALID_SCHEMA, UNDEFINED_TABLE, code},
    role,
};

/// `migrations/postgres/`, each once it is released never changed: its checksum is stored.
const MIGRATIONS: &[(i64, &str, &str)] = &[
    (1, "audit", include_str!("../../../migrations/postgres/0001_audit.sql")),
    (10, "verify", include_str!("../../../migrations/postgres/0010_verify.sql")),
    (11, "query", include_str!("../../../migrations/postgres/0011_query.sql")),
    (20, "sweep", include_str!("../../../migrations/postgres/0020_sweep.sql")),
];
const TABLE: &str = "tollgate._sqlx_migrations";
/// Of gateways that start at once one migrates, and the others wait.
const LOCK: i64 = 0x7467_6d69_6772;
/// A migration may rewrite a table; what it locks it must get soon, for calls' rows wait behind it.
const LIMITS: &str = "SET lock_timeout = '10s'";
const WAIT_FOR_OTHERS: &str = "SET statement_timeout = 0; SET lock_timeout = 0";
/// For all of it, the waiting for others included.
const DEADLINE: Duration = Duration::from_mins(15);

/// What a role sees of the schema.
#[derive(Debug)]
pub(super) struct Schema {
    versions: Vec<i64>,
    oldest_migration: i64,
    /// Could the role change what it has written?
    pub(super) is_changeable: bool,
}

impl Schema {
    /// `None` where there is none, or none that the role may see.
    pub(super) async fn read(connection: &mut PgConnection) -> Result<Option<Self>, sqlx::Error> {
        let facts = "SELECT ARRAY(SELECT version FROM tollgate._sqlx_migrations WHERE success), \
                     (SELECT oldest_migration FROM tollgate.compatibility), \
                     has_table_privilege('tollgate.audit', 'UPDATE, DELETE, TRUNCATE')";
        match sqlx::raw_sql(facts).fetch_one(connection).await {
            Ok(facts) => Ok(Some(Self {
                versions: facts.try_get(0)?,
                oldest_migration: facts.try_get(1)?,
                is_changeable: facts.try_get(2)?,
            })),
            Err(error) => match code(&error).as_deref() {
                Some(UNDEFINED_TABLE | INVALID_SCHEMA | INSUFFICIENT_PRIVILEGE) => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// Is it of this version, or of a newer one that this one may write beside?
    pub(super) fn is_current(&self) -> Result<bool, PostgresError> {
        if MIGRATIONS.iter().all(|(version, ..)| *version < self.oldest_migration) {
            return Err(PostgresError::Incompatible(self.oldest_migration));
        }
        Ok(MIGRATIONS.iter().all(|(version, ..)| self.versions.contains(version)))
    }
}

/// Applies what is missing, and gives the gateway's role what it needs.
///
/// Returns how many migrations were applied.
pub(super) async fn run(connector: &Connector) -> Result<usize, PostgresError> {
    let late = PostgresError::TimedOut(DEADLINE.as_secs());
    timeout(DEADLINE, migrate(connector)).await.unwrap_or(Err(late))
}

async fn migrate(connector: &Connector) -> Result<usize, PostgresError> {
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
    sqlx::raw_sql(WAIT_FOR_OTHERS).execute(&mut *owner).await?;
    // Held until the connection ends, which it does after this.
    sqlx::query("SELECT pg_advisory_lock($1)").bind(LOCK).execute(&mut *owner).await?;
    sqlx::raw_sql(LIMITS).execute(&mut *owner).await?;
    let exists = "SELECT to_regnamespace('tollgate') IS NOT NULL";
    if !sqlx::query_scalar::<_, bool>(exists).fetch_one(&mut *owner).await? {
        sqlx::raw_sql("CREATE SCHEMA tollgate").execute(&mut *owner).await?;
    }
    let before = Schema::read(owner).await?;
    if before.as_ref().map(Schema::is_current).transpose()? != Some(true) {
        migrator().run_direct(None, &mut *owner, false).await?;
    }
    let count = |schema: Option<Schema>| schema.map_or(0, |schema| schema.versions.len());
    Ok(count(Schema::read(owner).await?) - count(before))
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
