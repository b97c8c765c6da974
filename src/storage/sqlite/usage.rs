//! What was spent: summed for each block of rows when it is full.

use std::{borrow::Cow, collections::HashMap, fmt::Write as _};

use sqlx::{
    Arguments, AssertSqlSafe, Row, SqliteConnection, error::BoxDynError, sqlite::SqliteArguments,
};

use super::block::{BLOCK_BITS, NEXT_BLOCK};
use crate::audit::{
    FIELDS, Record, Value,
    query::{Dimension, MAX_GROUPS, Sums, Usage, UsageFilter, UsageGroup},
};

/// What one call adds is bounded, and so is the sum: a number too large would refuse a row.
const MOST_OF_A_CALL: i64 = 1_000_000_000_000;
const MOST: i64 = 4_000_000_000_000_000_000;
const MICROS_PER_DAY: i64 = 86_400_000_000;
/// Groups that one statement takes.
const GROUPS: usize = 32;
const KEYS: [&str; 6] = ["subject", "agent", "tier", "model", "provider", "capability"];
const NUMBERS: [&str; 4] =
    ["input_tokens", "output_tokens", "cached_input_tokens", "cost_micro_usd"];

/// What was spent in a block so far, by all that it can be grouped by.
#[derive(Debug)]
pub(super) struct Spent {
    /// By the day and the texts, a NUL between them: there is none in a record.
    groups: HashMap<String, Sum>,
    key: String,
    columns: Columns,
}

/// The calls, and the numbers in their order.
#[derive(Debug, Default, Clone, Copy)]
struct Sum {
    calls: i64,
    numbers: [i64; NUMBERS.len()],
}

/// Where in a record the values are.
#[derive(Debug)]
struct Columns {
    keys: [usize; KEYS.len()],
    numbers: [usize; NUMBERS.len()],
    extra: usize,
    kind: usize,
    call: usize,
    time: usize,
}

impl Default for Spent {
    fn default() -> Self {
        let at = |name| FIELDS.iter().position(|(field, _)| *field == name).unwrap_or_default();
        let columns = Columns {
            keys: KEYS.map(at),
            numbers: NUMBERS.map(at),
            extra: at("extra"),
            kind: at("kind"),
            call: at("call_id"),
            time: at("time_micros"),
        };
        Self { groups: HashMap::new(), key: String::new(), columns }
    }
}

impl Spent {
    /// Adds a row, if it is the end of a call.
    pub(super) fn add(&mut self, record: &Record<'_>) {
        let Self { groups, key, columns } = self;
        let values = record.values();
        let is_end = values[columns.kind].text().is_some_and(|kind| ENDS.contains(&kind));
        if !is_end || values[columns.call] == Value::Null {
            return;
        }
        key.clear();
        let day = values[columns.time].number().unwrap_or_default() / MICROS_PER_DAY;
        // Writing to a string does not fail.
        let _ = write!(key, "{day}");
        for at in columns.keys {
            key.push('\0');
            key.push_str(values[at].text().unwrap_or_default());
        }
        key.push('\0');
        push_cost_center(values[columns.extra].text(), key);
        // Most calls are like others: their group is found without a copy of its key.
        let sum = match groups.get_mut(key.as_str()) {
            Some(sum) => sum,
            None => groups.entry(key.clone()).or_default(),
        };
        sum.calls += 1;
        for (sum, at) in sum.numbers.iter_mut().zip(columns.numbers) {
            *sum += values[at].number().unwrap_or_default().min(MOST_OF_A_CALL);
        }
    }
}

const ENDS: [&str; 3] = ["settle", "denied", "canceled"];

/// The cost center in a caller's facts, as SQLite would read it in [`spent`].
fn push_cost_center(extra: Option<&str>, to: &mut String) {
    #[derive(serde::Deserialize)]
    struct Facts<'a> {
        #[serde(borrow)]
        cost_center: Option<Cow<'a, str>>,
    }
    let Some(extra) = extra.filter(|extra| extra.contains("cost_center")) else { return };
    // It may have been cut, and be no JSON any more.
    if let Ok(Facts { cost_center: Some(center) }) = serde_json::from_str(extra) {
        to.push_str(&center);
    }
}

