//! What was asked and answered, where that is kept.

use sqlx::{AssertSqlSafe, Row, SqliteConnection};

use crate::audit::{Linked, query::StoredContent};

const INSERT: &str = "INSERT INTO audit_content (entry_id, side, time_micros, text, full_bytes, hash) \
    VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING";

/// Writes the contents that go with these records.
pub(super) async fn write(
    connection: &mut SqliteConnection,
    records: &[Linked<'_>],
) -> sqlx::Result<()> {
    for linked in records.iter().filter(|linked| !linked.content.is_empty()) {
        for (side, text) in [("input", linked.content.input), ("output", linked.content.output)] {
            let Some(text) = text else { continue };
            let get = |name: &str| linked.record.get(name);
            let of_side = |what: &str| linked.record.get(&format!("{side}_{what}"));
            sqlx::query(INSERT)
                .bind(get("id").text().unwrap_or_default())
                .bind(side)
                .bind(get("time_micros").number().unwrap_or_default())
                .bind(text)
                .bind(of_side("bytes").number())
                .bind(of_side("hash").text())
                .execute(&mut *connection)
                .await?;
        }
    }
    Ok(())
}

/// The contents that are kept of these entries.
pub(super) async fn read(
    connection: &mut SqliteConnection,
    entry_ids: &[&str],
) -> sqlx::Result<Vec<StoredContent>> {
    let places = vec!["?"; entry_ids.len()].join(",");
    let sql = format!(
        "SELECT entry_id, side, text, full_bytes FROM audit_content WHERE entry_id IN ({places})"
    );
    let mut query = sqlx::query(AssertSqlSafe(sql));
    for id in entry_ids {
        query = query.bind((*id).to_owned());
    }
    let rows = query.fetch_all(connection).await?;
    let read = |row: &sqlx::sqlite::SqliteRow| {
        Ok(StoredContent {
            entry_id: row.try_get(0)?,
            is_input: row.try_get::<&str, _>(1)? == "input",
            text: row.try_get(2)?,
            full_bytes: row.try_get(3)?,
        })
    };
    rows.iter().map(read).collect()
}
