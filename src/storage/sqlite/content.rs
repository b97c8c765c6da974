//! What was asked and answered, where that is kept.

use std::sync::Arc;

use sqlx::{
    Arguments, AssertSqlSafe, Row, SqliteConnection, error::BoxDynError, sqlite::SqliteArguments,
};

use crate::audit::{KeptContent, Linked, query::StoredContent};

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
