//! A model's routes are tried in order, until something has gone to the client.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tollgate::config::{Config, RouteConfig};

use crate::support::{
    app::{PROVIDER_KEY, TestApp, chat},
    upstream::{Blackhole, MockUpstream, Script, Step, fault, openai},
};

use super::seen::{End, PATH, Seen, impatient_in_the_middle, read};

const BACKUP_KEY: &str = "sk-backup-zyxwvutsrqponmlkjihg";

/// A second provider for the model `m`, after the first.
fn add_backup(config: &mut Config, base_url: String) {
    let mut provider = config.providers[0].clone();
    provider.name = "backup".to_owned();
    provider.base_url = Some(base_url);
    provider.api_key = Some(BACKUP_KEY.to_owned().into());
    config.providers.push(provider);
    let route = RouteConfig { provider: "backup".to_owned(), model: "backup-m".to_owned() };
    config.models[0].routes.push(route);
}

struct Both {
    seen: Seen,
    /// How many requests each provider had.
    asked: (usize, usize),
}

/// A call whose first provider answers with `first`; the second one answers well.
async fn call_with(change: impl FnOnce(&mut Config), first: Script, stream: bool) -> Both {
    let backup = MockUpstream::start().await;
    let app = TestApp::with(|config| {
        add_backup(config, backup.base_url());
        change(config);
    })
    .await;
    app.upstream.enqueue(first);
    let answer = read(app.alice().post(PATH).json(&chat(stream))).await;
    let seen = answer.recorded(&app).await;
    for request in app.upstream.requests() {
        assert_eq!(request.header("authorization"), Some(&*format!("Bearer {PROVIDER_KEY}")));
        assert_eq!(request.json()["model"], "upstream-m");
        assert!(!request.contains(BACKUP_KEY));
    }
    for request in backup.requests() {
        assert_eq!(request.header("authorization"), Some(&*format!("Bearer {BACKUP_KEY}")));
        assert_eq!(request.json()["model"], "backup-m");
        assert!(!request.contains(PROVIDER_KEY));
    }
    let asked = (app.upstream.requests().len(), backup.requests().len());
    app.shutdown().await;
    backup.until(|counts| counts.open == 0).await;
    Both { seen, asked }
}

/// The second provider answered, and there is no sign of the first.
fn assert_second_answered(both: &Both, stream: bool) {
    let Both { seen, asked: (_, second) } = both;
    assert_eq!((seen.status, *second), (200, 1), "{seen:?}");
    if stream {
        let stream = seen.stream();
        assert_eq!((stream.text().as_str(), stream.end), ("Hello world", End::Done));
    } else {
        assert_eq!(seen.body, openai::completion("Hello world").sent());
    }
    assert!(!seen.headers.contains_key("x-tollgate-source"));
    assert!(!seen.headers.contains_key("retry-after"));
    assert_eq!(seen.row(), ("settle", "ok", 200, Some("provider")));
    assert_eq!(seen.terminal.provider.as_deref(), Some("backup"));
    assert_eq!(seen.terminal.provider_model.as_deref(), Some("backup-m"));
}

#[tokio::test]
async fn a_provider_that_refuses_service_is_replaced_by_the_next() {
    for stream in [false, true] {
        for script in [
            openai::server_error(),
            openai::unavailable_html(),
            openai::rate_limited(9),
            openai::unauthorized("sk-prov***ghij"),
            openai::error(402, "billing", None, "Out of credit."),
            openai::error(404, "not_found", None, "No such model."),
        ] {
            let both = call_with(|_| {}, script, stream).await;
            assert_eq!(both.asked, (1, 1));
            assert_second_answered(&both, stream);
        }
    }
}

#[tokio::test]
async fn a_provider_that_does_not_make_sense_is_replaced_by_the_next() {
    for stream in [false, true] {
        for script in [
            fault::reset_before_head(),
            fault::not_http(),
            fault::garbage(),
            fault::redirect("/v2"),
            Script::body(200, "text/html", "<html>"),
        ] {
            assert_second_answered(&call_with(|_| {}, script, stream).await, stream);
        }
    }
}

