//! A record as a row, there and back.

use serde_json::Value as Json;
use sqlx::{Arguments, Row, error::BoxDynError, postgres::PgArguments, postgres::PgRow};

use crate::audit::{EntryKind, FIELDS, FieldType, Linked, Record, StoredEntry, Value};

/// Fields that every version writes as a UUID: 16 bytes for 37, in the row and in its indexes.
pub(super) const UUID_FIELDS: [&str; 3] = ["id", "call_id", "stream_id"];
/// A record's place in the chain, in the order of [`bind`], with the types of their arrays.
const LINK_COLUMNS: [(&str, &str); 4] =
    [("writer", "text"), ("epoch", "int8"), ("chain_seq", "int8"), ("hash", "bytea")];

/// Held, shared, by every append until its commit. Whoever takes it alone for a moment knows that
/// all rows numbered until then are there to be seen.
pub(super) const APPEND_LOCK: i64 = 0x7467_6170_7064;

fn is_uuid(name: &str) -> bool {
    UUID_FIELDS.contains(&name)
}

/// Which of [`FIELDS`] they are.
pub(super) fn uuid_fields() -> [bool; FIELDS.len()] {
    FIELDS.map(|(name, _)| is_uuid(name))
}

/// The names of a record's columns and of its link's.
fn columns() -> impl Iterator<Item = &'static str> {
    FIELDS.iter().map(|(name, _)| *name).chain(LINK_COLUMNS.iter().map(|(name, _)| *name))
}

/// Inserts the rows that [`bind`] binds, in their order, and returns how many were new, and how many
/// of them are later ends of their calls.
///
/// One statement, so that it is there in whole or not at all and takes one trip. Ids that are there
/// already are left as they are. Which end of a call is its first `audit_closed` decides.
pub(super) fn insert() -> String {
    let types = FIELDS.iter().map(|(_, field)| match field {
        FieldType::Text => "text",
        FieldType::Number => "int8",
    });
    let arrays: Vec<_> = types
        .chain(LINK_COLUMNS.iter().map(|(_, array)| *array))
        .enumerate()
        .map(|(at, array)| format!("${}::{array}[]", at + 1))
        .collect();
    let values: Vec<_> = columns()
        .map(|name| {
            let is_text = !is_uuid(name) && name != "writer";
            if is_text { name.to_owned() } else { format!("{name}::uuid AS {name}") }
        })
        .collect();
    let columns = columns().collect::<Vec<_>>().join(", ");
    let terminal = terminal();
    format!(
        "WITH incoming AS MATERIALIZED ( \
             SELECT {values}, place \
             FROM (SELECT pg_advisory_xact_lock_shared({APPEND_LOCK})) AS lock, \
                  UNNEST({arrays}) WITH ORDINALITY AS sent ({columns}, place) \
         ), closing AS ( \
             INSERT INTO audit_closed (call_id, entry_id) \
             SELECT DISTINCT ON (call_id) call_id, id FROM incoming WHERE {terminal} \
             ORDER BY call_id, place \
             ON CONFLICT DO NOTHING RETURNING entry_id \
         ), written AS ( \
             INSERT INTO audit ({columns}, superseded) \
             SELECT {columns}, {terminal} AND id NOT IN (SELECT entry_id FROM closing) \
             FROM incoming ORDER BY place \
             ON CONFLICT DO NOTHING RETURNING superseded \
         ) \
         SELECT count(*), count(*) FILTER (WHERE superseded) FROM written",
        values = values.join(", "),
        arrays = arrays.join(", "),
    )
}

/// Is it the end of a call?
pub(super) fn terminal() -> String {
    let kinds = [EntryKind::Settle, EntryKind::Denied, EntryKind::Canceled];
    let kinds = kinds.map(|kind| format!("'{}'", kind.as_str())).join(", ");
    format!("(call_id IS NOT NULL AND kind IN ({kinds}))")
}

