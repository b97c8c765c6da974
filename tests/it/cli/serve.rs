//! `serve`: how it starts, fails to start, and ends.

use std::{net::TcpListener, time::Duration};

use tollgate::auth::mint::SigningKey;

use super::{Running, Shell, check::GOOD};
use crate::support::{
    app::chat,
    client::{Client, eventually},
    upstream::{MockUpstream, fault},
};

pub(super) fn ready() -> Shell {
    let shell = Shell::new().with_env("UP_KEY", "sk-0123456789abcdef");
    let key = SigningKey::generate_file(&shell.path("issuer.pem")).unwrap();
    shell.write("jwks.json", &key.public_jwks().to_string());
    shell.write("tollgate.toml", GOOD);
    shell
}

#[test]
fn a_port_that_is_taken_is_named_with_its_key() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (variable, key) in [
        ("TOLLGATE__SERVER__LISTEN", "server.listen"),
        ("TOLLGATE__SERVER__ADMIN_LISTEN", "server.admin_listen"),
    ] {
        let shell = ready().with_env(variable, address.clone());
        let err = shell.run(&["serve"]).fails(1);
        let message =
            format!("cannot listen on {address} ({key}): something listens there already");
        assert!(err.contains(&message), "{err}");
    }
}

#[test]
fn a_spool_that_another_gateway_uses_is_named_with_its_key() {
    let shell = ready();
    let mut running = shell.start(&["serve"]);
    running.err.until("\"listening\"");
    let err = shell.run(&["serve"]).fails(1);
    for words in ["audit.spool: ", "/spool is in use by another tollgate", "a directory of its own"]
    {
        assert!(err.contains(words), "{words}: {err}");
    }
    assert_eq!(running.stop().code, Some(0), "the first one goes on");
    let mut next = shell.start(&["serve"]);
    next.err.until("\"listening\"");
    assert_eq!(next.stop().code, Some(0), "and then it is free");
}

#[test]
fn it_drains_on_sigterm_and_ends_well() {
    let shell = ready();
    let mut running = shell.start(&["serve"]);
    running.err.until("\"listening\"");
    let ran = running.stop();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.out, "", "the log goes to stderr");
    for message in ["\"listening\"", "\"draining\"", "\"stopped\""] {
        assert!(ran.err.contains(message), "{message}: {}", ran.err);
    }
    assert!(!ran.err.contains("sk-0123456789abcdef"), "a secret is logged");
}

/// The address that a gateway on port 0 listens on.
pub(super) fn address(running: &mut Running) -> std::net::SocketAddr {
    let line = running.err.until("\"listening\"").last().unwrap();
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    line["address"].as_str().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_does_not_wait_for_the_drain() {
    let upstream = MockUpstream::start().await;
    upstream.enqueue(fault::stall_mid_stream());
    let shell = ready();
    shell.write("tollgate.toml", &GOOD.replace("http://127.0.0.1:9/v1", &upstream.base_url()));
    let mut running = shell.start(&["serve"]);
    let address = address(&mut running);
    let minted = ["mint-token", "--key", "issuer.pem", "--issuer", "https://issuer.test"];
    let token = shell.run(&[&minted[..], &["--capability", "model:reasoning"]].concat()).ok();
    let client = Client::new(address).with_token(token.trim_end());
    let response = client.post("/v1/chat/completions").json(&chat(true)).send().await;
    assert_eq!(response.status, 200);
    running.signal("TERM");
    running.err.until("\"draining\"");
    assert!(running.child.try_wait().unwrap().is_none(), "it waits for the stream");
    running.signal("INT");
    let ran = running.wait();
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("told to stop twice"), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_waits_for_an_issuers_keys_can_be_stopped_all_the_same() {
    // It accepts and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("jwks_url = \"http://{}/jwks.json\"", silent.local_addr().unwrap());
    let shell = ready();
    shell.write("tollgate.toml", &GOOD.replace("jwks_file = \"jwks.json\"", &url));
    let running = shell.start(&["serve"]);
    // Once its database is there, its signals have been listened to.
    let database = shell.path("data/tollgate.db");
    eventually(Duration::from_secs(10), async || database.exists()).await;
    let ran = running.stop();
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

/// The soft limit of open files that a process has now.
fn open_files(running: &Running) -> String {
    let path = format!("/proc/{}/limits", running.child.id());
    let limits = std::fs::read_to_string(path).expect("its limits");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("the line");
    line.split_whitespace().nth(3).expect("the soft limit").to_owned()
}

#[cfg(target_os = "linux")]
#[test]
fn it_may_open_as_many_files_as_its_hard_limit_says() {
    let shell = ready();
    let mut running = shell.start_limited("ulimit -Sn 256 && ulimit -Hn 1024", &["serve"]);
    let log = running.err.until("\"listening\"").join("\n");
    assert_eq!(open_files(&running), "1024");
    assert!(log.contains(r#""from":"256","to":"1024""#), "{log}");
    assert!(log.contains("more connections than files may be open"), "{log}");
    assert_eq!(running.stop().code, Some(0));
}

#[cfg(target_os = "linux")]
#[test]
fn a_limit_that_is_high_enough_is_not_spoken_of() {
    let shell = ready()
        .with_env("TOLLGATE__ADMISSION__MAX_CONNECTIONS", "500")
        .with_env("TOLLGATE__ADMISSION__MAX_IN_FLIGHT", "200");
    let mut running = shell.start_limited("ulimit -n 1024", &["serve"]);
    let log = running.err.until("\"listening\"").join("\n");
    assert_eq!(open_files(&running), "1024");
    assert!(!log.contains("files"), "{log}");
    assert_eq!(running.stop().code, Some(0));
}
