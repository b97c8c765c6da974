//! What was spent, summed as entries come in.

use sqlx::{Arguments, AssertSqlSafe, Row, SqliteConnection, sqlite::SqliteArguments};

use crate::audit::query::{Dimension, MAX_GROUPS, Sums, Usage, UsageFilter, UsageGroup};

/// Adds the rows behind the one numbered `?1` to the sums: those that are really new, whatever was
/// sent. What one call adds is bounded, and so is the sum: a number too large would refuse a row.
const ADD: &str = "\
INSERT INTO audit_usage AS u
SELECT time_micros / 86400000000, coalesce(subject, ''), coalesce(agent, ''), coalesce(tier, ''),
       coalesce(model, ''), coalesce(provider, ''), coalesce(capability, ''),
       CASE WHEN json_valid(extra)
           THEN coalesce(CAST(extra ->> '$.cost_center' AS TEXT), '') ELSE '' END,
       count(*), sum(min(coalesce(input_tokens, 0), 1000000000000)),
       sum(min(coalesce(output_tokens, 0), 1000000000000)),
       sum(min(coalesce(cached_input_tokens, 0), 1000000000000)),
       sum(min(coalesce(cost_micro_usd, 0), 1000000000000))
FROM audit
WHERE seq > ?1 AND call_id IS NOT NULL AND kind IN ('settle', 'denied', 'canceled')
      AND NOT superseded
GROUP BY 1, 2, 3, 4, 5, 6, 7, 8
ON CONFLICT DO UPDATE SET
    calls = calls + excluded.calls,
    input_tokens = min(input_tokens + excluded.input_tokens, 4000000000000000000),
    output_tokens = min(output_tokens + excluded.output_tokens, 4000000000000000000),
    cached_input_tokens =
        min(cached_input_tokens + excluded.cached_input_tokens, 4000000000000000000),
    cost_micro_usd = min(cost_micro_usd + excluded.cost_micro_usd, 4000000000000000000)";

/// Adds the rows that were written behind the one numbered `before`.
pub(super) async fn add(connection: &mut SqliteConnection, before: i64) -> sqlx::Result<()> {
    sqlx::query(ADD).bind(before).execute(connection).await.map(drop)
}

/// As numbers that can't overflow.
const SUMS: &str = "CAST(total(calls) AS INTEGER), CAST(total(input_tokens) AS INTEGER), \
    CAST(total(output_tokens) AS INTEGER), CAST(total(cached_input_tokens) AS INTEGER), \
    CAST(total(cost_micro_usd) AS INTEGER)";

/// The question for `filter`, in groups or as one sum.
fn statement(filter: &UsageFilter, in_groups: bool) -> sqlx::Result<(String, SqliteArguments)> {
    let mut arguments = SqliteArguments::default();
    let epoch = jiff::civil::date(1970, 1, 1);
    let mut conditions = String::from("day BETWEEN ? AND ?");
    for day in [filter.from, filter.to] {
        let days = epoch.until(day).map_or(i64::MAX, |span| i64::from(span.get_days()));
        arguments.add(days).map_err(sqlx::Error::Encode)?;
    }
    for (dimension, value) in filter.terms() {
        conditions += " AND ";
        conditions += dimension.name();
        conditions += " = ?";
        arguments.add(value.clone()).map_err(sqlx::Error::Encode)?;
    }
    let columns: Vec<&str> = filter
        .group_by
        .iter()
        .map(|dimension| match dimension {
            Dimension::Day => "date(day * 86400, 'unixepoch')",
            other => other.name(),
        })
        .collect();
    let sql = if in_groups {
        let keys = columns.join(", ");
        let limit = MAX_GROUPS + 1;
        let numbers: Vec<String> = (1..=columns.len()).map(|number| number.to_string()).collect();
        let numbers = numbers.join(", ");
        format!(
            "SELECT {keys}, {SUMS} FROM audit_usage WHERE {conditions} GROUP BY {numbers} \
             ORDER BY total(cost_micro_usd) DESC, total(calls) DESC, {numbers} LIMIT {limit}"
        )
    } else {
        format!("SELECT {SUMS} FROM audit_usage WHERE {conditions}")
    };
    Ok((sql, arguments))
}

pub(super) async fn read(
    connection: &mut SqliteConnection,
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
    let group = |row: &_| {
        let key = |at| {
            Row::try_get::<String, _>(row, at)
                .map(|text| Some(text).filter(|text| !text.is_empty()))
        };
        let key = (0..width).map(key).collect::<sqlx::Result<_>>()?;
        Ok(UsageGroup { key, sums: sums(row, width)? })
    };
    let groups = rows.iter().map(group).collect::<sqlx::Result<_>>()?;
    Ok(Usage::new(filter, total, groups))
}

fn sums(row: &sqlx::sqlite::SqliteRow, at: usize) -> sqlx::Result<Sums> {
    Ok(Sums {
        calls: row.try_get(at)?,
        input_tokens: row.try_get(at + 1)?,
        output_tokens: row.try_get(at + 2)?,
        cached_input_tokens: row.try_get(at + 3)?,
        cost_micro_usd: row.try_get(at + 4)?,
    })
}
