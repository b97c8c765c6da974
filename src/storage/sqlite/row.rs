//! A record as a row, there and back.

use sqlx::{Arguments, Row, error::BoxDynError, sqlite::SqliteArguments, sqlite::SqliteRow};

use super::text::KnownTexts;
use crate::audit::{FIELDS, FieldType, Linked, Record, StoredEntry, Value};

/// A record's place in the chain, in the order of [`bind`].
const LINK_COLUMNS: [&str; 4] = ["writer", "epoch", "chain_seq", "hash"];
pub(super) const COLUMN_COUNT: usize = FIELDS.len() + LINK_COLUMNS.len();

pub(super) fn fields() -> String {
    FIELDS.map(|(name, _)| name).join(", ")
}

/// Inserts `rows` rows. Ids that are there already are left out, and, unless it is `superseded`,
/// second terminal entries of a call.
///
/// `OR FAIL`, as the whole transaction is given up where a row fails: else SQLite would keep a copy of
/// each page that a statement changes, so as to take back that one alone.
pub(super) fn insert(rows: usize, superseded: bool) -> String {
    let row = format!("({},{})", ["?"; COLUMN_COUNT].join(","), u8::from(superseded));
    let values = vec![row; rows].join(",");
    format!(
        "INSERT OR FAIL INTO audit ({}, {}, superseded) VALUES {values} ON CONFLICT DO NOTHING",
        fields(),
        LINK_COLUMNS.join(", "),
    )
}

/// What [`read`] reads, of the rows that `rest` picks; superseded ones are left out.
pub(super) fn select(rest: &str) -> String {
    format!("SELECT seq, {} FROM audit WHERE NOT superseded AND {rest}", fields())
}

/// Adds one row's values.
pub(super) fn bind(
    linked: &Linked<'_>,
    texts: &mut KnownTexts,
    to: &mut SqliteArguments,
) -> Result<(), BoxDynError> {
    for (column, value) in linked.record.values().iter().enumerate() {
        match *value {
            Value::Null => to.add(None::<i64>)?,
            // One allocation at most, where a `String` is two.
            Value::Text(text) => to.add(texts.get(column, text))?,
            Value::Number(number) => to.add(number)?,
        }
    }
    let link = &linked.link;
    let mut writer = [0; uuid::fmt::Hyphenated::LENGTH];
    to.add(texts.get(FIELDS.len(), link.writer.hyphenated().encode_lower(&mut writer)))?;
    to.add(link.epoch)?;
    to.add(i64::try_from(link.seq)?)?;
    to.add(&link.hash[..])
}

/// Reads a row of [`select`].
pub(super) fn read(row: &SqliteRow) -> sqlx::Result<StoredEntry> {
    // The first column is `seq`.
    Ok(StoredEntry::new(row.try_get(0)?, &record(row, 1)?))
}

/// The record whose fields begin with column `first`.
pub(super) fn record(row: &SqliteRow, first: usize) -> sqlx::Result<Record<'_>> {
    let mut values = [Value::Null; FIELDS.len()];
    for (at, (value, (_, field))) in values.iter_mut().zip(FIELDS).enumerate() {
        let found = match field {
            FieldType::Text => row.try_get::<Option<&str>, _>(first + at)?.map(Value::Text),
            FieldType::Number => row.try_get::<Option<i64>, _>(first + at)?.map(Value::Number),
        };
        *value = found.unwrap_or(Value::Null);
    }
    Ok(Record::new(&values))
}
