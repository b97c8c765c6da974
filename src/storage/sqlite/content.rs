//! What was asked and answered, where that is kept.

use std::sync::Arc;

use jiff::Timestamp;
use sqlx::{
    Arguments, AssertSqlSafe, Row, SqliteConnection,
    error::BoxDynError,
    sqlite::{SqliteArguments, SqliteRow},
};

use crate::audit::{
    KeptContent, Linked,
    query::StoredContent,
    verify::{CONTENT_SIDES, ContentBounds, ContentRow, KeptSide, MissingSides, Spot},
};

/// Sides that one statement takes.
const SIDES: usize = 16;

fn insert(sides: usize) -> String {
    let values = vec!["(?,?,?,?,?,?)"; sides].join(",");
    format!(
        "INSERT INTO audit_content (entry_id, side, time_micros, text, full_bytes, hash) \
         VALUES {values} ON CONFLICT DO NOTHING"
    )
}

/// One side of a record's content.
struct Side<'a> {
    linked: &'a Linked<'a>,
    is_input: bool,
    text: &'a str,
}

impl Side<'_> {
    fn bind(&self, to: &mut SqliteArguments) -> Result<(), BoxDynError> {
        let (side, bytes, hash) = if self.is_input {
            ("input", "input_bytes", "input_hash")
        } else {
            ("output", "output_bytes", "output_hash")
        };
        let record = &self.linked.record;
        to.add(record.get("id").text().map(Arc::<str>::from))?;
        to.add(side)?;
        to.add(record.get("time_micros").number())?;
        to.add(Arc::<str>::from(self.text))?;
        to.add(record.get(bytes).number())?;
        to.add(record.get(hash).text().map(Arc::<str>::from))
    }
}

/// Writes the contents that go with these records.
pub(super) async fn write(
    connection: &mut SqliteConnection,
    records: &[Linked<'_>],
) -> sqlx::Result<()> {
    let sides = records.iter().flat_map(|linked| {
        let KeptContent { input, output } = linked.content;
        let side = move |(is_input, text)| Some(Side { linked, is_input, text: text? });
        [(true, input), (false, output)].into_iter().filter_map(side)
    });
    let sides: Vec<_> = sides.collect();
    let mut left = &sides[..];
    while !left.is_empty() {
        // Two statements in all, which SQLite keeps.
        let (part, rest) = left.split_at(if left.len() < SIDES { 1 } else { SIDES });
        left = rest;
        let mut arguments = SqliteArguments::default();
        part.iter().try_for_each(|side| side.bind(&mut arguments)).map_err(sqlx::Error::Encode)?;
        let sql = AssertSqlSafe(insert(part.len()));
        sqlx::query_with(sql, arguments).execute(&mut *connection).await?;
    }
    Ok(())
}

/// Sides with what their rows say of them, for verifying.
pub(super) async fn kept(
    connection: &mut SqliteConnection,
    after: Option<(&str, &str)>,
    bounds: ContentBounds,
) -> sqlx::Result<Vec<KeptSide>> {
    let kept = "SELECT c.entry_id, c.side, c.text, c.full_bytes, a.id, \
            iif(c.side = 'input', a.input_hash, a.output_hash), \
            iif(c.side = 'input', a.input_bytes, a.output_bytes), \
            a.writer, a.epoch, a.chain_seq, a.time_micros \
        FROM audit_content AS c LEFT JOIN audit AS a ON a.id = c.entry_id \
        WHERE (c.entry_id, c.side) > (?, ?) AND c.time_micros BETWEEN ? AND ? \
        ORDER BY c.entry_id, c.side LIMIT ?";
    let (entry, side) = after.unwrap_or_default();
    let (from, to) = bounds.micros();
    let rows = sqlx::query(kept).bind(entry.to_owned()).bind(side.to_owned());
    let rows = rows.bind(from).bind(to).bind(CONTENT_SIDES).fetch_all(connection).await?;
    rows.iter().map(read_kept).collect()
}

fn read_kept(row: &SqliteRow) -> sqlx::Result<KeptSide> {
    let is_there = row.try_get::<Option<&str>, _>(4)?.is_some();
    let content = ContentRow {
        hash: row.try_get(5)?,
        bytes: row.try_get(6)?,
        spot: Spot {
            writer: row.try_get::<Option<&str>, _>(7)?.and_then(|writer| writer.parse().ok()),
            epoch: row.try_get(8)?,
            seq: row.try_get::<Option<i64>, _>(9)?.and_then(|seq| u64::try_from(seq).ok()),
            time: row
                .try_get::<Option<i64>, _>(10)?
                .and_then(|time| Timestamp::from_microsecond(time).ok()),
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
    connection: &mut SqliteConnection,
    expired_before: Option<Timestamp>,
    bounds: ContentBounds,
) -> sqlx::Result<MissingSides> {
    let of = |side: &str| {
        format!(
            "SELECT time_micros < ?1 AS expired FROM audit AS a WHERE {side}_hash IS NOT NULL \
             AND time_micros BETWEEN ?2 AND ?3 AND NOT EXISTS (SELECT 1 FROM audit_content AS c \
             WHERE c.entry_id = a.id AND c.side = '{side}')"
        )
    };
    let missing = format!(
        "SELECT count(*) FILTER (WHERE expired), count(*) FILTER (WHERE NOT expired) \
         FROM ({} UNION ALL {})",
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
    let read = |row: &SqliteRow| {
        Ok(StoredContent {
            entry_id: row.try_get(0)?,
            is_input: row.try_get::<&str, _>(1)? == "input",
            text: row.try_get(2)?,
            full_bytes: row.try_get(3)?,
        })
    };
    rows.iter().map(read).collect()
}
