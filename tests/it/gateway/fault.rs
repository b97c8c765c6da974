//! Streams that go wrong: what the client sees, what the audit says, and that nothing is left.

use std::time::Duration;

use crate::support::{
    app::{TestApp, chat},
    upstream::{Blackhole, Framing, MockUpstream, Script, Step, fault, openai},
};

use super::seen::{End, Seen, Stream, call_with, impatient, impatient_in_the_middle, streamed};

const TEXT: &str = "Grüße aus 東京";
const SETTLED: (&str, &str, i64, Option<&str>) = ("settle", "ok", 200, Some("provider"));

async fn stalled(script: Script) -> Seen {
    call_with(impatient, script, &chat(true)).await
}

/// The stream began, went on to `text`, and ended with an error of this code.
fn assert_broken(seen: &Seen, text: &str, code: &str, status: i64) {
    let stream = seen.stream();
    assert_eq!((stream.text().as_str(), &stream.end), (text, &End::Error(code.to_owned())));
    assert!(stream.finish_reasons().is_empty());
    assert_eq!(seen.row(), ("settle", code, status, Some("counted")));
    let counts = [("a", 1), ("Grüße", 3), ("Grüße aus ", 5)];
    let written = counts.iter().find(|(counted, _)| *counted == text).expect("a known text").1;
    assert_eq!(seen.terminal.output_tokens, Some(written));
}

fn assert_whole(seen: &Seen) {
    let stream = seen.stream();
    assert_eq!((stream.text().as_str(), &stream.end), (TEXT, &End::Done));
    assert_eq!(stream.finish_reasons(), [(0, "stop".to_owned())]);
    assert_eq!(seen.row(), SETTLED);
    assert_eq!(seen.terminal.finish_reason.as_deref(), Some("stop"));
}

#[tokio::test]
async fn wherever_an_answer_is_split_the_client_gets_the_same_bytes() {
    for script in [openai::text_stream(fault::PIECES), fault::crlf_lines(), fault::extra_lines()] {
        let app = TestApp::start().await;
        let mut outputs = Vec::new();
        for size in 1..=64 {
            app.upstream.enqueue(script.clone().split_every(size));
            let response = app.alice().post("/v1/chat/completions").json(&chat(true)).send().await;
            outputs.push(response.bytes().await);
        }
        let stream = Stream::parse(&outputs[0]);
        assert_eq!((stream.text().as_str(), stream.end), (TEXT, End::Done));
        outputs.dedup();
        assert_eq!(outputs.len(), 1, "{outputs:?}");
        app.shutdown().await;
    }
}

#[tokio::test]
async fn a_late_head_within_the_timeout_is_waited_for() {
    assert_whole(&streamed(fault::late_head(Duration::from_millis(50))).await);
}

#[tokio::test]
async fn pauses_within_the_timeout_are_waited_for() {
    let script = openai::text_stream(fault::PIECES).paced(Duration::from_millis(20));
    assert_whole(&streamed(script).await);
}

#[tokio::test]
async fn a_head_that_does_not_come_is_a_timeout() {
    let seen = stalled(fault::stall_before_head()).await;
    seen.assert_refused(504, "upstream_timeout", Some("estimate"));
}

#[tokio::test]
async fn a_first_event_that_does_not_come_is_a_timeout() {
    let seen = stalled(fault::stall_after_head()).await;
    seen.assert_refused(504, "upstream_timeout", Some("estimate"));
}

#[tokio::test]
async fn comments_are_no_first_token() {
    let comment = Step::Send(": processing\n\n".into());
    let pings = (0..50).flat_map(|_| [comment.clone(), Step::Delay(Duration::from_millis(15))]);
    let script = pings.fold(fault::stall_after_head().only(0), Script::then);
    let seen = stalled(script.then(Step::Stall)).await;
    seen.assert_refused(504, "upstream_timeout", Some("estimate"));
}

#[tokio::test]
async fn a_stall_in_mid_stream_ends_in_an_error_event() {
    let script = fault::stall_mid_stream();
    let seen = call_with(impatient_in_the_middle, script, &chat(true)).await;
    assert_broken(&seen, "Grüße aus ", "upstream_timeout", 504);
}

#[tokio::test]
async fn a_stream_cut_between_events_ends_in_an_error_event() {
    let seen = streamed(fault::cut_between_events()).await;
    assert_broken(&seen, "Grüße aus ", "upstream_lost", 502);
}

#[tokio::test]
async fn an_event_that_was_cut_is_not_passed_on() {
    for script in [fault::cut_mid_event(), fault::cut_mid_json(), fault::end_mid_json()] {
        assert_broken(&streamed(script).await, "Grüße aus ", "upstream_lost", 502);
    }
}

#[tokio::test]
async fn a_reset_in_mid_stream_ends_in_an_error_event() {
    let seen = streamed(fault::reset_mid_stream()).await;
    assert_broken(&seen, "Grüße aus ", "upstream_lost", 502);
}

