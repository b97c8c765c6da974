//! Noting which values occur in which blocks of rows, so that questions find them.
//!
//! See `migrations/sqlite/0003_query.sql` for why there is no index on each column.

use std::{collections::BTreeSet, sync::Arc};

use sqlx::{Arguments, AssertSqlSafe, SqliteConnection, sqlite::SqliteArguments};

use crate::audit::{FIELDS, Linked, query::Field};

/// A block has so many rows, in powers of two. Fewer rows take more notes for each, more rows more
/// time to read a block.
pub(super) const BLOCK_BITS: u32 = 8;
pub(super) const MICROS_PER_HOUR: i64 = 3_600_000_000;
/// Of longer values the beginning is noted.
const VALUE_CHARS: usize = 64;
/// Notes are written so many at once; what is too many for one statement stays unbound, which is no
/// note.
const STATEMENT_NOTES: [usize; 4] = [16, 64, 256, 1_024];

/// The number of a field in `audit_block`, which never changes.
pub(super) const fn number(field: Field) -> i64 {
    match field {
        Field::CallId => 0,
        Field::StreamId => 1,
        Field::TraceId => 2,
        Field::InputHash => 3,
        Field::RunId => 4,
        Field::Tool => 5,
        Field::Subject => 6,
        Field::Agent => 7,
        Field::Capability => 8,
        Field::Model => 9,
        Field::Outcome => 10,
        Field::Kind => 11,
        Field::Tier => 12,
    }
}

/// What is noted of a value.
pub(super) fn noted(value: &str) -> &str {
    // Most values are short, which is seen without counting.
    if value.len() <= VALUE_CHARS {
        return value;
    }
    value.char_indices().nth(VALUE_CHARS).map_or(value, |(end, _)| &value[..end])
}

/// The statements, and where in a record the values are.
#[derive(Debug)]
pub(super) struct BlockIndex {
    notes: [Arc<str>; STATEMENT_NOTES.len()],
    fields: [(Field, usize); Field::ALL.len()],
    time: usize,
}

impl BlockIndex {
    pub(super) fn new() -> Self {
        let at = |name| FIELDS.iter().position(|(field, _)| *field == name).unwrap_or_default();
        let insert = |notes: usize| {
            let values = vec!["(?,?,?)"; notes].join(",");
            Arc::from(format!(
                "INSERT OR IGNORE INTO audit_block (field, value, block) \
                 SELECT * FROM (VALUES {values}) WHERE column1 IS NOT NULL"
            ))
        };
        Self {
            notes: STATEMENT_NOTES.map(insert),
            fields: Field::ALL.map(|field| (field, at(field.name()))),
            time: at("time_micros"),
        }
    }

    /// Notes the values of rows that were just written. The rows are at most those numbered after
    /// `before`, up to `last`.
    pub(super) async fn note(
        &self,
        connection: &mut SqliteConnection,
        records: &[Linked<'_>],
        before: i64,
        last: i64,
    ) -> sqlx::Result<()> {
        let written = usize::try_from(last - before).unwrap_or_default();
        let (mut notes, mut hours) = (BTreeSet::new(), BTreeSet::new());
        for (seq, linked) in (before + 1..).zip(records) {
            // Where some were there already it is not known which number each has got.
            let is_known = written == records.len();
            let (first, end) = if is_known { (seq, seq) } else { (before + 1, last) };
            for block in first >> BLOCK_BITS..=end >> BLOCK_BITS {
                let values = linked.record.values();
                hours
                    .extend(values[self.time].number().map(|time| (time / MICROS_PER_HOUR, block)));
                for (field, at) in self.fields {
                    notes.extend(values[at].text().map(|it| (number(field), noted(it), block)));
                }
            }
        }
        let notes: Vec<_> = notes.into_iter().collect();
        for part in notes.chunks(STATEMENT_NOTES[STATEMENT_NOTES.len() - 1]) {
            self.insert(connection, part).await?;
        }
        for (hour, block) in hours {
            let note = "INSERT OR IGNORE INTO audit_hour (hour, block) VALUES (?, ?)";
            sqlx::query(note).bind(hour).bind(block).execute(&mut *connection).await?;
        }
        Ok(())
    }

    async fn insert(
        &self,
        connection: &mut SqliteConnection,
        notes: &[(i64, &str, i64)],
    ) -> sqlx::Result<()> {
        let mut arguments = SqliteArguments::default();
        let mut bind = |(field, value, block): &(i64, &str, i64)| {
            arguments.add(*field)?;
            arguments.add(Arc::<str>::from(*value))?;
            arguments.add(*block)
        };
        notes.iter().try_for_each(&mut bind).map_err(sqlx::Error::Encode)?;
        let fits = STATEMENT_NOTES.partition_point(|size| *size < notes.len());
        let statement = Arc::clone(&self.notes[fits.min(STATEMENT_NOTES.len() - 1)]);
        sqlx::query_with(AssertSqlSafe(statement), arguments).execute(connection).await.map(drop)
    }
}