/// The arrays of [`insert`], a value for each record in each.
pub(super) fn bind(records: &[Linked<'_>]) -> Result<PgArguments, BoxDynError> {
    let mut arguments = PgArguments::default();
    for (at, (_, field)) in FIELDS.iter().enumerate() {
        let values = records.iter().map(|linked| linked.record.values()[at]);
        match field {
            FieldType::Text => arguments.add(values.map(Value::text).collect::<Vec<_>>())?,
            FieldType::Number => arguments.add(values.map(Value::number).collect::<Vec<_>>())?,
        }
    }
    let links = || records.iter().map(|linked| &linked.link);
    arguments.add(links().map(|link| link.writer.to_string()).collect::<Vec<_>>())?;
    arguments.add(links().map(|link| i64::from(link.epoch)).collect::<Vec<_>>())?;
    let seqs = links().map(|link| i64::try_from(link.seq)).collect::<Result<Vec<_>, _>>()?;
    arguments.add(seqs)?;
    arguments.add(links().map(|link| &link.hash[..]).collect::<Vec<_>>())?;
    Ok(arguments)
}

/// What [`read`] reads, of the rows that `rest` picks; superseded ones are left out.
pub(super) fn select(rest: &str) -> String {
    let fields = FIELDS
        .map(|(name, _)| if is_uuid(name) { format!("{name}::text") } else { name.to_owned() });
    format!("SELECT seq, {} FROM audit WHERE NOT superseded AND {rest}", fields.join(", "))
}

/// Reads a row of [`select`].
pub(super) fn read(row: &PgRow) -> sqlx::Result<StoredEntry> {
    // The first column is `seq`.
    Ok(StoredEntry::new(row.try_get(0)?, &Record::new(&values(row, 1)?)))
}

/// The record's encoding, of a row of [`select`].
pub(super) fn encoded(row: &PgRow) -> sqlx::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    Record::new(&values(row, 1)?).encode(&mut bytes);
    Ok(bytes)
}

/// A record's values, from the column `first` on.
fn values(row: &PgRow, first: usize) -> sqlx::Result<[Value<'_>; FIELDS.len()]> {
    let mut values = [Value::Null; FIELDS.len()];
    for (at, (value, (_, field))) in values.iter_mut().zip(FIELDS).enumerate() {
        let found = match field {
            FieldType::Text => row.try_get::<Option<&str>, _>(first + at)?.map(Value::Text),
            FieldType::Number => row.try_get::<Option<i64>, _>(first + at)?.map(Value::Number),
        };
        *value = found.unwrap_or(Value::Null);
    }
    Ok(values)
}

/// What [`Whole`] reads: every row of `table` of before `$1`, whatever it is, in order.
pub(super) fn select_all(table: &str) -> String {
    let fields = FIELDS
        .map(|(name, _)| if is_uuid(name) { format!("{name}::text") } else { name.to_owned() });
    format!(
        "SELECT {}, writer::text, epoch, chain_seq, encode(hash, 'hex'), superseded FROM {table} \
         WHERE time_micros < $1 ORDER BY seq",
        fields.join(", ")
    )
}

/// A row with its link, as archives have it.
pub(super) struct Whole<'r> {
    values: [Value<'r>; FIELDS.len()],
    writer: &'r str,
    epoch: i64,
    chain_seq: i64,
    hash: &'r str,
    superseded: bool,
}

impl<'r> Whole<'r> {
    pub(super) fn read(row: &'r PgRow) -> sqlx::Result<Self> {
        let links = FIELDS.len();
        Ok(Self {
            values: values(row, 0)?,
            writer: row.try_get(links)?,
            epoch: row.try_get(links + 1)?,
            chain_seq: row.try_get(links + 2)?,
            hash: row.try_get(links + 3)?,
            superseded: row.try_get(links + 4)?,
        })
    }

    /// Fields by their names, texts as texts also where they are JSON, so that the record's bytes can
    /// be made again and the chain be verified; nulls left out.
    pub(super) fn write_json(&self, to: &mut Vec<u8>) {
        let fields = FIELDS.iter().zip(self.values).filter_map(|((name, _), value)| {
            let value = match value {
                Value::Null => return None,
                Value::Text(text) => Json::from(text),
                Value::Number(number) => Json::from(number),
            };
            Some(((*name).to_owned(), value))
        });
        let link = [
            ("writer", Json::from(self.writer)),
            ("epoch", Json::from(self.epoch)),
            ("chain_seq", Json::from(self.chain_seq)),
            ("hash", Json::from(self.hash)),
            ("superseded", Json::from(self.superseded)),
        ];
        let link = link.map(|(name, value)| (name.to_owned(), value));
        let object: serde_json::Map<_, _> = fields.chain(link).collect();
        // A map of texts and numbers is always JSON.
        _ = serde_json::to_writer(to, &object);
    }
}
