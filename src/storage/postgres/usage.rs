//! What was spent, from the sums that are kept as entries come in.

use std::fmt::Write as _;

use sqlx::{Arguments, AssertSqlSafe, PgConnection, Row, postgres::PgArguments, postgres::PgRow};

use crate::audit::query::{Dimension, MAX_GROUPS, Sums, Usage, UsageFilter, UsageGroup};

/// As numbers that can't overflow.
const SUMS: [&str; 5] =
    ["calls", "input_tokens", "output_tokens", "cached_input_tokens", "cost_micro_usd"];

fn statement(filter: &UsageFilter, in_groups: bool) -> sqlx::Result<(String, PgArguments)> {
    let mut arguments = PgArguments::default();
    let mut conditions = String::from("day BETWEEN $1::text::date AND $2::text::date");
    for day in [filter.from, filter.to] {
        arguments.add(day.to_string()).map_err(sqlx::Error::Encode)?;
    }
    for (at, (dimension, value)) in filter.terms().iter().enumerate() {
        // Writing to a string does not fail.
        let _ = write!(conditions, " AND coalesce({}, '') = ${}", dimension.name(), at + 3);
        arguments.add(value.clone()).map_err(sqlx::Error::Encode)?;
    }
    let sums = SUMS.map(|name| {
        format!("least(coalesce(sum({name}), 0), 9223372036854775807)::int8 AS {name}")
    });
    let sums = sums.join(", ");
    if !in_groups {
        return Ok((format!("SELECT {sums} FROM audit_usage WHERE {conditions}"), arguments));
    }
    let keys: Vec<String> = filter
        .group_by
        .iter()
        .map(|dimension| match dimension {
            Dimension::Day => "day::text".to_owned(),
            other => format!("coalesce({}, '')", other.name()),
        })
        .collect();
    let keys = keys.join(", ");
    let numbers: Vec<String> = (1..=filter.group_by.len()).map(|at| at.to_string()).collect();
    let numbers = numbers.join(", ");
    let limit = MAX_GROUPS + 1;
    let sql = format!(
        "SELECT {keys}, {sums} FROM audit_usage WHERE {conditions} GROUP BY {numbers} \
         ORDER BY sum(cost_micro_usd) DESC, sum(calls) DESC, {numbers} LIMIT {limit}"
    );
    Ok((sql, arguments))
}

pub(super) async fn read(
    connection: &mut PgConnection,
    filter: &UsageFilter,
) -> sqlx::Result<Usage> {
    let (sql, arguments) = statement(filter, false)?;
    let row = sqlx::query_with(AssertSqlSafe(sql), arguments).fetch_one(&mut *connection).await?;
    let total = sums(&row, 0)?;
    if filter.group_by.is_empty() {
        return Ok(Usage::new(filter, total, Vec::new()));
    }
    let (sql, arguments) = statement(filter, true)?;
    let rows = sqlx::query_with(AssertSqlSafe(sql), arguments).fetch_all(connection).await?;
    let width = filter.group_by.len();
    let group = |row: &PgRow| {
        let key = |at| {
            let text: sqlx::Result<String> = row.try_get(at);
            text.map(|text| Some(text).filter(|text| !text.is_empty()))
        };
        let key = (0..width).map(key).collect::<sqlx::Result<_>>()?;
        Ok(UsageGroup { key, sums: sums(row, width)? })
    };
    let groups = rows.iter().map(group).collect::<sqlx::Result<_>>()?;
    Ok(Usage::new(filter, total, groups))
}

fn sums(row: &PgRow, at: usize) -> sqlx::Result<Sums> {
    Ok(Sums {
        calls: row.try_get(at)?,
        input_tokens: row.try_get(at + 1)?,
        output_tokens: row.try_get(at + 2)?,
        cached_input_tokens: row.try_get(at + 3)?,
        cost_micro_usd: row.try_get(at + 4)?,
    })
}