#[tokio::test]
async fn broken_framing_in_mid_stream_ends_in_an_error_event() {
    let seen = streamed(fault::bad_chunk_framing()).await;
    assert_broken(&seen, "Grüße aus ", "upstream_lost", 502);
}

#[tokio::test]
async fn a_reset_before_the_head_is_a_lost_upstream() {
    let seen = streamed(fault::reset_before_head()).await;
    seen.assert_refused(502, "upstream_lost", Some("estimate"));
}

#[tokio::test]
async fn garbage_for_a_stream_is_refused() {
    streamed(fault::garbage()).await.assert_refused(502, "upstream_lost", Some("estimate"));
    streamed(fault::not_http()).await.assert_refused(502, "upstream_lost", Some("estimate"));
    let huge = fault::huge_header(1 << 20);
    streamed(huge).await.assert_refused(502, "upstream_lost", Some("estimate"));
}

#[tokio::test]
async fn a_long_header_does_no_harm() {
    assert_whole(&streamed(fault::huge_header(4_000)).await);
}

#[tokio::test]
async fn an_answer_that_is_no_event_stream_is_refused() {
    for script in [fault::wrong_content_type(), fault::json_for_a_stream(), fault::short_body()] {
        streamed(script).await.assert_refused(502, "upstream_invalid", Some("estimate"));
    }
}

#[tokio::test]
async fn a_content_type_is_read_without_regard_to_case() {
    let script = openai::text_stream(fault::PIECES).header("content-type", "Text/Event-Stream");
    assert_whole(&streamed(script).await);
}

