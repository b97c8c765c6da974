//! `migrate` and `audit tail`.

use serde_json::{Value, json};

use super::{Dev, Shell, mode};

async fn call(dev: &Dev, token: &str, model: &str) -> u16 {
    let body = json!({ "model": model, "messages": [{ "role": "user", "content": "Hi" }] });
    let response = dev.client(token).post("/v1/chat/completions").json(&body).send().await;
    let status = response.status.as_u16();
    response.bytes().await;
    status
}

#[test]
fn migrate_makes_the_database_once() {
    let shell = Shell::new();
    let first = shell.run(&["migrate"]).ok();
    assert!(first.starts_with("data/tollgate.db: ") && !first.contains(": 0 "), "{first}");
    assert_eq!(mode(&shell.path("data/tollgate.db")), 0o600);
    assert!(shell.run(&["migrate"]).ok().contains(": 0 migrations"));
    shell.run(&["migrate", "--path", "other/audit.db"]).ok();
    assert!(shell.path("other/audit.db").exists());
    shell.write("text.db", "this is no database, and longer than a header of one would have to be");
    assert!(shell.run(&["migrate", "--path", "text.db"]).fails(1).contains("text.db"));
}

#[test]
fn a_given_path_goes_before_the_configurations() {
    let shell = Shell::new().with_env("TOLLGATE_CONFIG", "there-is-none.toml");
    shell.run(&["migrate", "--path", "audit.db"]).ok();
    shell.run(&["audit", "tail", "--path", "audit.db"]).ok();
    assert!(shell.run(&["migrate"]).fails(1).contains("there-is-none.toml"));
}

#[test]
fn tail_says_where_there_is_nothing() {
    let err = Shell::new().run(&["audit", "tail"]).fails(1);
    assert!(err.contains("data/tollgate.db") && err.contains("--path"), "{err}");
    let shell = Shell::new();
    shell.run(&["migrate"]).ok();
    assert_eq!(shell.run(&["audit", "tail"]).ok().lines().count(), 1, "the heading");
    assert_eq!(shell.run(&["audit", "tail", "--json"]).ok(), "");
}

#[tokio::test]
async fn tail_shows_calls_and_denials_as_columns_and_as_json() {
    let shell = Shell::new();
    let dev = shell.dev(&[]);
    assert_eq!(call(&dev, dev.token(), "demo-fast").await, 200);
    let nobody = shell.run(&["mint-token", "--subject", "mallory"]).ok();
    assert_eq!(call(&dev, nobody.trim_end(), "demo-fast").await, 403);

    // A gateway that runs is looked at from beside it; the end of it writes all there is.
    let mut follow = shell.start(&["audit", "tail", "--follow"]);
    follow.out.until("mallory");
    dev.stop();
    let columns = shell.run(&["audit", "tail"]).ok();
    let lines: Vec<&str> = columns.lines().collect();
    assert_eq!(lines.len(), 4, "{columns}");
    assert!(lines[0].starts_with("TIME"), "{columns}");
    assert!(lines[1].contains("intent") && lines[1].contains("demo-fast"), "{columns}");
    assert!(lines[2].contains("settle") && lines[2].contains(" ok "), "{columns}");
    assert!(lines[3].contains("denied") && lines[3].contains("capability_denied"), "{columns}");

    let rows = shell.run(&["audit", "tail", "--json"]).ok();
    let rows: Vec<Value> = rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<&Value> = rows.iter().map(|row| &row["kind"]).collect();
    assert_eq!(kinds, ["intent", "settle", "denied"]);
    assert_eq!(rows[0]["call_id"], rows[1]["call_id"]);
    assert_eq!(rows[2]["subject"], "mallory");
    let newest = shell.run(&["audit", "tail", "--json", "-n", "1"]).ok();
    assert_eq!(newest.lines().count(), 1);
    assert_eq!(serde_json::from_str::<Value>(&newest).unwrap(), rows[2]);
}

