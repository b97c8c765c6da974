//! Finding entries.

use sqlx::{Arguments, AssertSqlSafe, Row, SqliteConnection, sqlite::SqliteArguments};

use super::{
    block::{filter_id, first_seq, next_block},
    bloom::may_hold,
    row,
};
use crate::audit::{
    StoredEntry,
    query::{Cursor, Filter, Order, PAGE_ENTRIES},
};

/// Blocks whose summaries are read at once: half a megabyte for each field that is asked for.
const WINDOW: usize = 128;

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
}

/// Numbers from the first to the last.
type Range = (i64, i64);

/// A question under way.
struct Search<'a> {
    filter: &'a Filter,
    order: Order,
    /// The rows that are left to look at.
    seqs: Range,
    limit: usize,
    found: Vec<StoredEntry>,
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
    let limit = limit.min(PAGE_ENTRIES) as usize;
    let seqs = match (order, behind) {
        (_, None) => (0, i64::MAX),
        (Order::NewestFirst, Some(cursor)) => (0, cursor.seq.saturating_sub(1)),
        (Order::OldestFirst, Some(cursor)) => (cursor.seq.saturating_add(1), i64::MAX),
    };
    let mut search = Search { filter, order, seqs, limit, found: Vec::new() };
    // What is not summed up is looked at row by row. What comes to be summed up meanwhile, too.
    let next = next_block(connection).await?;
    let tail = (first_seq(next), i64::MAX);
    if order == Order::NewestFirst {
        search.read_rows(connection, tail).await?;
    }
    search.read_blocks(connection, next).await?;
    if order == Order::OldestFirst {
        search.read_rows(connection, tail).await?;
    }
    Ok(search.found)
}

impl Search<'_> {
    const fn is_done(&self) -> bool {
        self.found.len() >= self.limit
    }

    /// Looks at the blocks before `next`, window by window.
    async fn read_blocks(
        &mut self,
        connection: &mut SqliteConnection,
        next: i64,
    ) -> sqlx::Result<()> {
        let block_of = |seq: i64| seq >> super::block::BLOCK_BITS;
        let (mut first, mut last) = (block_of(self.seqs.0), block_of(self.seqs.1).min(next - 1));
        while !self.is_done() && first <= last {
            let (looked_at, blocks) = self.window(connection, (first, last)).await?;
            for range in joined(&blocks) {
                let (one, other) = (range.0.min(range.1), range.0.max(range.1));
                self.read_rows(connection, (first_seq(one), first_seq(other + 1) - 1)).await?;
            }
            match (looked_at, self.order) {
                (None, _) => break,
                (Some(block), Order::NewestFirst) => last = block - 1,
                (Some(block), Order::OldestFirst) => first = block + 1,
            }
        }
        Ok(())
    }

    /// The last block that was looked at, and those that may have such entries, in order.
    async fn window(
        &self,
        connection: &mut SqliteConnection,
        blocks: Range,
    ) -> sqlx::Result<(Option<i64>, Vec<i64>)> {
        let Statement { sql, arguments } = summaries(self.filter, self.order, blocks)?;
        let rows = sqlx::query_with(AssertSqlSafe(sql), arguments).fetch_all(connection).await?;
        let mut taken = Vec::new();
        let mut last = None;
        for row in &rows {
            let block: i64 = row.try_get(0)?;
            last = Some(block);
            let mut may_have = true;
            for (at, (_, value)) in self.filter.terms().iter().enumerate() {
                may_have = may_have && may_hold(row.try_get(at + 1)?, value);
            }
            if may_have {
                taken.push(block);
            }
        }
        Ok((last.filter(|_| rows.len() >= WINDOW), taken))
    }

    /// Adds the entries among these rows, as many as there is room for.
    async fn read_rows(
        &mut self,
        connection: &mut SqliteConnection,
        rows: Range,
    ) -> sqlx::Result<()> {
        let seqs = (rows.0.max(self.seqs.0), rows.1.min(self.seqs.1));
        if self.is_done() || seqs.0 > seqs.1 {
            return Ok(());
        }
        let room = self.limit - self.found.len();
        let Statement { sql, arguments } = statement(self.filter, self.order, seqs, room)?;
        let rows = sqlx::query_with(AssertSqlSafe(sql), arguments).fetch_all(connection).await?;
        for row in &rows {
            self.found.push(row::read(row)?);
        }
        Ok(())
    }
}

