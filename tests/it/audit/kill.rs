//! A gateway that is killed under load, again and again: what it said yes to is in the store, once.

use std::{
    collections::HashMap,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use nix::sys::signal::Signal;
use serde_json::json;
use sqlx::{AssertSqlSafe, ConnectOptions, Row, SqliteConnection, sqlite::SqliteConnectOptions};
use tokio::task::JoinSet;
use tollgate::audit::{Chain, FIELDS, FieldType, Link, Record, Value};

use crate::support::{
    client::{Client, eventually},
    process::Process,
};

const KILLS: usize = 4;
const CALLERS: usize = 8;
/// So many answers are seen before each kill.
const ANSWERS: u64 = 25;
const PATIENCE: Duration = Duration::from_secs(20);

/// Calls one after the other until the gateway is gone; the ids of those that it answered.
async fn call(client: Client, answered: Arc<AtomicU64>) -> Vec<String> {
    let mut ids = Vec::new();
    loop {
        let id = uuid::Uuid::new_v4().simple().to_string();
        let body = json!({ "model": "demo", "messages": [{ "role": "user", "content": "Hi" }] });
        let call = client.post("/v1/chat/completions").header("x-request-id", &id).json(&body);
        match tokio::time::timeout(PATIENCE, call.try_send()).await.expect("an answer, or none") {
            Ok(response) if response.status == 200 => {
                ids.push(id);
                answered.fetch_add(1, Ordering::Relaxed);
            }
            Ok(_) => {}
            Err(_) => return ids,
        }
    }
}

/// Every row in the order of the chain: its link, its bytes, and what is looked at.
async fn rows(path: &Path) -> Vec<(Link, Vec<u8>, String, String)> {
    let fields = FIELDS.map(|(name, _)| name).join(", ");
    let query =
        format!("SELECT writer, epoch, chain_seq, hash, {fields} FROM audit ORDER BY chain_seq");
    let options = SqliteConnectOptions::new().filename(path).read_only(true);
    let mut connection: SqliteConnection = options.connect().await.unwrap();
    let rows = sqlx::query(AssertSqlSafe(query)).fetch_all(&mut connection).await.unwrap();
    let read = |row: &sqlx::sqlite::SqliteRow| {
        let link = Link {
            writer: row.get::<&str, _>(0).parse().unwrap(),
            epoch: row.get(1),
            seq: u64::try_from(row.get::<i64, _>(2)).unwrap(),
            hash: row.get::<Vec<u8>, _>(3).try_into().unwrap(),
        };
        let record = Record::new(&std::array::from_fn(|at| match FIELDS[at].1 {
            FieldType::Text => row.get::<Option<&str>, _>(at + 4).map_or(Value::Null, Value::Text),
            FieldType::Number => {
                row.get::<Option<i64>, _>(at + 4).map_or(Value::Null, Value::Number)
            }
        }));
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        let text = |name| record.get(name).text().unwrap().to_owned();
        (link, bytes, text("kind"), text("request_id"))
    };
    rows.iter().map(read).collect()
}

/// What its own command says of the trail, while the gateway runs.
fn verify(data: &Path) {
    let mut verify = std::process::Command::new(env!("CARGO_BIN_EXE_tollgate"));
    verify.args(["audit", "verify", "--json", "--path"]).arg(data.join("tollgate.db"));
    let ran = verify.output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    let report: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(report["writers"].as_array().map(Vec::len), Some(1), "{report}");
    let last = report["writers"][0]["last_epoch"].as_u64();
    assert!(last.is_some_and(|last| last >= KILLS as u64), "{report}");
    // Each start speaks of what the killed one left.
    let checkpoints = report["checkpoints"]["checkpoints"].as_u64();
    assert!(checkpoints.is_some_and(|count| count >= KILLS as u64), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_gateway_answered_is_in_the_store_once_and_the_chain_holds() {
    let (mut process, _) = Process::dev().await;
    let mut answered = Vec::new();
    for _ in 0..KILLS {
        let client = Client::new(process.address()).with_token(process.token_once().await);
        let count = Arc::new(AtomicU64::new(0));
        let mut callers = JoinSet::new();
        for _ in 0..CALLERS {
            callers.spawn(call(client.clone(), Arc::clone(&count)));
        }
        eventually(PATIENCE, async || count.load(Ordering::Relaxed) >= ANSWERS).await;
        process.signal(Signal::SIGKILL);
        process.ended().await;
        answered.extend(callers.join_all().await.into_iter().flatten());
        process.restart().await;
    }
    process.until_shipped().await;

    verify(&process.dir().join("data"));
    let rows = rows(&process.dir().join("data/tollgate.db")).await;
    let mut kinds: HashMap<&str, Vec<&str>> = HashMap::new();
    let mut last = Link::origin(rows[0].0.writer);
    for (link, record, kind, request_id) in &rows {
        let mut chain = Chain::after(Link { epoch: link.epoch, ..last });
        assert_eq!(chain.link(|to| to.extend(record)).0, link, "no gap, no fork, no edit");
        last = *link;
        kinds.entry(request_id).or_default().push(kind);
    }
    assert!(last.epoch as usize >= KILLS, "{last:?}");
    assert!(answered.len() as u64 >= ANSWERS * KILLS as u64);
    for id in &answered {
        // The end of a call that was answered just before the kill may not have been written.
        let kinds = &kinds[&**id][..];
        assert!(matches!(kinds, ["intent"] | ["intent", "settle"]), "{kinds:?}");
    }
}
