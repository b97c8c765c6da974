//! What was asked and answered, where that is kept.

use jiff::Timestamp;
use sqlx::{AssertSqlSafe, PgConnection, Row, postgres::PgRow};

use crate::audit::{
    Linked,
    query::StoredContent,
    verify::{CONTENT_SIDES, ContentBounds, ContentRow, KeptSide, MissingSides, Spot},
};

/// Before all ids.
const FIRST: &str = "00000000-0000-0000-0000-000000000000";

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

/// Sides with what their rows say of them, for verifying.
pub(super) async fn kept(
    connection: &mut PgConnection,
    after: Option<(&str, &str)>,
    bounds: ContentBounds,
) -> sqlx::Result<Vec<KeptSide>> {
    let kept = "SELECT c.entry_id::text, c.side, c.text, c.full_bytes, a.id::text, \
            CASE c.side WHEN 'input' THEN a.input_hash ELSE a.output_hash END, \
            CASE c.side WHEN 'input' THEN a.input_bytes ELSE a.output_bytes END, \
            a.writer::text, a.epoch, a.chain_seq, a.time_micros \
        FROM audit_content AS c LEFT JOIN audit AS a \
            ON a.time_micros = c.time_micros AND a.id = c.entry_id \
        WHERE (c.entry_id, c.side) > ($1::text::uuid, $2::text) \
            AND c.time_micros BETWEEN $3 AND $4 \
        ORDER BY c.entry_id, c.side LIMIT $5";
    let (entry, side) = after.unwrap_or((FIRST, ""));
    let (from, to) = bounds.micros();
    let rows = sqlx::query(kept).bind(entry.to_owned()).bind(side.to_owned());
    let rows = rows.bind(from).bind(to).bind(i64::from(CONTENT_SIDES));
    rows.fetch_all(connection).await?.iter().map(read_kept).collect()
}

fn read_kept(row: &PgRow) -> sqlx::Result<KeptSide> {
    let is_there = row.try_get::<Option<&str>, _>(4)?.is_some();
    let epoch: Option<i64> = row.try_get(8)?;
    let seq: Option<i64> = row.try_get(9)?;
    let time: Option<i64> = row.try_get(10)?;
    let content = ContentRow {
        hash: row.try_get(5)?,
        bytes: row.try_get(6)?,
        spot: Spot {
            writer: row.try_get::<Option<&str>, _>(7)?.and_then(|writer| writer.parse().ok()),
            epoch: epoch.and_then(|epoch| u32::try_from(epoch).ok()),
            seq: seq.and_then(|seq| u64::try_from(seq).ok()),
            time: time.and_then(|time| Timestamp::from_microsecond(time).ok()),
            ..Spot::default()
        },
    };
    Ok(KeptSide {
        entry_id: row.try_get(0)?,
        side: row.try_get(1)?,
        text: row.try_get(2)?,
        full_bytes: row.try_get(3)?,
        row: is_there.then_some(content),
    })
}

/// Sides that rows have a hash of and that are not there.
pub(super) async fn missing(
    connection: &mut PgConnection,
    expired_before: Option<Timestamp>,
    bounds: ContentBounds,
) -> sqlx::Result<MissingSides> {
    let of = |side: &str| {
        format!(
            "SELECT time_micros < $1 AS expired FROM audit AS a WHERE {side}_hash IS NOT NULL \
             AND time_micros BETWEEN $2 AND $3 AND NOT EXISTS (SELECT FROM audit_content AS c \
             WHERE c.entry_id = a.id AND c.side = '{side}')"
        )
    };
    let missing = format!(
        "SELECT count(*) FILTER (WHERE expired), count(*) FILTER (WHERE NOT expired) \
         FROM ({} UNION ALL {}) AS missing",
        of("input"),
        of("output")
    );
    let (from, to) = bounds.micros();
    let (expired, other): (i64, i64) = sqlx::query_as(AssertSqlSafe(missing))
        .bind(expired_before.map_or(i64::MIN, Timestamp::as_microsecond))
        .bind(from)
        .bind(to)
        .fetch_one(connection)
        .await?;
    Ok(MissingSides { expired: expired.unsigned_abs(), other: other.unsigned_abs() })
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
