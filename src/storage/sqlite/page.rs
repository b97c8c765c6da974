//! Finding entries.

use sqlx::{Arguments, AssertSqlSafe, Row, SqliteConnection, sqlite::SqliteArguments};

use super::{
    block::{BLOCK_BITS, MICROS_PER_HOUR, noted, number},
    row,
};
use crate::audit::{
    StoredEntry,
    query::{Cursor, Field, Filter, Order, PAGE_ENTRIES},
};

/// A statement and what is bound in it.
#[derive(Default)]
struct Statement {
    sql: String,
    arguments: SqliteArguments,
}

impl Statement {
    fn add(&mut self, sql: &str) {
        self.sql.push_str(sql);
    }

    fn bind(
        &mut self,
        value: impl for<'q> sqlx::Encode<'q, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>,
    ) -> sqlx::Result<()> {
        self.arguments.add(value).map_err(sqlx::Error::Encode)
    }

    /// Binds a value as it is noted.
    fn bind_note(&mut self, field: Field, value: &str) -> sqlx::Result<()> {
        self.bind(number(field))?;
        self.bind(noted(value).to_owned())
    }
}

/// The entries of a page, in the order in which they were written: that of time, as near as one
/// writer's clock keeps it.
pub(super) async fn read(
    connection: &mut SqliteConnection,
    filter: &Filter,
    order: Order,
    behind: Option<Cursor>,
    limit: u32,
) -> sqlx::Result<Vec<StoredEntry>> {
    let Some(blocks) = blocks(connection, filter).await? else { return Ok(Vec::new()) };
    let Statement { sql, arguments } = statement(filter, order, behind, blocks, limit)?;
    let rows = sqlx::query_with(AssertSqlSafe(sql), arguments).fetch_all(connection).await?;
    rows.iter().map(row::read).collect()
}

/// The first and the last block that may have entries of the filter's time; `None`: none has.
async fn blocks(
    connection: &mut SqliteConnection,
    filter: &Filter,
) -> sqlx::Result<Option<(i64, i64)>> {
    if filter.from.is_none() && filter.to.is_none() {
        return Ok(Some((0, i64::MAX >> BLOCK_BITS)));
    }
    let from = filter.from.map_or(i64::MIN, |from| from.as_microsecond() / MICROS_PER_HOUR);
    let to = filter.to.map_or(i64::MAX, |to| to.as_microsecond() / MICROS_PER_HOUR);
    let row = sqlx::query(BLOCKS_OF_TIME).bind(from).bind(to).fetch_one(connection).await?;
    let (first, last): (Option<i64>, Option<i64>) = (row.try_get(0)?, row.try_get(1)?);
    Ok(first.zip(last))
}

/// Numbers between which all blocks are that have an entry of these hours.
const BLOCKS_OF_TIME: &str =
    "SELECT min(block), max(block) FROM audit_hour WHERE hour BETWEEN ? AND ?";

/// Adds the blocks to look at and their rows. The filter's rarest field says which blocks are read,
/// of which those are left out that don't have the others.
fn add_blocks(
    statement: &mut Statement,
    filter: &Filter,
    (first, last): (i64, i64),
) -> sqlx::Result<()> {
    let [(field, value), others @ ..] = filter.terms() else {
        statement.add("audit AS a WHERE a.seq BETWEEN ? AND ?");
        statement.bind(first << BLOCK_BITS)?;
        return statement.bind((last << BLOCK_BITS) + ((1 << BLOCK_BITS) - 1));
    };
    statement.add(
        "audit_block AS b CROSS JOIN audit AS a \
         WHERE b.field = ? AND b.value = ? AND b.block BETWEEN ? AND ?",
    );
    statement.bind_note(*field, value)?;
    statement.bind(first)?;
    statement.bind(last)?;
    for (field, value) in others {
        statement.add(
            " AND EXISTS (SELECT 1 FROM audit_block AS o \
             WHERE o.field = ? AND o.value = ? AND o.block = b.block)",
        );
        statement.bind_note(*field, value)?;
    }
    statement.add(&format!(
        " AND a.seq BETWEEN b.block << {BLOCK_BITS} AND (b.block + 1 << {BLOCK_BITS}) - 1"
    ));
    Ok(())
}

fn statement(
    filter: &Filter,
    order: Order,
    behind: Option<Cursor>,
    (mut first, mut last): (i64, i64),
    limit: u32,
) -> sqlx::Result<Statement> {
    // What a page before has seen need not be looked at again.
    let seen = behind.map(|cursor| cursor.seq >> BLOCK_BITS);
    let (direction, is_behind) = match order {
        Order::NewestFirst => {
            last = seen.map_or(last, |seen| seen.min(last));
            ("DESC", " AND +a.seq < ?")
        }
        Order::OldestFirst => {
            first = seen.map_or(first, |seen| seen.max(first));
            ("ASC", " AND +a.seq > ?")
        }
    };
    let mut statement = Statement::default();
    statement.add(&format!("SELECT seq, {} FROM ", row::fields()));
    add_blocks(&mut statement, filter, (first, last))?;
    statement.add(" AND NOT a.superseded");
    if let Some(cursor) = behind {
        statement.add(is_behind);
        statement.bind(cursor.seq)?;
    }
    for (field, value) in filter.terms() {
        statement.add(&format!(" AND a.{} = ?", field.name()));
        statement.bind(value.clone())?;
    }
    for (time, condition) in
        [(filter.from, " AND a.time_micros >= ?"), (filter.to, " AND a.time_micros < ?")]
    {
        if let Some(time) = time {
            statement.add(condition);
            statement.bind(time.as_microsecond())?;
        }
    }
    let by_block =
        if filter.terms().is_empty() { String::new() } else { format!("b.block {direction}, ") };
    statement.add(&format!(" ORDER BY {by_block}a.seq {direction} LIMIT ?"));
    statement.bind(limit.min(PAGE_ENTRIES))?;
    Ok(statement)
}

/// The steps of both statements, as `EXPLAIN QUERY PLAN` says them.
pub(super) async fn plan(
    connection: &mut SqliteConnection,
    filter: &Filter,
    order: Order,
) -> sqlx::Result<Vec<String>> {
    let mut of_time = Statement { sql: BLOCKS_OF_TIME.to_owned(), ..Statement::default() };
    of_time.bind(0)?;
    of_time.bind(1)?;
    let of_page = statement(filter, order, None, (0, 1), PAGE_ENTRIES)?;
    let mut steps = Vec::new();
    for Statement { sql, arguments } in [of_time, of_page] {
        let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"));
        let rows = sqlx::query_with(explain, arguments).fetch_all(&mut *connection).await?;
        for row in rows {
            steps.push(row.try_get("detail")?);
        }
    }
    Ok(steps)
}
