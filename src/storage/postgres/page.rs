//! Finding entries.

use sqlx::{Arguments, AssertSqlSafe, PgConnection, Row, postgres::PgArguments};

use super::row;
use crate::audit::{
    StoredEntry,
    query::{Arrivals, Cursor, Field, Filter, Order, PAGE_ENTRIES},
};

/// A statement and what is bound in it.
struct Statement {
    sql: String,
    arguments: PgArguments,
    bound: usize,
}

impl Statement {
    fn select() -> Self {
        Self { sql: row::select("true"), arguments: PgArguments::default(), bound: 0 }
    }

    fn add(&mut self, sql: &str) {
        self.sql.push_str(sql);
    }

    /// Binds a value; returns its name in the statement.
    fn bind(
        &mut self,
        value: impl for<'q> sqlx::Encode<'q, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
    ) -> sqlx::Result<String> {
        self.arguments.add(value).map_err(sqlx::Error::Encode)?;
        self.bound += 1;
        Ok(format!("${}", self.bound))
    }

    /// Adds what the filter asks, in the words of the indexes.
    fn add_filter(&mut self, filter: &Filter) -> sqlx::Result<()> {
        for (field, value) in filter.terms() {
            let is_short =
                is_indexed_always(*field) && value.chars().count() < indexed_chars(*field);
            let (name, value) = (field.name(), self.bind(value.clone())?);
            let condition = match field {
                Field::CallId | Field::StreamId => format!(" AND {name} = {value}::uuid"),
                Field::Kind => format!(" AND {name} = {value}"),
                // One condition, where it says all: the planner takes two for twice as rare.
                _ if is_short => format!(" AND left({name}, {}) = {value}", indexed_chars(*field)),
                _ => {
                    let chars = indexed_chars(*field);
                    format!(
                        " AND left({name}, {chars}) = left({value}, {chars}) AND {name} = {value}"
                    )
                }
            };
            self.add(&condition);
        }
        for (time, compared) in [(filter.from, ">="), (filter.to, "<")] {
            if let Some(time) = time {
                let time = self.bind(time.as_microsecond())?;
                self.add(&format!(" AND time_micros {compared} {time}"));
            }
        }
        Ok(())
    }

    async fn fetch(self, connection: &mut PgConnection) -> sqlx::Result<Vec<StoredEntry>> {
        let query = sqlx::query_with(AssertSqlSafe(self.sql), self.arguments);
        let rows = query.fetch_all(connection).await?;
        rows.iter().map(row::read).collect()
    }
}

/// Has every row a place in its index? One that leaves out some says of the column which.
const fn is_indexed_always(field: Field) -> bool {
    !matches!(field, Field::Tool | Field::Outcome)
}

/// How much of a text its index has: see `migrations/postgres/0011_query.sql`.
const fn indexed_chars(field: Field) -> usize {
    match field {
        Field::TraceId | Field::InputHash => 16,
        _ => 200,
    }
}

fn statement(
    filter: &Filter,
    order: Order,
    behind: Option<Cursor>,
    limit: u32,
) -> sqlx::Result<Statement> {
    let (direction, is_behind) = match order {
        Order::NewestFirst => ("DESC", "<"),
        Order::OldestFirst => ("ASC", ">"),
    };
    let mut statement = Statement::select();
    statement.add_filter(filter)?;
    if let Some(cursor) = behind {
        let time = statement.bind(cursor.time_micros)?;
        let seq = statement.bind(cursor.seq)?;
        statement.add(&format!(" AND (time_micros, seq) {is_behind} ({time}, {seq})"));
    }
    let limit = limit.min(PAGE_ENTRIES);
    statement.add(&format!(" ORDER BY time_micros {direction}, seq {direction} LIMIT {limit}"));
    Ok(statement)
}

/// The entries of a page, in the order of their time.
pub(super) async fn read(
    connection: &mut PgConnection,
    filter: &Filter,
    order: Order,
    behind: Option<Cursor>,
    limit: u32,
) -> sqlx::Result<Vec<StoredEntry>> {
    statement(filter, order, behind, limit)?.fetch(connection).await
}

/// The number up to which all rows are there to be seen. Waits for those that have a number and are
/// not committed yet; nobody waits long for it, as the lock ends with its statement.
pub(super) async fn settled(connection: &mut PgConnection) -> sqlx::Result<i64> {
    let settled = format!(
        "SELECT CASE WHEN is_called THEN last_value ELSE 0 END \
         FROM audit_seq_seq, (SELECT pg_advisory_xact_lock({})) AS lock",
        row::APPEND_LOCK
    );
    sqlx::query_scalar(AssertSqlSafe(settled)).fetch_one(connection).await
}

pub(super) async fn arrivals(
    connection: &mut PgConnection,
    filter: &Filter,
    seq: i64,
    limit: u32,
) -> sqlx::Result<Arrivals> {
    let settled = settled(connection).await?;
    let limit = limit.min(PAGE_ENTRIES);
    let mut statement = Statement::select();
    statement.add_filter(filter)?;
    let (first, last) = (statement.bind(seq)?, statement.bind(settled)?);
    let rest = format!(" AND seq > {first} AND seq <= {last} ORDER BY seq LIMIT {limit}");
    statement.add(&rest);
    let entries = statement.fetch(connection).await?;
    let is_full = entries.len() >= limit as usize;
    let seq = entries.last().filter(|_| is_full).map_or(settled.max(seq), |entry| entry.seq);
    Ok(Arrivals { entries, seq })
}

/// The steps of the statement, as `EXPLAIN` says them.
pub(super) async fn plan(
    connection: &mut PgConnection,
    filter: &Filter,
    order: Order,
) -> sqlx::Result<Vec<String>> {
    let Statement { sql, arguments, .. } = statement(filter, order, None, PAGE_ENTRIES)?;
    let explain = AssertSqlSafe(format!("EXPLAIN {sql}"));
    let rows = sqlx::query_with(explain, arguments).fetch_all(connection).await?;
    rows.iter().map(|row| row.try_get(0)).collect()
}
