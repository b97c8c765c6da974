//! Answers that are not streamed, and those of a status that is no success.

use std::time::Duration;

use crate::support::{
    app::{TestApp, chat},
    upstream::{Framing, MockUpstream, Script, Step, fault, openai},
};

use super::seen::{PATH, Seen, call_with, impatient, read, streamed, whole};

async fn stalled(script: Script) -> Seen {
    call_with(impatient, script, &chat(false)).await
}

#[tokio::test]
async fn a_whole_answer_passes_byte_for_byte() {
    let script = openai::completion("Grüße \u{1F600} \"quoted\"");
    let sent = script.sent();
    for script in [script.clone(), script.split_every(1).framing(Framing::Chunked)] {
        let seen = whole(script).await;
        assert_eq!((seen.status, &seen.body), (200, &sent));
        assert_eq!(seen.headers["content-type"], "application/json");
        assert!(!seen.headers.contains_key("x-tollgate-source"));
        assert_eq!(seen.row(), ("settle", "ok", 200, Some("provider")));
        let row = &seen.terminal;
        assert_eq!((row.input_tokens, row.output_tokens), (Some(9), Some(2)));
        assert_eq!((row.cached_input_tokens, row.reasoning_tokens), (Some(4), Some(1)));
        assert_eq!(row.cost_micro_usd, Some(9 + 2 * 2));
        assert_eq!(row.finish_reason.as_deref(), Some("stop"));
    }
}