/// Ranges of numbers that follow each other, up or down.
fn joined(blocks: &[i64]) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    for block in blocks {
        match ranges.last_mut() {
            Some((_, end)) if end.abs_diff(*block) == 1 => *end = *block,
            _ => ranges.push((*block, *block)),
        }
    }
    ranges
}

const fn direction(order: Order) -> &'static str {
    match order {
        Order::NewestFirst => "DESC",
        Order::OldestFirst => "ASC",
    }
}

/// The summaries of blocks of the filter's time, with the values of each field that it asks for: where
/// a field has none in a block, there is no such entry in it.
fn summaries(filter: &Filter, order: Order, blocks: Range) -> sqlx::Result<Statement> {
    let mut statement = Statement::default();
    statement.add("SELECT b.block");
    for at in 0..filter.terms().len() {
        statement.add(&format!(", f{at}.bits"));
    }
    statement.add(" FROM audit_block AS b");
    for (at, (field, _)) in filter.terms().iter().enumerate() {
        let id = filter_id(*field);
        statement.add(&format!(" CROSS JOIN audit_filter AS f{at} ON f{at}.id = {id} | b.block"));
    }
    statement.add(" WHERE b.block BETWEEN ? AND ?");
    statement.bind(blocks.0)?;
    statement.bind(blocks.1)?;
    let times = [(filter.from, " AND b.last_micros >= ?"), (filter.to, " AND b.first_micros < ?")];
    for (time, condition) in times {
        if let Some(time) = time {
            statement.add(condition);
            statement.bind(time.as_microsecond())?;
        }
    }
    statement.add(&format!(" ORDER BY b.block {} LIMIT {WINDOW}", direction(order)));
    Ok(statement)
}

/// The entries among the rows of these numbers.
fn statement(filter: &Filter, order: Order, seqs: Range, limit: usize) -> sqlx::Result<Statement> {
    let mut statement = Statement::default();
    statement.add(&row::select("seq BETWEEN ? AND ?"));
    statement.bind(seqs.0)?;
    statement.bind(seqs.1)?;
    for (field, value) in filter.terms() {
        // What is looked for by number is not to be looked for by another index.
        statement.add(&format!(" AND +{} = ?", field.name()));
        statement.bind(value.clone())?;
    }
    for (time, condition) in
        [(filter.from, " AND time_micros >= ?"), (filter.to, " AND time_micros < ?")]
    {
        if let Some(time) = time {
            statement.add(condition);
            statement.bind(time.as_microsecond())?;
        }
    }
    statement.add(&format!(" ORDER BY seq {} LIMIT ?", direction(order)));
    statement.bind(i64::try_from(limit).unwrap_or(i64::MAX))?;
    Ok(statement)
}

/// The steps of both statements, as `EXPLAIN QUERY PLAN` says them.
pub(super) async fn plan(
    connection: &mut SqliteConnection,
    filter: &Filter,
    order: Order,
) -> sqlx::Result<Vec<String>> {
    let of_blocks = summaries(filter, order, (0, 1))?;
    let of_rows = statement(filter, order, (0, 1), 1)?;
    let mut steps = Vec::new();
    for Statement { sql, arguments } in [of_blocks, of_rows] {
        let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"));
        let rows = sqlx::query_with(explain, arguments).fetch_all(&mut *connection).await?;
        for row in rows {
            steps.push(row.try_get("detail")?);
        }
    }
    Ok(steps)
}
