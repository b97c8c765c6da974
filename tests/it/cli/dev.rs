//! `dev`: what `make run` starts, and what it puts in front of a real server.

use std::fs;

use serde_json::json;

use super::{Shell, mode};
use crate::support::upstream::{Framing, MockUpstream, Script, openai};

const UPSTREAM_KEY: &str = "sk-upstream-0123456789abcdefghijklmnop";

#[tokio::test]
async fn it_prints_a_token_and_lines_that_work() {
    let shell = Shell::new();
    let dev = shell.dev(&[]);
    let text = dev.welcome.join("\n");
    let token = &dev.token().to_owned();
    assert_eq!(text.matches(token).count(), 4, "the token, and in each line to paste: {text}");
    for part in ["curl -N ", "/v1/chat/completions ", "/v1/streams ", "python3 -c ", "/docs"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let body = json!({ "model": "demo-fast", "stream": true,
        "messages": [{ "role": "user", "content": "Hello" }] });
    let call = dev.client(token).post("/v1/chat/completions").json(&body);
    let events = call.send().await.events().rest().await;
    assert_eq!(events.last().unwrap().text(), "[DONE]");
    let ran = dev.stop();
    assert!(!ran.err.contains(token), "the log has no token in it");
    assert!(!ran.err.contains("ERROR") && !ran.err.contains("WARN"), "{}", ran.err);
}

#[tokio::test]
async fn its_key_is_its_owners_alone_and_lasts() {
    let shell = Shell::new();
    let first = shell.dev(&["--data", "here/there"]);
    let token = first.token().to_owned();
    first.stop();
    let path = shell.path("here/there/dev-issuer.pem");
    let key = fs::read(&path).unwrap();
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(&shell.path("here/there/tollgate.db")), 0o600);
    let public = fs::read_to_string(shell.path("here/there/dev-issuer.jwks.json")).unwrap();
    assert!(!public.contains("\"d\""), "the public half alone: {public}");

    let second = shell.dev(&["--data", "here/there"]);
    assert_eq!(fs::read(&path).unwrap(), key, "the same key");
    let response = second.client(&token).get("/v1/models").send().await;
    assert_eq!(response.status, 200, "the first start's token is good at the second");
    second.stop();
    // Others may not read it: then it is nobody's secret any more.
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
    assert!(shell.run(&["dev", "--data", "here/there"]).fails(1).contains("chmod 600"));
}

#[test]
fn a_port_that_is_taken_is_named_with_its_option() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (shell, free) = (Shell::new(), "127.0.0.1:0");
    for (public, admin, option) in
        [(&*address, free, "--listen"), (free, &*address, "--admin-listen")]
    {
        let err = shell.run(&["dev", "--listen", public, "--admin-listen", admin]).fails(1);
        let message =
            format!("cannot listen on {address} ({option}): something listens there already");
        assert!(err.contains(&message), "{err}");
    }
}

