//! What questions may hold, and how SQLite finds the answers.

use jiff::{SignedDuration, Timestamp};
use tollgate::{
    audit::query::{Cursor, Field, Filter, Order, UsageFilter},
    storage::{
        postgres::{self, PostgresTrail},
        sqlite::{self, AuditReader},
    },
};
use uuid::Uuid;

use super::{
    postgres::Postgres,
    support::{TempDir, append, denial},
};

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
    for (name, value) in
        [("from", "soon"), ("to", "2026-13-01"), ("group_by", "hour"), ("group_by", ",")]
    {
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

/// Each filter alone, and the question that the trail is there for: did anything with `fleet:write`
/// touch arcadedb in the last hour?
fn questions() -> Vec<Filter> {
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
    let filter = |terms: &Vec<(&str, &str)>| {
        let mut filter = Filter::default();
        for (name, value) in terms {
            assert!(filter.set(name, value, Timestamp::now()).unwrap(), "{name}");
        }
        filter
    };
    questions.iter().map(filter).collect()
}

#[tokio::test]
async fn sqlite_reads_all_there_is_for_no_question() {
    let directory = TempDir::new();
    sqlite::migrate(&directory.file()).await.unwrap();
    let trail = AuditReader::open(&directory.file()).await.unwrap();
    for filter in questions() {
        for order in [Order::NewestFirst, Order::OldestFirst] {
            let plan = trail.plan(&filter, order).await.unwrap();
            // By number, in ranges; of the blocks' summaries there is one for 4,096 rows.
            let by_number = "SEARCH audit USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)";
            assert!(plan.iter().any(|step| step == by_number), "{filter:?}: {plan:?}");
            for step in plan.iter().filter(|step| *step != by_number) {
                let is_of_blocks = step.starts_with("SEARCH b ") || step.starts_with("SEARCH f");
                assert!(is_of_blocks, "{filter:?}: {plan:?}");
            }
        }
    }
}

/// Rows of the last hours, of which a few are what is asked for.
const ROWS: &str = "
INSERT INTO tollgate.audit (time_micros, chain_seq, epoch, id, call_id, writer, superseded, hash, kind,
    request_id, operation, subject, tier, agent, model, outcome, capability, tool, trace_id, run_id)
SELECT (extract(epoch FROM now()) * 1000000)::int8 - n * 400000::int8, n, 1, gen_random_uuid(),
    gen_random_uuid(), gen_random_uuid(), false, '\\x00', CASE WHEN n % 2 = 0 THEN 'intent' ELSE 'settle' END,
    n::text, 'create_chat_completion', 'user-' || n % 500, 'pro', 'agent-' || n % 50, 'model-' || n % 8,
    CASE WHEN n % 2 = 1 THEN 'ok' END,
    CASE WHEN n % 1000 = 0 THEN 'fleet:write' ELSE 'model:reasoning' END,
    CASE WHEN n % 10000 = 0 THEN 'arcadedb' END, md5(n::text), 'run-' || n / 100
FROM generate_series(1, 30000) AS n";

#[tokio::test]
async fn postgres_reads_all_there_is_for_no_question() {
    let store = Postgres::start().await;
    postgres::migrate(&store.config).await.unwrap();
    // The first batch makes the days' partitions.
    append(&store.sink, &[denial()]).await.unwrap();
    let mut superuser = store.database.superuser().await;
    for statement in [ROWS, "ANALYZE tollgate.audit"] {
        sqlx::raw_sql(statement).execute(&mut superuser).await.unwrap();
    }
    let trail = PostgresTrail::open(&store.config).await.unwrap();
    for filter in questions() {
        for order in [Order::NewestFirst, Order::OldestFirst] {
            let plan = trail.plan(&filter, order).await.unwrap();
            // Of days that have next to no rows all are read at once.
            let reads_all = |step: &String| {
                let cost = step.split("..").nth(1).and_then(|rest| rest.split(' ').next());
                let is_dear = cost.is_some_and(|cost| cost.parse::<f64>().unwrap() > 100.0);
                step.contains("Seq Scan") && is_dear
            };
            assert!(!plan.iter().any(reads_all), "{filter:?}: {plan:#?}");
            assert!(plan.iter().any(|step| step.contains("Index")), "{filter:?}: {plan:#?}");
        }
    }
    let named = questions().pop().unwrap();
    let plan = trail.plan(&named, Order::NewestFirst).await.unwrap().join("\n");
    assert!(plan.contains("tool") || plan.contains("capability"), "{plan}");
}
