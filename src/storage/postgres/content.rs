//! What was asked and answered, where that is kept.

use sqlx::{PgConnection, Row, postgres::PgRow};

use crate::audit::{Linked, query::StoredContent};

const INSERT: &str = "INSERT INTO audit_content (entry_id, side, time_micros, text, full_bytes, hash) \
    SELECT entry_id::uuid, side, time_micros, text, full_bytes, hash \
    FROM UNNEST($1::text[], $2::text[], $3::int8[], $4::text[], $5::int8[], $6::text[]) \
         AS sent (entry_id, side, time_micros, text, full_bytes, hash) \
    ON CONFLICT DO NOTHING";

/// Writes the contents that go with these records.
pub(super) async fn write(
    connection: &mut PgConnection,
    records: &[Linked<'_>],
) -> sqlx::Result<()> {
    let sides = records.iter().flat_map(|linked| {
        let sides = [("input", linked.content.input), ("output", linked.content.output)];
        sides.into_iter().filter_map(move |(side, text)| Some((linked, side, text?)))
    });
    let sides: Vec<_> = sides.collect();
    if sides.is_empty() {
        return Ok(());
    }
    let of = |(linked, side, _): &(&Linked<'_>, &str, &str), what: &str| {
        linked.record.get(&format!("{side}_{what}")).number()
    };
    let hash = |(linked, side, _): &(&Linked<'_>, &str, &str)| {
        linked.record.get(&format!("{side}_hash")).text().map(str::to_owned)
    };
    let id = |linked: &Linked<'_>| linked.record.get("id").text().unwrap_or_default().to_owned();
    let time = |linked: &Linked<'_>| linked.record.get("time_micros").number().unwrap_or_default();
    sqlx::query(INSERT)
        .bind(sides.iter().map(|(linked, ..)| id(linked)).collect::<Vec<_>>())
        .bind(sides.iter().map(|(_, side, _)| *side).collect::<Vec<_>>())
        .bind(sides.iter().map(|(linked, ..)| time(linked)).collect::<Vec<_>>())
        .bind(sides.iter().map(|(.., text)| *text).collect::<Vec<_>>())
        .bind(sides.iter().map(|side| of(side, "bytes")).collect::<Vec<_>>())
        .bind(sides.iter().map(hash).collect::<Vec<_>>())
        .execute(connection)
        .await
        .map(drop)
}

/// The contents that are kept of these entries.
pub(super) async fn read(
    connection: &mut PgConnection,
    entry_ids: &[&str],
) -> sqlx::Result<Vec<StoredContent>> {
    let kept = "SELECT entry_id::text, side, text, full_bytes FROM audit_content \
        WHERE entry_id = ANY($1::text[]::uuid[])";
    let rows = sqlx::query(kept).bind(entry_ids).fetch_all(connection).await?;
    let read = |row: &PgRow| {
        Ok(StoredContent {
            entry_id: row.try_get(0)?,
            is_input: row.try_get::<&str, _>(1)? == "input",
            text: row.try_get(2)?,
            full_bytes: row.try_get(3)?,
        })
    };
    rows.iter().map(read).collect()
}
