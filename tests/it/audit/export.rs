//! `tollgate audit export`, from either store.

use serde_json::Value;
use tollgate::{
    audit::{
        Entry, FIELDS, StoredEntry,
        query::{AuditQuery, Field, Filter, Order, PAGE_ENTRIES},
    },
    cli::audit::{Export, Format, export},
};

use super::{
    query::{Fixture, OnPostgres, Sqlite, suite},
    support::{Batch, append, denial, intent, settle},
};

/// Texts that mean something to CSV, to a spreadsheet, to a terminal and to JSON.
const TEXTS: [&str; 9] = [
    "plain",
    "a, b",
    "say \"hi\", \"you\"",
    "two\r\nlines\nand more",
    "=HYPERLINK(\"http://evil\")",
    "+1",
    "-2+3",
    "@SUM(A1)",
    "é\u{1F600}\t\u{7}\u{1b}[2J",
];

/// RFC 4180, as its grammar has it.
fn parse_csv(text: &str) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut value) = (Vec::new(), Vec::new(), String::new());
    let mut chars = text.chars().peekable();
    let mut is_quoted = false;
    while let Some(next) = chars.next() {
        match (next, is_quoted) {
            ('"', true) if chars.next_if_eq(&'"').is_some() => value.push('"'),
            ('"', _) => is_quoted = !is_quoted,
            (',', false) => row.push(std::mem::take(&mut value)),
            ('\r', false) => {
                assert_eq!(chars.next(), Some('\n'));
                row.push(std::mem::take(&mut value));
                rows.push(std::mem::take(&mut row));
            }
            (other, _) => value.push(other),
        }
    }
    assert!(!is_quoted && row.is_empty() && value.is_empty(), "the last line ends");
    rows
}

async fn exported(trail: &dyn AuditQuery, format: Format, filter: Filter) -> String {
    let mut out = Vec::new();
    export(trail, &Export { format, filter }, &mut out).await.unwrap();
    String::from_utf8(out).unwrap()
}

/// A call with everything set, and denials that say each of [`TEXTS`].
async fn stored<F: Fixture>() -> (F, Vec<StoredEntry>) {
    let fixture = F::make().await;
    let call = intent();
    let mut entries = vec![call.clone(), settle(&call)];
    entries.extend(TEXTS.map(|text| Entry {
        detail: Some(text.to_owned()),
        model: Some(text.to_owned()),
        ..denial()
    }));
    append(fixture.sink(), &entries).await.unwrap();
    let trail = fixture.trail();
    let found = trail.page(&Filter::default(), Order::OldestFirst, None, 1_000).await.unwrap();
    assert_eq!(found.len(), entries.len());
    (fixture, found)
}

async fn lines_are_the_entries_of_the_api<F: Fixture>() {
    let (fixture, found) = stored::<F>().await;
    let text = exported(fixture.trail(), Format::Jsonl, Filter::default()).await;
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let expected: Vec<_> = found.iter().map(|entry| serde_json::to_value(entry).unwrap()).collect();
    assert_eq!(lines, expected);
    assert_eq!(lines[1]["redactions"], serde_json::json!({ "aws": 2 }));
    assert!(!text.contains('\u{1b}'), "a terminal is not steered");
    let mut filter = Filter::default();
    filter.set_field(Field::Model, "+1").unwrap();
    assert_eq!(exported(fixture.trail(), Format::Jsonl, filter).await.lines().count(), 1);
}

async fn a_table_has_every_column_and_no_formulas<F: Fixture>() {
    let (fixture, found) = stored::<F>().await;
    let text = exported(fixture.trail(), Format::Csv, Filter::default()).await;
    let rows = parse_csv(&text);
    let heading = &rows[0];
    assert_eq!(heading.len(), FIELDS.len() + 1);
    assert!(heading.contains(&"seq".to_owned()) && heading.contains(&"time".to_owned()));
    assert_eq!(rows.len(), found.len() + 1);
    for (row, entry) in rows[1..].iter().zip(&found) {
        let json = serde_json::to_value(entry).unwrap();
        assert_eq!(row.len(), heading.len());
        for (name, value) in heading.iter().zip(row) {
            match &json[name] {
                Value::Null => assert_eq!(value, "", "{name}"),
                Value::String(text) if value == text => {
                    assert!(!value.starts_with(['=', '+', '-', '@', '\t', '\r']), "{value}");
                }
                Value::String(text) => assert_eq!(*value, format!("'{text}"), "{name}"),
                other => assert_eq!(*value, other.to_string(), "{name}"),
            }
        }
    }
    let details = heading.iter().position(|name| name == "detail").unwrap();
    assert_eq!(rows[5][details], TEXTS[2], "quotes come back as they were");
    assert_eq!(rows[7][details], format!("'{}", TEXTS[4]));
}

async fn more_than_a_page_is_written_in_its_order<F: Fixture>() {
    let fixture = F::make().await;
    let entry = |number| Entry { request_id: format!("r-{number}"), ..denial() };
    let count = 2 * PAGE_ENTRIES + 3;
    let entries: Vec<_> = (0..count).map(entry).collect();
    for part in Batch::of(&entries).linked().chunks(500) {
        fixture.sink().append(part).await.unwrap();
    }
    let text = exported(fixture.trail(), Format::Jsonl, Filter::default()).await;
    let found = text.lines().map(|line| {
        let line: Value = serde_json::from_str(line).unwrap();
        line["request_id"].as_str().unwrap().to_owned()
    });
    assert!(found.eq((0..count).map(|number| format!("r-{number}"))));
    let table = exported(fixture.trail(), Format::Csv, Filter::default()).await;
    assert_eq!(parse_csv(&table).len(), count as usize + 1);
}

/// Someone who reads a little and goes, as `head` does.
struct Head(usize);

impl std::io::Write for Head {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

async fn a_reader_that_goes_is_no_failure<F: Fixture>() {
    let (fixture, _) = stored::<F>().await;
    for format in [Format::Jsonl, Format::Csv] {
        let asked = Export { format, filter: Filter::default() };
        export(fixture.trail(), &asked, &mut Head(700)).await.unwrap();
    }
}

suite!(sqlite, Sqlite:
    lines_are_the_entries_of_the_api,
    a_table_has_every_column_and_no_formulas,
    more_than_a_page_is_written_in_its_order,
    a_reader_that_goes_is_no_failure,
);
suite!(postgres, OnPostgres:
    lines_are_the_entries_of_the_api,
    a_table_has_every_column_and_no_formulas,
    more_than_a_page_is_written_in_its_order,
    a_reader_that_goes_is_no_failure,
);
