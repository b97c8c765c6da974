//! What questions may hold, and how SQLite finds the answers.

use jiff::{SignedDuration, Timestamp};
use tollgate::{
    audit::query::{Cursor, Field, Filter, Order, UsageFilter},
    storage::sqlite::{self, AuditReader},
};
use uuid::Uuid;

use super::support::TempDir;

fn at(minutes: i64) -> Timestamp {
    let epoch: Timestamp = "2026-11-20T00:00:00Z".parse().unwrap();
    epoch + SignedDuration::from_mins(minutes)
}

#[test]
fn a_value_that_a_field_cannot_have_is_refused_by_name() {
    let long = "x".repeat(513);
    for (name, value) in [
        ("call_id", "none"),
        ("stream_id", ""),
        ("trace_id", "4bf92f3577b34da6a3ce929d0e0e473"),
        ("input_hash", "12"),
        ("kind", "Settle"),
        ("subject", ""),
        ("model", &long),
        ("from", "yesterday"),
        ("from", "-1h"),
        ("to", "2026-11-20"),
        ("to", "2026-11-20T00:00:00"),
        ("from", "9999999999999d"),
    ] {
        let error = Filter::default().set(name, value, at(0)).unwrap_err();
        assert_eq!(error.name, name, "{value}");
        assert!(error.to_string().starts_with(&format!("`{name}` must be ")), "{error}");
    }
    assert_eq!(Filter::default().set("colour", "red", at(0)), Ok(false));
    for (name, value) in [
        ("from", "soon"),
        ("to", "2026-13-01"),
        ("group_by", "day,day"),
        ("group_by", "hour"),
        ("group_by", ","),
    ] {
        let error = UsageFilter::until(at(0)).set(name, value).unwrap_err();
        assert_eq!(error.name, name, "{value}");
    }
    assert_eq!(UsageFilter::until(at(0)).set("day", "2026-11-20"), Ok(false));
}

#[test]
fn a_time_is_a_moment_or_how_long_ago_it_was() {
    for (text, expected) in [
        ("2026-11-20T01:00:00+01:00", at(0)),
        ("1h", at(-60)),
        ("90m", at(-90)),
        ("7d", at(-7 * 24 * 60)),
        ("PT1H30M", at(-90)),
        ("0s", at(0)),
    ] {
        let mut filter = Filter::default();
        filter.set("from", text, at(0)).unwrap();
        assert_eq!(filter.from, Some(expected), "{text}");
    }
}

#[test]
fn a_cursor_comes_back_as_it_went_and_nothing_else_is_one() {
    for (time_micros, seq) in [(0, 0), (i64::MIN, i64::MAX), (1_795_132_800_000_000, 42)] {
        let cursor = Cursor { time_micros, seq };
        let text = cursor.to_string();
        assert_eq!(text.parse(), Ok(cursor));
        assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)));
        for spoilt in [&text[1..], &format!("{text}A"), &format!("B{}", &text[1..]), ""] {
            assert!(spoilt.parse::<Cursor>().is_err(), "{spoilt}");
        }
    }
}

/// The question that the trail is there for, and each filter alone.
#[tokio::test]
async fn no_question_reads_all_there_is() {
    let directory = TempDir::new();
    sqlite::migrate(&directory.file()).await.unwrap();
    let trail = AuditReader::open(&directory.file()).await.unwrap();
    let uuid = Uuid::nil().to_string();
    let hash = "0".repeat(64);
    let mut questions: Vec<Vec<(&str, &str)>> = Field::ALL
        .iter()
        .map(|field| {
            let value = match field {
                Field::CallId | Field::StreamId => &uuid,
                Field::TraceId => &hash[..32],
                Field::InputHash => &hash,
                Field::Kind => "settle",
                _ => "x",
            };
            vec![(field.name(), value)]
        })
        .collect();
    questions.push(vec![("from", "1h")]);
    questions.push(vec![("capability", "fleet:write"), ("tool", "arcadedb"), ("from", "1h")]);
    questions.push(vec![("capability", "fleet:write"), ("model", "arcadedb"), ("from", "1h")]);
    for terms in questions {
        let mut filter = Filter::default();
        for (name, value) in &terms {
            assert!(filter.set(name, value, at(0)).unwrap(), "{name}");
        }
        for order in [Order::NewestFirst, Order::OldestFirst] {
            let plan = trail.plan(&filter, order).await.unwrap();
            assert!(plan.iter().any(|step| step.starts_with("SEARCH audit_hour")), "{plan:?}");
            let by_number = "USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)";
            assert!(plan.iter().any(|step| step.contains(by_number)), "{terms:?}: {plan:?}");
            for step in &plan {
                let is_scan = step.starts_with("SCAN ") || step.contains("TEMP B-TREE");
                assert!(!is_scan, "{terms:?}: {plan:?}");
            }
        }
    }
}
