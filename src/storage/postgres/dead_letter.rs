//! Rows that Postgres takes in no batch: kept apart, so that those behind them go on.

use sqlx::PgConnection;

use super::error::code;
use crate::audit::Linked;

/// Is it the row that is refused, whatever the state of the database? Only then does it help to take
/// it out of its batch.
pub(super) fn is_of_a_row(error: &sqlx::Error) -> bool {
    // A row that no partition takes is of this class too, but that is the tables' fault.
    const CHECK_VIOLATION: &str = "23514";
    code(error).is_some_and(|code| {
        // Data that is none, a constraint, and a limit such as an index's.
        ["22", "23", "54"].iter().any(|class| code.starts_with(class)) && code != CHECK_VIOLATION
    })
}

/// Keeps a row as its chain has it, and says so.
pub(super) async fn keep(
    connection: &mut PgConnection,
    linked: &Linked<'_>,
    error: &sqlx::Error,
) -> sqlx::Result<()> {
    let link = &linked.link;
    let seq = i64::try_from(link.seq).map_err(|error| sqlx::Error::Encode(error.into()))?;
    let mut record = Vec::new();
    linked.record.encode(&mut record);
    let insert = "INSERT INTO audit_dead_letter (writer, epoch, chain_seq, hash, record, error) \
                  VALUES ($1::uuid, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING";
    sqlx::query(insert)
        .bind(link.writer.to_string())
        .bind(i64::from(link.epoch))
        .bind(seq)
        .bind(&link.hash[..])
        .bind(record)
        .bind(error.to_string().replace('\0', ""))
        .execute(connection)
        .await?;
    tracing::error!(
        %error, writer = %link.writer, seq = link.seq,
        "Postgres refuses an audit entry: it is in tollgate.audit_dead_letter"
    );
    Ok(())
}
