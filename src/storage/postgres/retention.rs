//! Days that are old enough leave the database, each once it is in a file.

use std::{path::Path, time::Duration};

use futures_util::TryStreamExt;
use jiff::Timestamp;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::time::timeout;

use super::{
    PostgresError,
    connection::{Connector, Role},
    partition::MICROS_PER_DAY,
    row,
};
use crate::storage::archive::{Archive, Archived};

/// Of several gateways one does it.
const LOCK: i64 = 0x7467_7265_7469;
/// Rows are long in coming where others read and write much.
const NEXT_ROW: Duration = Duration::from_mins(1);
/// Detaching takes the whole table for a moment. Calls' rows wait behind whoever waits for it.
const LIMITS: &str = "SET statement_timeout = 0; SET idle_in_transaction_session_timeout = '10min'; \
                      SET lock_timeout = '2s'";
/// Calls forgotten at once.
const CLOSED_ROWS: i64 = 10_000;

/// What leaves.
enum Part {
    /// A partition of days that are all old enough.
    Partition(String),
    /// The old rows of the default partition.
    OfDefault,
}

/// Takes out what is of before the last `days` whole days (UTC), each day to a file in `directory`.
///
/// Returns how many rows went.
///
/// # Errors
/// [`PostgresError`]; what had gone by then is in its files.
pub(super) async fn retire(
    connector: &Connector,
    directory: &Path,
    days: u32,
    now: Timestamp,
) -> Result<i64, PostgresError> {
    let mut owner = connector.connect(Role::Owner).await?;
    sqlx::raw_sql(LIMITS).execute(&mut owner).await?;
    let lock = sqlx::query_scalar("SELECT pg_try_advisory_lock($1)").bind(LOCK);
    let is_alone: bool = connector.answered(lock.fetch_one(&mut owner)).await?;
    if !is_alone {
        return Ok(0);
    }
    let today = now.as_microsecond().div_euclid(MICROS_PER_DAY);
    let first_kept = today - i64::from(days);
    let mut rows = 0;
    for part in parts(&mut owner, first_kept).await? {
        rows += take_out(&mut owner, directory, &part, first_kept).await?;
    }
    forget_closed(&mut owner, first_kept).await?;
    Ok(rows)
}

async fn parts(owner: &mut PgConnection, first_kept: i64) -> Result<Vec<Part>, PostgresError> {
    let old = "SELECT relname::text FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid \
               WHERE inhparent = 'audit'::regclass AND relname ~ '^audit_[0-9]{8}$' \
                 AND to_date(right(relname, 8), 'YYYYMMDD') - DATE '1970-01-01' < $1 \
               ORDER BY 1";
    let old: Vec<String> = sqlx::query_scalar(old).bind(first_kept).fetch_all(&mut *owner).await?;
    let mut parts: Vec<_> = old.into_iter().map(Part::Partition).collect();
    let has_old = "SELECT EXISTS (SELECT FROM audit_default WHERE time_micros < $1)";
    let has_old = sqlx::query_scalar(has_old).bind(first_kept.saturating_mul(MICROS_PER_DAY));
    if has_old.fetch_one(owner).await? {
        parts.push(Part::OfDefault);
    }
    Ok(parts)
}

/// Writes a part to its file and then takes it out, in one transaction: nothing is added to it
/// between.
async fn take_out(
    owner: &mut PgConnection,
    directory: &Path,
    part: &Part,
    first_kept: i64,
) -> Result<i64, PostgresError> {
    let before = first_kept.saturating_mul(MICROS_PER_DAY);
    let (table, name) = match part {
        Part::Partition(table) => (&**table, table.replace("audit_", "audit-")),
        Part::OfDefault => ("audit_default", "audit-other".to_owned()),
    };
    let mut transaction = owner.begin().await?;
    let lock = format!("LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE");
    sqlx::raw_sql(AssertSqlSafe(lock)).execute(&mut *transaction).await?;
    let archived = export(&mut transaction, directory, table, &name, before).await?;
    let remove = match part {
        Part::Partition(table) => {
            format!("ALTER TABLE audit DETACH PARTITION {table}; DROP TABLE {table}")
        }
        Part::OfDefault => format!("DELETE FROM audit_default WHERE time_micros < {before}"),
    };
    sqlx::raw_sql(AssertSqlSafe(remove)).execute(&mut *transaction).await?;
    let note = "INSERT INTO audit_retired (partition, row_count, file, file_hash) \
                VALUES ($1, $2, $3, $4)";
    sqlx::query(note)
        .bind(table)
        .bind(archived.rows)
        .bind(archived.path.display().to_string())
        .bind(&archived.hash)
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    let (rows, file) = (archived.rows, archived.path.display());
    tracing::info!(table, rows, %file, "audit entries have left the database for a file");
    Ok(rows)
}

async fn export(
    connection: &mut PgConnection,
    directory: &Path,
    table: &str,
    name: &str,
    before: i64,
) -> Result<Archived, PostgresError> {
    let failed = |source| PostgresError::Archive { path: directory.to_owned(), source };
    let mut archive = Archive::create(directory, name);
    let select = row::select_all(table);
    let mut rows = sqlx::query(AssertSqlSafe(select)).bind(before).fetch(connection);
    let late = || PostgresError::TimedOut(NEXT_ROW.as_secs());
    while let Some(row) = timeout(NEXT_ROW, rows.try_next()).await.map_err(|_| late())?? {
        let row = row::Whole::read(&row)?;
        archive.add(|to| row.write_json(to)).await;
    }
    archive.finish().await.map_err(failed)
}

/// Of calls that began before, and whose rows are gone. A call that was under way at midnight has
/// its end in the day that is kept: so a day later.
async fn forget_closed(owner: &mut PgConnection, first_kept: i64) -> Result<(), PostgresError> {
    // Call ids are UUIDv7: they begin with the milliseconds since 1970.
    let millis = (first_kept - 1).saturating_mul(MICROS_PER_DAY / 1_000);
    let first =
        uuid::Builder::from_unix_timestamp_millis(u64::try_from(millis).unwrap_or(0), &[0; 10]);
    let forget = "DELETE FROM audit_closed WHERE call_id IN \
                  (SELECT call_id FROM audit_closed WHERE call_id < $1::uuid LIMIT $2)";
    loop {
        let forget = sqlx::query(forget).bind(first.as_uuid().to_string()).bind(CLOSED_ROWS);
        if forget.execute(&mut *owner).await?.rows_affected() == 0 {
            return Ok(());
        }
    }
}