#[tokio::test]
async fn follow_goes_on_with_what_comes() {
    let shell = Shell::new();
    let dev = shell.dev(&[]);
    let mut follow = shell.start(&["audit", "tail", "--follow", "--json"]);
    assert_eq!(call(&dev, dev.token(), "demo-fast").await, 200);
    let seen = follow.out.until("\"settle\"").len();
    assert_eq!(call(&dev, dev.token(), "demo-tool").await, 200);
    let lines = follow.out.until("demo-tool");
    let row: Value = serde_json::from_str(&lines[seen]).unwrap();
    assert_eq!((&row["kind"], &row["model"]), (&json!("intent"), &json!("demo-tool")));
    dev.stop();
}

/// Some calls through a gateway that has ended since.
async fn audited(shell: &Shell) {
    let dev = shell.dev(&[]);
    for _ in 0..3 {
        assert_eq!(call(&dev, dev.token(), "demo-fast").await, 200);
    }
    dev.stop();
}

async fn edit(shell: &Shell, sql: &'static str) {
    let options =
        sqlx::sqlite::SqliteConnectOptions::new().filename(shell.path("data/tollgate.db"));
    let mut connection = sqlx::ConnectOptions::connect(&options).await.unwrap();
    sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
}

#[tokio::test]
async fn verify_says_of_a_sound_trail_that_it_is_and_of_an_edited_one_where() {
    let shell = Shell::new();
    audited(&shell).await;
    let said = shell.run(&["audit", "verify"]).ok();
    assert!(
        said.contains("verified: 6 rows of 1 writers") && said.contains("checkpoints"),
        "{said}"
    );
    for file in ["data/checkpoint.pem", "data/checkpoints.jsonl"] {
        assert_eq!(mode(&shell.path(file)), 0o600, "{file}");
    }
    // From elsewhere, with the public key alone.
    shell.write("key.pub", &shell.run(&["audit", "public-key"]).ok());
    std::fs::rename(shell.path("data/checkpoint.pem"), shell.path("away.pem")).unwrap();
    let err = shell.run(&["audit", "verify"]).fails(2);
    assert!(err.contains("--public-key"), "{err}");
    let log = ["--checkpoints", "data/checkpoints.jsonl", "--public-key", "key.pub"];
    shell.run(&[&["audit", "verify"], &log[..]].concat()).ok();

    edit(
        &shell,
        "DROP TRIGGER audit_no_update; UPDATE audit SET tier = 'free' WHERE chain_seq = 4",
    )
    .await;
    let ran = shell.run(&[&["audit", "verify"], &log[..]].concat());
    assert_eq!((ran.code, &*ran.err), (Some(1), ""), "{ran:?}");
    assert!(ran.out.starts_with("edited: writer ") && ran.out.contains("seq 4, entry "), "{ran:?}");
    assert!(ran.out.contains("NOT VERIFIED: 1 finding"), "{ran:?}");
    let ran = shell.run(&[&["audit", "verify", "--json"], &log[..]].concat());
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, &report["is_clean"]), (Some(1), &json!(false)));
    assert_eq!(
        (&report["findings"][0]["kind"], &report["findings"][0]["seq"]),
        (&json!("edited"), &json!(4))
    );
    let before = [&["audit", "verify", "--to", "2020-01-01"], &log[..]].concat();
    assert!(shell.run(&before).ok().contains("verified: 0 rows"));
}

#[tokio::test]
async fn verify_says_what_it_could_not_look_at() {
    let shell = Shell::new();
    let err = shell.run(&["audit", "verify"]).fails(2);
    assert!(err.contains("data/tollgate.db"), "{err}");
    let err = shell.run(&["audit", "public-key"]).fails(1);
    assert!(err.contains("audit.checkpoint_key"), "{err}");
    assert!(shell.run(&["audit", "verify", "--from", "yesterday"]).fails(2).contains("2026-07-01"));
    audited(&shell).await;
    std::fs::remove_file(shell.path("data/checkpoints.jsonl")).unwrap();
    let said = shell.run(&["audit", "verify", "--path", "data/tollgate.db"]).ok();
    assert!(said.contains("note: no checkpoints were given"), "{said}");
    let gone = ["audit", "verify", "--checkpoints", "gone.jsonl"];
    assert!(shell.run(&gone).fails(2).contains("gone.jsonl"));
    edit(&shell, "DELETE FROM _sqlx_migrations WHERE version > 1").await;
    let err = shell.run(&["audit", "verify", "--path", "data/tollgate.db"]).fails(2);
    assert!(err.contains("tollgate migrate"), "{err}");
}