#[tokio::test]
async fn malformed_events_end_in_an_error_event() {
    for script in [fault::malformed_json(), fault::not_a_chunk()] {
        assert_broken(&streamed(script).await, "Grüße", "upstream_invalid", 502);
    }
    let list = openai::event(r#"["x","m",1,[]]"#);
    let script = openai::text_stream(fault::PIECES).insert(2, Step::Send(list));
    assert_broken(&streamed(script).await, "Grüße", "upstream_invalid", 502);
}

#[tokio::test]
async fn an_event_without_bound_ends_in_an_error_event() {
    let huge = streamed(fault::huge_event(2 << 20)).await;
    assert_broken(&huge, "Grüße", "upstream_invalid", 502);
    let endless = streamed(fault::endless_line(2 << 20)).await;
    assert_broken(&endless, "Grüße", "upstream_invalid", 502);
}

#[tokio::test]
async fn a_big_event_within_the_bound_passes() {
    let seen = streamed(fault::huge_event(900_000)).await;
    let stream = seen.stream();
    assert_eq!((stream.text().len(), stream.end), (TEXT.len() + 900_000, End::Done));
}

#[tokio::test]
async fn a_stream_without_done_is_completed_if_its_choices_have_ended() {
    assert_whole(&streamed(fault::missing_done()).await);
    let closed = fault::missing_done().framing(Framing::UntilClose);
    assert_whole(&streamed(closed).await);
}

#[tokio::test]
async fn a_stream_without_done_is_broken_if_a_choice_has_not_ended() {
    let events = [openai::text_of(0, "a"), openai::text_of(1, "b"), openai::finish_of(1, "stop")];
    let seen = streamed(Script::events(events)).await;
    let stream = seen.stream();
    assert_eq!(stream.end, End::Error("upstream_lost".to_owned()));
    assert_eq!(stream.finish_reasons(), [(1, "stop".to_owned())]);
    assert_eq!(seen.row(), ("settle", "upstream_lost", 502, Some("counted")));
}

#[tokio::test]
async fn a_choice_without_a_finish_reason_is_given_one() {
    let seen = streamed(fault::missing_finish_reason()).await;
    let stream = seen.stream();
    assert_eq!((stream.text().as_str(), &stream.end), (TEXT, &End::Done));
    assert_eq!(stream.finish_reasons(), [(0, "stop".to_owned())]);
    let last = stream.chunks.last().unwrap();
    assert_eq!((&last["id"], &last["model"]), (&openai::ID.into(), &openai::MODEL.into()));
    assert_eq!(last["object"], "chat.completion.chunk");
    assert_eq!(last["created"], stream.chunks[0]["created"]);
    assert_eq!(seen.row(), ("settle", "ok", 200, Some("counted")));
}

#[tokio::test]
async fn every_unfinished_choice_is_given_the_finish_reason_that_fits_it() {
    let events = [
        openai::tool_call(0, "call_mock", "look"),
        openai::tool_arguments(0, "{}"),
        openai::text_of(1, "one"),
        openai::finish_of(1, "length"),
        openai::text_of(2, "two"),
        openai::done(),
    ];
    let stream = streamed(Script::events(events)).await.stream();
    let reasons = [(1, "length"), (0, "tool_calls"), (2, "stop")];
    assert_eq!(stream.finish_reasons(), reasons.map(|(index, reason)| (index, reason.to_owned())));
    assert_eq!(stream.end, End::Done);
}

#[tokio::test]
async fn a_done_without_its_blank_line_is_a_done() {
    for end in ["data: [DONE]", "data: [DONE]\n", "data:[DONE]\r\n", "data: [DONE] \n\n"] {
        let script = fault::missing_finish_reason();
        let script = script.only(4).then(Step::Send(end.into()));
        let stream = streamed(script).await.stream();
        assert_eq!((stream.text().as_str(), &stream.end), (TEXT, &End::Done), "{end:?}");
        assert_eq!(stream.finish_reasons().len(), 1);
    }
}

#[tokio::test]
async fn an_error_event_passes_through_and_nothing_follows_it() {
    let error = fault::error_event();
    let tail = error.sent();
    let tail = tail.slice(memchr::memmem::find(&tail, b"data: {\"error\"").unwrap()..);
    let went_on = error.clone().then(Step::Send(openai::text("more")));
    let at_once = Script::events([went_on.clone().then(Step::Send(openai::done())).sent()]);
    for script in [error, went_on.then(Step::Stall), at_once] {
        let seen = streamed(script).await;
        assert!(seen.body.ends_with(&tail), "{seen:?}");
        let stream = seen.stream();
        assert_eq!(stream.text(), "Grüße aus ");
        assert_eq!(stream.end, End::Error("overloaded".to_owned()));
        assert_eq!(seen.row(), ("settle", "upstream_error", 502, Some("counted")));
    }
}

#[tokio::test]
async fn an_error_event_with_usage_is_not_taken_for_a_count() {
    let error = r#"{"error":{"message":"m","type":"t","param":null,"code":"c"},"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}"#;
    let seen = streamed(Script::events([openai::text("a"), openai::event(error)])).await;
    assert_eq!(seen.stream().end, End::Error("c".to_owned()));
    assert_eq!(seen.row(), ("settle", "upstream_error", 502, Some("provider")));
}

#[tokio::test]
async fn an_event_named_error_is_one_whatever_its_shape() {
    let named = "event: error\ndata: {\"message\":\"overloaded\"}\n\n";
    let seen = streamed(Script::events([openai::text("a"), named.into()])).await;
    assert_broken(&seen, "a", "upstream_error", 502);
}

#[tokio::test]
async fn lines_beside_data_are_taken_out() {
    let seen = streamed(fault::extra_lines()).await;
    assert_whole(&seen);
    let text = std::str::from_utf8(&seen.body).unwrap();
    assert!(
        text.lines()
            .all(|line| line.is_empty() || line.starts_with("data: {") || line == "data: [DONE]")
    );
}

#[tokio::test]
async fn events_without_data_are_heartbeats() {
    let script = openai::text_stream(fault::PIECES).insert(2, Step::Send("data:\n\n".into()));
    assert_whole(&streamed(script.insert(1, Step::Send("data: \n\n".into()))).await);
}

#[tokio::test]
async fn line_ends_of_another_kind_make_no_difference() {
    assert_whole(&streamed(fault::crlf_lines()).await);
    let cr = String::from_utf8(openai::text_stream(fault::PIECES).sent().to_vec()).unwrap();
    assert_whole(&streamed(Script::events([cr.replace('\n', "\r")])).await);
}

#[tokio::test]
async fn members_of_types_that_we_do_not_expect_pass_through() {
    let odd = r#"{"id":7,"created":1.5,"model":null,"choices":[{"index":0,"delta":{"content":[{"type":"thinking"}],"tool_calls":{},"reasoning":{"a":1}},"finish_reason":null}],"usage":null}"#;
    let script = openai::text_stream(fault::PIECES).insert(2, Step::Send(openai::event(odd)));
    let seen = streamed(script).await;
    assert_whole(&seen);
    let passed = odd.replace(r#","usage":null"#, "");
    assert!(memchr::memmem::find(&seen.body, passed.as_bytes()).is_some(), "{seen:?}");
}

#[tokio::test]
async fn nobody_listening_is_an_unavailable_upstream() {
    let gone = MockUpstream::start().await;
    gone.stop_listening().await;
    let url = gone.base_url();
    let change = |config: &mut tollgate::config::Config| {
        config.providers[0].base_url = Some(url);
    };
    let seen = call_with(change, fault::garbage(), &chat(true)).await;
    seen.assert_refused(502, "upstream_unavailable", None);
}

#[tokio::test]
async fn a_connection_that_is_not_taken_is_an_unavailable_upstream() {
    let hole = Blackhole::start().await;
    let change = |config: &mut tollgate::config::Config| {
        impatient(config);
        config.providers[0].first_token_timeout_ms = 10_000;
        config.providers[0].base_url = Some(hole.base_url());
    };
    let seen = call_with(change, fault::garbage(), &chat(true)).await;
    seen.assert_refused(502, "upstream_unavailable", None);
}
