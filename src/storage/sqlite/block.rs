//! Summing up blocks of rows, so that questions need not read them all.
//!
//! `migrations/sqlite/0011_query.sql` says what of a block is kept. The block that is being filled is
//! summed up in memory, as its rows are written, and stored when it is full: a row costs some hashing
//! then, where notes of each row's values in a table cost more than the row itself.

use futures_util::TryStreamExt as _;
use sqlx::{AssertSqlSafe, Connection as _, Row as _, SqliteConnection};

use super::{
    append::last_seq,
    bloom::Bloom,
    row,
    usage::{self, Spent},
};
use crate::audit::{FIELDS, Linked, Record, query::Field};

/// A block has so many rows, in powers of two. Fewer rows take more space for each, more rows more
/// time to read a block.
pub(super) const BLOCK_BITS: u32 = 12;

/// The number of a field in `audit_filter`, which never changes.
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

/// What stands in `audit_filter.id` for a field, the block's number left out.
pub(super) const fn filter_id(field: Field) -> i64 {
    number(field) << 32
}

/// The first row of a block.
pub(super) const fn first_seq(block: i64) -> i64 {
    block << BLOCK_BITS
}

/// The first block that is not summed up; all after it are not, either.
pub(super) const NEXT_BLOCK: &str = "SELECT coalesce(max(block) + 1, 0) FROM audit_block";

pub(super) async fn next_block(connection: &mut SqliteConnection) -> sqlx::Result<i64> {
    sqlx::query_scalar(NEXT_BLOCK).fetch_one(connection).await
}

/// The block of the first row behind block `number`.
async fn block_of_next(connection: &mut SqliteConnection, number: i64) -> sqlx::Result<i64> {
    let next = "SELECT min(seq) >> ? FROM audit WHERE seq >= ?";
    let next = sqlx::query_scalar(next).bind(BLOCK_BITS).bind(first_seq(number + 1));
    let next: Option<i64> = next.fetch_one(connection).await?;
    Ok(next.unwrap_or(number + 1))
}

/// Sums up the blocks that are full and are not summed up: those of before there were summaries.
pub(super) async fn sum_up(connection: &mut SqliteConnection) -> sqlx::Result<()> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let last = last_seq(&mut transaction).await?;
    if next_block(&mut transaction).await? < last >> BLOCK_BITS {
        Block::load(&mut transaction, last).await?;
    }
    transaction.commit().await
}

/// The block that is being filled.
#[derive(Debug)]
pub(super) struct Block {
    number: i64,
    /// The last row that is in it.
    last: i64,
    times: (i64, i64),
    filters: [Bloom; Field::ALL.len()],
    spent: Spent,
    columns: Columns,
}

/// Where in a record the values are.
#[derive(Debug)]
struct Columns {
    fields: [usize; Field::ALL.len()],
    time: usize,
}

impl Columns {
    fn find() -> Self {
        let at = |name| FIELDS.iter().position(|(field, _)| *field == name).unwrap_or_default();
        Self { fields: Field::ALL.map(|field| at(field.name())), time: at("time_micros") }
    }
}

impl Block {
    fn new(number: i64) -> Self {
        Self {
            number,
            last: first_seq(number) - 1,
            times: (i64::MAX, i64::MIN),
            filters: Field::ALL.map(|_| Bloom::default()),
            spent: Spent::default(),
            columns: Columns::find(),
        }
    }

    /// Sums up the blocks that are full and the one that is not, from the rows up to `last`, which is
    /// the last there is.
    pub(super) async fn load(connection: &mut SqliteConnection, last: i64) -> sqlx::Result<Self> {
        let mut block = Self::new(next_block(connection).await?);
        loop {
            block.read(connection).await?;
            if last < first_seq(block.number + 1) - 1 {
                block.last = last;
                return Ok(block);
            }
            if block.last < first_seq(block.number) {
                // Numbers that no row has: whoever writes to the file may have left out any.
                block = Self::new(block_of_next(connection, block.number).await?);
            } else {
                block.store(connection).await?;
            }
        }
    }

    /// The last row that is in it. There is none after it, unless another process writes.
    pub(super) const fn last(&self) -> i64 {
        self.last
    }

    async fn read(&mut self, connection: &mut SqliteConnection) -> sqlx::Result<()> {
        let rows = format!(
            "SELECT seq, superseded, {} FROM audit WHERE seq >= ? AND seq < ? ORDER BY seq",
            row::fields()
        );
        let rows = sqlx::query(AssertSqlSafe(rows))
            .bind(first_seq(self.number))
            .bind(first_seq(self.number + 1));
        let mut rows = rows.fetch(connection);
        while let Some(found) = rows.try_next().await? {
            let seq = found.try_get(0)?;
            self.add(seq, &row::record(&found, 2)?, found.try_get(1)?);
        }
        Ok(())
    }

    /// Takes in rows that were just written, the first of them behind row `before`.
    pub(super) async fn add_all(
        &mut self,
        connection: &mut SqliteConnection,
        rows: &[Linked<'_>],
        before: i64,
    ) -> sqlx::Result<()> {
        for (seq, linked) in (before + 1..).zip(rows) {
            self.add(seq, &linked.record, false);
            if self.is_full() {
                self.store(connection).await?;
            }
        }
        Ok(())
    }

    fn add(&mut self, seq: i64, record: &Record<'_>, is_superseded: bool) {
        self.last = seq;
        let values = record.values();
        if let Some(time) = values[self.columns.time].number() {
            self.times = (self.times.0.min(time), self.times.1.max(time));
        }
        for (filter, at) in self.filters.iter_mut().zip(self.columns.fields) {
            if let Some(value) = values[at].text() {
                filter.add(value);
            }
        }
        if !is_superseded {
            self.spent.add(record);
        }
    }

    /// Has the block all rows that it can have?
    const fn is_full(&self) -> bool {
        self.last + 1 >= first_seq(self.number + 1)
    }

    /// Stores what a full block comes to, and begins the next one.
    async fn store(&mut self, connection: &mut SqliteConnection) -> sqlx::Result<()> {
        let insert = "INSERT INTO audit_block (block, first_micros, last_micros) VALUES (?, ?, ?)";
        let (first, last) = self.times;
        let block = sqlx::query(insert).bind(self.number).bind(first).bind(last);
        block.execute(&mut *connection).await?;
        for (field, filter) in Field::ALL.into_iter().zip(&mut self.filters) {
            if let Some(bits) = filter.fold() {
                let insert = "INSERT INTO audit_filter (id, bits) VALUES (?, ?)";
                let filter = sqlx::query(insert).bind(filter_id(field) | self.number).bind(bits);
                filter.execute(&mut *connection).await?;
            }
            filter.clear();
        }
        usage::store(connection, &mut self.spent).await?;
        self.number += 1;
        self.times = (i64::MAX, i64::MIN);
        Ok(())
    }
}