/// A server that lists its models.
async fn upstream() -> MockUpstream {
    let upstream = MockUpstream::start().await;
    upstream.respond_with(|request| {
        if request.method == "GET" && request.path == "/v1/models" {
            let model = |id: &str| json!({ "id": id, "object": "model" });
            let list = json!({ "data": [model("org/a:8b"), model("b"), model("b")] }).to_string();
            return Script::body(200, "application/json", list).framing(Framing::ContentLength);
        }
        openai::answer(request)
    });
    upstream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_stands_in_front_of_a_real_server_whose_key_is_never_shown() {
    let upstream = upstream().await;
    let shell = Shell::new().with_env("TOLLGATE_UPSTREAM_KEY", UPSTREAM_KEY);
    let dev = shell.dev(&["--upstream", &upstream.base_url()]);
    let bearer = format!("Bearer {UPSTREAM_KEY}");
    assert_eq!(upstream.request().header("authorization"), Some(&*bearer));
    assert!(dev.welcome.join("\n").contains("\"org/a:8b\""), "the lines to paste name a model");

    let client = dev.client(dev.token());
    let models = client.get("/v1/models").send().await.json().await;
    let ids: Vec<_> = models["data"].as_array().unwrap().iter().map(|model| &model["id"]).collect();
    assert_eq!(ids, ["org/a:8b", "b"]);
    let body = json!({ "model": "org/a:8b", "messages": [{ "role": "user", "content": "Hi" }] });
    let response = client.post("/v1/chat/completions").json(&body).send().await;
    assert_eq!(response.status, 200);
    response.bytes().await;
    let call = upstream.requests().pop().unwrap();
    assert_eq!(call.json()["model"], "org/a:8b");
    assert_eq!(call.header("authorization"), Some(&*bearer));
    assert!(!call.contains(dev.token()), "the client's token stays here");

    let pid = dev.running.child.id();
    let args = fs::read(format!("/proc/{pid}/cmdline")).unwrap();
    assert!(!String::from_utf8_lossy(&args).contains(UPSTREAM_KEY));
    let ran = dev.stop();
    assert!(!format!("{ran:?}").contains(UPSTREAM_KEY), "{ran:?}");
    let data = fs::read_dir(shell.path("data")).unwrap();
    let files = data.chain(fs::read_dir(shell.path("data/spool")).unwrap());
    for file in files.map(|file| file.unwrap().path()).filter(|path| path.is_file()) {
        let bytes = fs::read(file).unwrap();
        assert!(memchr::memmem::find(&bytes, UPSTREAM_KEY.as_bytes()).is_none(), "it is on disk");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn models_that_are_named_need_no_list() {
    let upstream = MockUpstream::start().await;
    let shell = Shell::new().with_env("TOLLGATE_UPSTREAM_KEY", "");
    let url = upstream.base_url();
    let dev = shell.dev(&["--upstream", &url, "--model", "x", "--model", "y", "--model", "x"]);
    assert!(upstream.requests().is_empty(), "it was not asked");
    let models = dev.client(dev.token()).get("/v1/models").send().await.json().await;
    assert_eq!(models["data"].as_array().map(Vec::len), Some(2));
    let body = json!({ "model": "y", "messages": [] });
    let call = dev.client(dev.token()).post("/v1/chat/completions").json(&body);
    assert_eq!(call.send().await.status, 200);
    assert_eq!(upstream.request().header("authorization"), None, "an empty key is none");
    dev.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_lists_nothing_is_told_of_with_the_remedy() {
    let shell = Shell::new().with_env("TOLLGATE_UPSTREAM_KEY", UPSTREAM_KEY);
    let upstream = MockUpstream::start().await;
    let url = upstream.base_url();
    let cases = [
        (openai::unauthorized(UPSTREAM_KEY), "401"),
        (Script::body(200, "text/html", "<html>"), "does not list its models"),
        (Script::body(200, "application/json", r#"{"data":[]}"#), "lists no models"),
        (Script::raw("garbage"), "does not list its models"),
    ];
    for (script, part) in cases {
        let script = std::sync::Mutex::new(Some(script));
        upstream.respond_with(move |_| {
            let script = script.lock().unwrap().take();
            script.unwrap_or_else(|| openai::error(500, "x", None, "asked twice"))
        });
        let err = shell.run(&["dev", "--upstream", &url]).fails(1);
        assert!(
            err.contains(part) && err.contains(&url) && err.contains("--model"),
            "{part}: {err}"
        );
        assert!(!err.contains(UPSTREAM_KEY), "{err}");
    }
    let err = shell.run(&["dev", "--upstream", "http://127.0.0.1:1/v1"]).fails(1);
    assert!(err.contains("refused") && err.contains("--model"), "{err}");
    let err = shell.run(&["dev", "--upstream", "localhost:11434/v1"]).fails(1);
    assert!(err.contains("localhost:11434/v1"), "{err}");
    assert!(shell.run(&["dev", "--model", "x"]).fails(2).contains("--upstream"));
}