#[tokio::test]
async fn a_provider_that_does_not_answer_in_time_is_replaced_by_the_next() {
    for (script, stream) in [
        (fault::stall_before_head(), false),
        (fault::stall_before_head(), true),
        (fault::stall_after_head(), true),
    ] {
        let change = |config: &mut Config| {
            config.providers[0].first_token_timeout_ms = 100;
            config.providers[0].answer_timeout_ms = 100;
            config.providers[0].idle_timeout_ms = 100;
        };
        assert_second_answered(&call_with(change, script, stream).await, stream);
    }
}

#[tokio::test]
async fn a_provider_that_cannot_be_reached_is_replaced_by_the_next() {
    let gone = MockUpstream::start().await;
    gone.stop_listening().await;
    let hole = Blackhole::start().await;
    for url in [gone.base_url(), hole.base_url()] {
        let change = |config: &mut Config| {
            config.providers[0].connect_timeout_ms = 100;
            config.providers[0].base_url = Some(url);
        };
        let both = call_with(change, openai::server_error(), true).await;
        assert_eq!(both.asked, (0, 1));
        assert_second_answered(&both, true);
    }
}

#[tokio::test]
async fn a_request_that_is_at_fault_itself_is_not_tried_again() {
    for script in [
        openai::bad_request(),
        openai::error(413, "invalid_request_error", None, "Too large."),
        openai::error(422, "invalid_request_error", None, "No."),
    ] {
        let sent = script.sent();
        let both = call_with(|_| {}, script, true).await;
        assert_eq!(both.asked, (1, 0));
        assert_eq!(both.seen.body, sent);
        assert_eq!(both.seen.terminal.provider.as_deref(), Some("mock"));
        assert_eq!(both.seen.row().1, "upstream_error");
    }
}

#[tokio::test]
async fn nothing_is_tried_again_once_the_client_has_a_frame() {
    let one = || openai::text_stream(["a"]).only(2);
    for (script, code) in [
        (one().then(Step::Close), "upstream_lost"),
        (one().then(Step::Reset), "upstream_lost"),
        (one().then(Step::Stall), "upstream_timeout"),
        (one().then(Step::Send("data: {\n\n".into())), "upstream_invalid"),
    ] {
        let both = call_with(impatient_in_the_middle, script, true).await;
        assert_eq!(both.asked, (1, 0));
        assert_eq!(both.seen.stream().end, End::Error(code.to_owned()));
        assert_eq!(both.seen.terminal.provider.as_deref(), Some("mock"));
    }
}

#[tokio::test]
async fn the_last_providers_refusal_is_the_answer() {
    let backup = MockUpstream::start().await;
    let app = TestApp::with(|config| add_backup(config, backup.base_url())).await;
    app.upstream.enqueue(openai::rate_limited(60));
    backup.enqueue(openai::unavailable_html());
    let answer = read(app.alice().post(PATH).json(&chat(true))).await;
    assert_eq!(answer.status, 503);
    assert!(!answer.headers.contains_key("retry-after"));
    let seen = answer.recorded(&app).await;
    assert_eq!(seen.row(), ("settle", "upstream_error", 503, None));
    assert_eq!(seen.terminal.provider.as_deref(), Some("backup"));
    app.shutdown().await;
}

/// What the first provider was sent may have been spent, whatever came of the second.
#[tokio::test]
async fn a_call_that_left_is_charged_though_the_last_provider_was_not_reached() {
    let gone = MockUpstream::start().await;
    gone.stop_listening().await;
    let app = TestApp::with(|config| add_backup(config, gone.base_url())).await;
    app.upstream.enqueue(fault::reset_before_head());
    let answer = read(app.alice().post(PATH).json(&chat(true))).await;
    let seen = answer.recorded(&app).await;
    seen.assert_refused(502, "upstream_unavailable", Some("estimate"));
    app.shutdown().await;
}

#[tokio::test]
async fn hanging_up_ends_the_trying() {
    let backup = MockUpstream::start().await;
    let app = TestApp::with(|config| add_backup(config, backup.base_url())).await;
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    app.upstream.respond_with(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
        fault::stall_before_head()
    });
    let call = app.alice().post(PATH).json(&chat(true));
    let calling = tokio::spawn(call.try_send());
    app.upstream.until(|counts| counts.requests == 1).await;
    calling.abort();
    app.upstream.until(|counts| counts.aborted == 1).await;
    let (_, terminal) = app.the_call().await;
    assert_eq!(terminal.kind, "canceled");
    assert_eq!((asked.load(Ordering::Relaxed), backup.requests().len()), (1, 0));
    app.shutdown().await;
}