#[tokio::test]
async fn a_whole_answer_without_usage_is_estimated() {
    let seen = whole(Script::body(200, "application/json", r#"{"choices":[]}"#)).await;
    assert_eq!(seen.row(), ("settle", "ok", 200, Some("estimate")));
}

#[tokio::test]
async fn a_whole_answer_of_odd_types_passes() {
    let body = r#"{"id":7,"model":[],"choices":{"a":1},"usage":{"prompt_tokens":null,"completion_tokens":3.0},"x":1e400}"#;
    let seen = whole(Script::body(200, "application/json", body)).await;
    assert_eq!((seen.status, &*seen.body), (200, body.as_bytes()));
    assert_eq!(seen.row().1, "ok");
}

#[tokio::test]
async fn a_refusal_by_the_provider_keeps_its_status_and_body() {
    let statuses = [400, 401, 402, 403, 404, 408, 409, 413, 415, 422, 429, 451, 500, 501, 503, 529];
    for status in statuses {
        for stream in [false, true] {
            let script = openai::error(status, "some_error", Some("some_code"), "It says no.");
            let sent = script.sent();
            let seen = call_with(|_| {}, script, &chat(stream)).await;
            assert_eq!((seen.status, &seen.body), (status, &sent));
            assert_eq!(seen.error(), ("some_code".to_owned(), "upstream"));
            assert_eq!(seen.row(), ("settle", "upstream_error", i64::from(status), None));
        }
    }
}

#[tokio::test]
async fn a_page_from_the_providers_load_balancer_passes_as_it_is() {
    let script = openai::unavailable_html();
    let sent = script.sent();
    for seen in [whole(script.clone()).await, streamed(script).await] {
        assert_eq!((seen.status, &seen.body), (503, &sent));
        assert_eq!(seen.headers["content-type"], "text/html");
        assert_eq!(seen.headers["x-tollgate-source"], "upstream");
    }
}

#[tokio::test]
async fn what_a_provider_says_of_retries_passes_and_its_other_headers_do_not() {
    let script = openai::rate_limited(7)
        .header("retry-after-ms", "6500")
        .header("x-should-retry", "false")
        .header("set-cookie", "session=1")
        .header("server", "nginx");
    let seen = whole(script).await;
    assert_eq!(seen.status, 429);
    assert_eq!(seen.headers["retry-after"], "7");
    assert_eq!(seen.headers["retry-after-ms"], "6500");
    assert_eq!(seen.headers["x-should-retry"], "false");
    assert!(!seen.headers.contains_key("set-cookie") && !seen.headers.contains_key("server"));
    assert_ne!(seen.headers["x-request-id"], "req_mock");
    // Ours: how the caller stands with us, not how we stand with the provider.
    assert_ne!(seen.headers["x-ratelimit-remaining-requests"], "0");
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let elsewhere = MockUpstream::start().await;
    for stream in [false, true] {
        let script = fault::redirect(&format!("{}/chat/completions", elsewhere.base_url()));
        let seen = call_with(|_| {}, script, &chat(stream)).await;
        seen.assert_refused(502, "upstream_invalid", Some("estimate"));
        assert!(!seen.headers.contains_key("location"));
    }
    assert_eq!(elsewhere.counts().connections, 0);
}

#[tokio::test]
async fn a_whole_answer_that_breaks_off_is_a_lost_upstream() {
    let cut = openai::completion("x").cut_at(30, Step::Close);
    let cut = cut.framing(Framing::Claimed(400));
    let reset = openai::completion("x").cut_at(30, Step::Reset).framing(Framing::Claimed(400));
    let bad =
        openai::completion("x").framing(Framing::Chunked).insert(0, Step::Raw("zz\r\n".into()));
    let scripts =
        [fault::short_body(), cut, reset, bad, fault::reset_before_head(), fault::not_http()];
    for script in scripts {
        whole(script).await.assert_refused(502, "upstream_lost", Some("estimate"));
    }
}

#[tokio::test]
async fn a_whole_answer_that_is_no_json_is_refused() {
    let page = Script::body(200, "application/json", "<html></html>");
    let empty = Script::body(200, "application/json", "");
    let half = Script::body(200, "application/json", r#"{"choices":["#);
    for script in [page, empty, half, openai::text_stream(["a"]), fault::garbage()] {
        whole(script).await.assert_refused(502, "upstream_invalid", Some("estimate"));
    }
}

#[tokio::test]
async fn a_whole_answer_has_a_bound() {
    let script = Script::body(200, "application/json", format!("\"{}\"", "x".repeat(33 << 20)));
    whole(script).await.assert_refused(502, "upstream_invalid", Some("estimate"));
}

#[tokio::test]
async fn a_whole_answer_that_stalls_is_a_timeout() {
    let body_stalls =
        openai::completion("x").cut_at(30, Step::Stall).framing(Framing::Claimed(400));
    for script in [fault::stall_before_head(), body_stalls] {
        stalled(script).await.assert_refused(504, "upstream_timeout", Some("estimate"));
    }
    // A refusal's body may stall too.
    let refusal = openai::server_error().cut_at(9, Step::Stall).framing(Framing::Claimed(400));
    stalled(refusal).await.assert_refused(504, "upstream_timeout", Some("estimate"));
}

/// `first_token_timeout_ms` is for the head where the answer is not streamed.
#[tokio::test]
async fn a_whole_answer_may_take_longer_than_its_head() {
    let pause = Duration::from_millis(250);
    let script = openai::completion("slow").framing(Framing::Chunked).split_every(80);
    let sent = script.sent();
    let pieces = sent.chunks(80).map(|piece| Step::Send(sent.slice_ref(piece)));
    let mut script = script.only(0);
    for piece in pieces {
        script = script.then(piece).then(Step::Delay(pause));
    }
    let change = |config: &mut tollgate::config::Config| {
        config.providers[0].first_token_timeout_ms = 800;
    };
    let seen = call_with(change, script, &chat(false)).await;
    assert_eq!((seen.status, &seen.body), (200, &sent));
    assert!(seen.terminal.latency_micros > Some(800_000), "{:?}", seen.terminal);
}

#[tokio::test]
async fn a_provider_that_comes_back_is_used_again() {
    let app = TestApp::start().await;
    for (script, status) in [
        (fault::reset_before_head(), 502),
        (fault::garbage(), 502),
        (openai::server_error(), 500),
        (openai::completion("well"), 200),
    ] {
        app.upstream.enqueue(script);
        assert_eq!(read(app.alice().post(PATH).json(&chat(false))).await.status, status);
    }
    assert_eq!(app.audit_rows_once(8).await.len(), 8);
    app.shutdown().await;
}

#[tokio::test]
async fn connections_to_the_provider_are_used_again() {
    let app = TestApp::start().await;
    for stream in [true, false, true, true] {
        assert_eq!(read(app.alice().post(PATH).json(&chat(stream))).await.status, 200);
    }
    assert_eq!(app.upstream.counts().connections, 1);
    app.shutdown().await;
}
