//! "Did anything with `fleet:write` touch arcadedb in the last hour?", over many rows, through the
//! gateway.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use serde_json::Value;
use sqlx::{AssertSqlSafe, PgConnection};
use tokio::runtime::Runtime;
use tollgate::{audit::AuditSink as _, storage::postgres};

use super::{
    super::{
        Outcome,
        gateway::{Audit, Gateway},
        identity,
        report::{Bar, Report},
    },
    Directory, Extent, Postgres, row,
    row::Rows,
};

/// How often each question is asked.
pub const TIMES: usize = 11;
const PATIENCE: Duration = Duration::from_secs(10);

/// Rows of the last day, evenly: one in 1,000 is by `fleet:write`, one in 10,000 is of a tool. Made
/// before the indexes, which takes a third of the time; roll-ups are not asked for.
const FILL: &str = "
INSERT INTO tollgate.audit (time_micros, chain_seq, epoch, id, call_id, writer, superseded, hash, kind,
    request_id, operation, subject, tier, agent, model, outcome, capability, tool, trace_id, run_id)
SELECT (extract(epoch FROM now()) * 1000000)::int8 - n * (86400000000 / {rows}), n, 1,
    gen_random_uuid(), lpad(to_hex(n / 2), 32, '0')::uuid, '0192f0c1-a6b2-7c3d-8e4f-5a6b7c8d9e0f', false,
    '\\x00', CASE WHEN n % 2 = 0 THEN 'intent' ELSE 'settle' END, 'req-0af76519',
    'create_chat_completion', 'user-' || n % 500, 'pro', 'agent-' || n % 50, 'model-' || n % 8,
    CASE WHEN n % 2 = 1 THEN 'ok' END,
    CASE WHEN n % 1000 = 0 THEN 'fleet:write' ELSE 'model:reasoning' END,
    CASE WHEN n % 10000 = 0 THEN 'arcadedb' END, md5((n / 2)::text), 'run-' || n / 100
FROM generate_series(1, {rows}) AS n";

/// The indexes but the one that keeps rows apart, and how they are made.
const INDEXES: &str = "SELECT indexname::text, indexdef FROM pg_indexes \
    WHERE schemaname = 'tollgate' AND tablename = 'audit' AND indexname <> 'audit_pkey'";

const QUESTIONS: [(&str, &str); 6] = [
    ("fleet:write, arcadedb, 1 h", "capability=fleet%3Awrite&tool=arcadedb&from=1h"),
    ("what most have, 1 h", "capability=model%3Areasoning&tier=pro&from=1h"),
    ("one agent", "agent=agent-7"),
    ("one trace", "trace_id=c4ca4238a0b923820dcc509a6f75849b"),
    ("one run", "run_id=run-77"),
    ("what is nowhere", "subject=nobody&model=none"),
];
const BAR_MS: f64 = 100.0;

pub fn run(runtime: &Runtime, extent: &Extent<'_>, report: &mut Report) -> Outcome<()> {
    let Some(binary) = extent.gateway else { return Ok(()) };
    eprintln!("audit: questions over {} rows", extent.question_rows);
    let store = runtime.block_on(filled(extent.question_rows))?;
    let directory = Directory::new()?;
    let jwks = directory.0.join("jwks.json");
    let token = identity::issue_one(&jwks, "audit:read")?;
    let url = store.database.gateway_url();
    // Nothing is called, so there is no upstream.
    let upstream = SocketAddr::from(([127, 0, 0, 1], 9));
    let gateway = Gateway::start(binary, &directory.0, &jwks, upstream, &Audit::Postgres { url })?;
    for (what, query) in QUESTIONS {
        let mut took = Vec::new();
        for _ in 0..TIMES {
            let asked = ask(gateway.address, &token, query);
            took.push(asked.map_err(|error| format!("{error}\n{}", gateway.last_words()))?);
        }
        report.add(row(what, "ms", took).with_bar(Bar::AtMost { bar: BAR_MS }));
    }
    Ok(())
}

async fn filled(rows: u64) -> Outcome<Postgres> {
    let store = Postgres::start().await?;
    // The first batch makes the days' partitions.
    let batch = Rows::new().batch();
    postgres::sink(&store.config)?.append(&batch.linked()).await?;
    fill(&mut store.database.superuser().await, rows).await?;
    Ok(store)
}

async fn fill(superuser: &mut PgConnection, rows: u64) -> Outcome<()> {
    let indexes: Vec<(String, String)> = sqlx::query_as(INDEXES).fetch_all(&mut *superuser).await?;
    let mut statements = vec!["ALTER TABLE tollgate.audit DISABLE TRIGGER audit_usage".to_owned()];
    statements.extend(indexes.iter().map(|(name, _)| format!("DROP INDEX tollgate.{name}")));
    statements.push(FILL.replace("{rows}", &rows.to_string()));
    // `ONLY` would leave the partitions without.
    statements.extend(indexes.iter().map(|(_, made)| made.replace(" ON ONLY ", " ON ")));
    statements.push("ALTER TABLE tollgate.audit ENABLE TRIGGER audit_usage".to_owned());
    statements.push("VACUUM ANALYZE tollgate.audit".to_owned());
    for statement in statements {
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut *superuser).await?;
    }
    Ok(())
}

/// Milliseconds until the whole answer is there.
fn ask(gateway: SocketAddr, token: &str, query: &str) -> Outcome<f64> {
    let mut socket = TcpStream::connect_timeout(&gateway, PATIENCE)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let request = format!(
        "GET /v1/audit?{query} HTTP/1.1\r\nhost: {gateway}\r\nauthorization: Bearer {token}\r\n\
         connection: close\r\n\r\n"
    );
    let started = Instant::now();
    socket.write_all(request.as_bytes())?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer)?;
    let took = started.elapsed();
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("an answer without a head")?;
    if !head.starts_with("HTTP/1.1 200 ") {
        return Err(format!("{query}: {answer}").into());
    }
    // Only all of it is JSON.
    serde_json::from_str::<Value>(body)?;
    Ok(took.as_secs_f64() * 1_000.0)
}