/// Adds what was spent in a block to the sums of the days, and begins anew.
pub(super) async fn store(
    connection: &mut SqliteConnection,
    spent: &mut Spent,
) -> sqlx::Result<()> {
    // In the order of the key, so that pages are written one after the other.
    let mut groups: Vec<(String, Sum)> = spent.groups.drain().collect();
    groups.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    let mut left = &groups[..];
    while !left.is_empty() {
        // Two statements in all, which SQLite keeps.
        let (part, rest) = left.split_at(if left.len() < GROUPS { 1 } else { GROUPS });
        left = rest;
        let mut arguments = SqliteArguments::default();
        for (key, sum) in part {
            bind(key, *sum, &mut arguments).map_err(sqlx::Error::Encode)?;
        }
        let sql = AssertSqlSafe(upsert(part.len()));
        sqlx::query_with(sql, arguments).execute(&mut *connection).await?;
    }
    Ok(())
}

fn bind(key: &str, sum: Sum, to: &mut SqliteArguments) -> Result<(), BoxDynError> {
    let (day, texts) = key.split_once('\0').unwrap_or_default();
    to.add(day.parse::<i64>()?)?;
    for text in texts.split('\0') {
        to.add(text.to_owned())?;
    }
    to.add(sum.calls)?;
    sum.numbers.iter().try_for_each(|number| to.add(*number))
}

fn upsert(groups: usize) -> String {
    let columns = KEYS.len() + NUMBERS.len() + 3;
    let row = format!("({})", vec!["?"; columns].join(","));
    let sums = NUMBERS.map(|name| format!("{name} = min({name} + excluded.{name}, {MOST})"));
    format!(
        "INSERT INTO audit_usage (day, {}, cost_center, calls, {}) VALUES {} \
         ON CONFLICT DO UPDATE SET calls = calls + excluded.calls, {}",
        KEYS.join(", "),
        NUMBERS.join(", "),
        vec![row; groups].join(","),
        sums.join(", ")
    )
}

/// What is asked: the sums of the days, and the rows of the blocks that are in none yet. Both from
/// one statement, so that no row is in both or in neither.
fn spent() -> String {
    let keys = KEYS.map(|name| format!("coalesce({name}, '')")).join(", ");
    let most = MOST_OF_A_CALL;
    let numbers = NUMBERS.map(|name| format!("min(coalesce({name}, 0), {most})")).join(", ");
    let ends = ENDS.map(|kind| format!("'{kind}'")).join(", ");
    format!(
        "SELECT day, {columns}, cost_center, calls, {sums} FROM audit_usage \
         UNION ALL \
         SELECT time_micros / {MICROS_PER_DAY}, {keys}, \
             CASE WHEN json_valid(extra) \
                 THEN coalesce(CAST(extra ->> '$.cost_center' AS TEXT), '') ELSE '' END, \
             1, {numbers} \
         FROM audit WHERE seq >= ({NEXT_BLOCK}) << {BLOCK_BITS} \
             AND call_id IS NOT NULL AND kind IN ({ends}) AND NOT superseded",
        columns = KEYS.join(", "),
        sums = NUMBERS.join(", "),
    )
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
    let spent = spent();
    let sql = if in_groups {
        let keys = columns.join(", ");
        let limit = MAX_GROUPS + 1;
        let numbers: Vec<String> = (1..=columns.len()).map(|number| number.to_string()).collect();
        let numbers = numbers.join(", ");
        format!(
            "SELECT {keys}, {SUMS} FROM ({spent}) WHERE {conditions} GROUP BY {numbers} \
             ORDER BY total(cost_micro_usd) DESC, total(calls) DESC, {numbers} LIMIT {limit}"
        )
    } else {
        format!("SELECT {SUMS} FROM ({spent}) WHERE {conditions}")
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
