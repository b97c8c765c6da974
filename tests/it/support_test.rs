//! The tests' own tools: what they claim to show has to be so.

use std::{
    convert::Infallible,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use hyper::{Request, body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Notify,
};

use crate::support::{
    client::{Call, Client, RawConnection, eventually},
    event_stream::ServerSentEvent,
    upstream::{Blackhole, Framing, MockUpstream, Script, Step, fault, openai},
};

const PATH: &str = "/v1/chat/completions";
const SOON: Duration = Duration::from_millis(100);

fn streamed(upstream: &MockUpstream) -> Call {
    Client::new(upstream.address()).post(PATH).json(&json!({"model": "m", "stream": true}))
}

/// The answer's bytes, and why they ended early if they did.
async fn played(script: Script) -> (Vec<u8>, Option<String>) {
    let upstream = MockUpstream::start().await;
    upstream.enqueue(script);
    let mut events = streamed(&upstream).send().await.events();
    events.rest().await;
    assert_eq!(upstream.until(|counts| counts.open == 0).await.served, 1);
    (events.received.clone(), events.broken.clone())
}

/// The texts of a stream's events, put together.
async fn text_of(script: Script) -> String {
    let upstream = MockUpstream::start().await;
    upstream.enqueue(script);
    let events = streamed(&upstream).send().await.events().rest().await;
    let chunks = events.iter().filter(|event| event.text() != "[DONE]").map(ServerSentEvent::json);
    let texts = chunks.map(|chunk| {
        chunk["choices"][0]["delta"]["content"].as_str().unwrap_or_default().to_owned()
    });
    texts.collect()
}

#[tokio::test]
async fn an_unscripted_call_is_answered_as_it_asks() {
    let upstream = MockUpstream::start().await;
    let client = Client::new(upstream.address()).with_token("secret-token");
    let ask = async |body| client.post(PATH).json(&body).send().await;

    let whole = ask(json!({"model": "m"})).await.json().await;
    assert_eq!(whole["choices"][0]["message"]["content"], "Hello world");

    let plain = ask(json!({"model": "m", "stream": true})).await.text().await;
    assert!(plain.ends_with("data: [DONE]\n\n") && !plain.contains("prompt_tokens"), "{plain}");

    let options = json!({"include_usage": true});
    let counted = ask(json!({"model": "m", "stream": true, "stream_options": options})).await;
    assert!(counted.text().await.contains("prompt_tokens"));

    assert_eq!(client.get("/v1/models").send().await.status, 404);
    assert_eq!(client.delete(PATH).send().await.status, 404);
    let requests = upstream.requests();
    assert_eq!(requests.len(), 5);
    assert_eq!((requests[1].method.as_str(), requests[1].path.as_str()), ("POST", PATH));
    assert_eq!(requests[1].json()["stream"], true);
    assert_eq!(requests[1].header("authorization"), Some("Bearer secret-token"));
    assert!(requests[1].contains("secret-token") && !requests[1].contains("other"));
    assert!(requests[0].at <= requests[1].at);
}

#[tokio::test]
async fn scripts_are_played_in_order_and_then_the_chosen_answer() {
    let upstream = MockUpstream::start().await;
    upstream.respond_with(|request| openai::completion(request.header("x-who").unwrap_or("?")));
    upstream.enqueue(openai::rate_limited(7));
    upstream.enqueue(openai::server_error());
    let first = streamed(&upstream).send().await;
    assert_eq!((first.status.as_u16(), first.header("retry-after")), (429, Some("7")));
    assert_eq!(first.json().await["error"]["code"], "rate_limit_exceeded");
    assert_eq!(streamed(&upstream).send().await.status, 500);
    let third = streamed(&upstream).header("x-who", "third").send().await.json().await;
    assert_eq!(third["choices"][0]["message"]["content"], "third");
}

#[tokio::test]
async fn every_kind_of_error_answer_has_its_status_and_body() {
    for (script, status, said) in [
        (openai::unauthorized("sk-ab"), 401, "sk-ab"),
        (openai::bad_request(), 400, "context_length_exceeded"),
        (openai::unavailable_html(), 503, "<html>"),
        (fault::redirect("http://elsewhere.example/"), 302, "elsewhere"),
    ] {
        let upstream = MockUpstream::start().await;
        upstream.enqueue(script);
        let response = streamed(&upstream).send().await;
        assert_eq!(response.status.as_u16(), status);
        let text = response.text().await;
        assert!(text.contains(said), "{status}: {text}");
        assert_eq!(upstream.request().path, PATH);
    }
}

#[tokio::test]
async fn correct_streams_arrive_whole_however_they_are_cut() {
    let whole = fault::PIECES.concat();
    for script in [
        fault::split_every(1),
        fault::split_every(7),
        fault::crlf_lines(),
        fault::extra_lines(),
        fault::wrong_content_type(),
        fault::missing_done(),
        fault::missing_finish_reason(),
        fault::late_head(Duration::from_millis(1)),
        fault::huge_header(100_000),
        openai::text_stream_without_usage(fault::PIECES),
        openai::text_stream(fault::PIECES).paced(Duration::from_millis(1)),
        openai::text_stream(fault::PIECES).framing(Framing::UntilClose),
        openai::text_stream(fault::PIECES).framing(Framing::ContentLength),
    ] {
        let shown = format!("{script:?}");
        assert_eq!(text_of(script).await, whole, "{shown}");
    }
}

#[tokio::test]
async fn all_chunks_of_the_dialect_are_json_that_says_what_it_should() {
    let delta = |event: Bytes| {
        let text = String::from_utf8(event.to_vec()).unwrap();
        let data = text.strip_prefix("data: ").and_then(|text| text.strip_suffix("\n\n")).unwrap();
        serde_json::from_str::<serde_json::Value>(data).unwrap()
    };
    let choice = |event: Bytes| delta(event)["choices"][0].clone();
    assert_eq!(choice(openai::reasoning("hm"))["delta"]["reasoning"], "hm");
    assert_eq!(choice(openai::reasoning_content("hm"))["delta"]["reasoning_content"], "hm");
    assert_eq!(choice(openai::refusal("no"))["delta"]["refusal"], "no");
    let logprobs = choice(openai::text_with_logprobs("a"))["logprobs"].clone();
    assert_eq!(logprobs["content"][0]["token"], "a");
    assert_eq!(choice(openai::unknown_members())["x_score"], 0.300_000_000_000_000_04);
    assert_eq!(delta(openai::usage())["usage"]["prompt_tokens"], openai::INPUT_TOKENS);
    assert_eq!(delta(openai::role())["id"], openai::ID);
    assert_eq!(delta(openai::role())["model"], openai::MODEL);

    let (bytes, _) = played(openai::tool_call_stream("f", ["{\"a\"", ":1}"])).await;
    let text = String::from_utf8(bytes).unwrap();
    assert!(text.contains(r#""name":"f""#) && text.contains(r#""finish_reason":"tool_calls""#));
    let (bytes, _) = played(openai::two_choice_stream()).await;
    assert!(String::from_utf8(bytes).unwrap().contains(r#""index":1,"delta":{"content":"right"}"#));
}

#[tokio::test]
async fn streams_that_break_off_are_seen_to_break_after_their_last_byte() {
    for script in [
        fault::cut_between_events(),
        fault::cut_mid_event(),
        fault::cut_mid_json(),
        fault::reset_mid_stream(),
        fault::bad_chunk_framing(),
        fault::short_body(),
    ] {
        let (sent, shown) = (script.sent(), format!("{script:?}"));
        let (received, broken) = played(script).await;
        assert_eq!(Bytes::from(received), sent, "{shown}");
        assert!(broken.is_some(), "{shown}");
    }
}

#[tokio::test]
async fn bad_contents_in_good_framing_arrive_to_the_last_byte() {
    for script in [
        fault::garbage(),
        fault::malformed_json(),
        fault::not_a_chunk(),
        fault::error_event(),
        fault::json_for_a_stream(),
        fault::end_mid_json(),
        fault::huge_event(5 << 20),
    ] {
        let sent = script.sent();
        let (received, broken) = played(script).await;
        assert!(sent == received && broken.is_none(), "{} bytes: {broken:?}", received.len());
    }
}

#[tokio::test]
async fn a_connection_that_never_answers_properly_gives_no_head() {
    for script in [fault::reset_before_head(), fault::not_http()] {
        let upstream = MockUpstream::start().await;
        upstream.enqueue(script);
        assert!(streamed(&upstream).try_send().await.is_err());
        assert_eq!(upstream.until(|counts| counts.open == 0).await.aborted, 0);
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_is_counted_as_aborted_at_once() {
    for script in [
        fault::stall_after_head(),
        fault::stall_mid_stream(),
        fault::endless_line(1 << 20),
        openai::text_stream(["a", "b"]).paced(Duration::from_mins(1)),
    ] {
        let shown = format!("{script:?}").len();
        let upstream = MockUpstream::start().await;
        upstream.enqueue(script);
        let response = streamed(&upstream).send().await;
        assert_eq!(upstream.open(), 1, "script of {shown}");
        let hung_up = Instant::now();
        drop(response);
        let counts = upstream.until(|counts| counts.open == 0).await;
        assert_eq!((counts.aborted, counts.served), (1, 0));
        let noticed = counts.last_aborted_at.unwrap().duration_since(hung_up);
        assert!(noticed < SOON, "{noticed:?}");
    }
}

#[tokio::test]
async fn the_client_that_the_gateway_uses_stops_the_upstream_when_it_lets_go() {
    let upstream = MockUpstream::start().await;
    upstream.enqueue(fault::stall_mid_stream());
    let url = format!("{}/chat/completions", upstream.base_url());
    let mut response = reqwest::Client::new().post(url).body("{}").send().await.unwrap();
    assert!(response.chunk().await.unwrap().is_some());
    let hung_up = Instant::now();
    drop(response);
    let counts = upstream.until(|counts| counts.aborted == 1).await;
    assert!(counts.last_aborted_at.unwrap().duration_since(hung_up) < SOON);
}

#[tokio::test]
async fn a_client_that_hangs_up_before_the_head_is_counted_too() {
    let upstream = MockUpstream::start().await;
    upstream.enqueue(fault::stall_before_head());
    let call = tokio::spawn(streamed(&upstream).try_send());
    upstream.until(|counts| counts.open == 1).await;
    call.abort();
    upstream.until(|counts| counts.aborted == 1 && counts.open == 0).await;
}

#[tokio::test]
async fn a_client_that_stops_at_done_has_aborted_nothing() {
    let upstream = MockUpstream::start().await;
    let mut events = streamed(&upstream).send().await.events();
    while events.expect_event().await.text() != "[DONE]" {}
    drop(events);
    upstream.until(|counts| counts.open == 0).await;
    assert_eq!((upstream.served(), upstream.aborted()), (1, 0));
}

#[tokio::test]
async fn a_script_goes_on_when_the_test_says_so() {
    let upstream = MockUpstream::start().await;
    let go = Arc::new(Notify::new());
    upstream.enqueue(openai::text_stream(["a"]).insert(1, Step::WaitFor(Arc::clone(&go))));
    let mut events = streamed(&upstream).send().await.events();
    assert_eq!(events.expect_event().await.json()["choices"][0]["delta"]["role"], "assistant");
    assert_eq!(upstream.counts().open, 1);
    go.notify_one();
    assert_eq!(events.expect_event().await.json()["choices"][0]["delta"]["content"], "a");
}

#[tokio::test]
async fn one_connection_carries_several_requests() {
    let upstream = MockUpstream::start().await;
    let mut connection = RawConnection::open(upstream.address()).await;
    for expected in [b"Hello world".as_slice(), b"[DONE]\n\n\r\n0\r\n\r\n"] {
        let stream = expected.ends_with(b"0\r\n\r\n");
        let body = format!(r#"{{"stream":{stream}}}"#);
        let head = format!("POST {PATH} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
        let request = format!("{head}{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
        connection.send(request.as_bytes()).await.unwrap();
        connection.read_until(expected).await;
    }
    assert_eq!((upstream.counts().connections, upstream.counts().requests), (1, 2));
}

#[tokio::test]
async fn an_upstream_that_stops_listening_refuses_and_closes_what_is_idle() {
    let upstream = MockUpstream::start().await;
    upstream.enqueue(fault::stall_after_head());
    let busy = streamed(&upstream).send().await;
    let mut idle = RawConnection::open(upstream.address()).await;
    upstream.until(|counts| counts.connections == 2).await;
    upstream.stop_listening().await;
    assert!(idle.read_to_close(Duration::from_secs(5)).await.is_empty());
    assert!(TcpStream::connect(upstream.address()).await.is_err());
    assert_eq!(upstream.open(), 1, "the answer under way goes on");
    drop(busy);
    eventually(Duration::from_secs(5), async || upstream.aborted() == 1).await;
}

#[tokio::test]
async fn a_blackhole_neither_takes_nor_refuses() {
    let blackhole = Blackhole::start().await;
    let url = blackhole.base_url();
    let address = url.trim_start_matches("http://").trim_end_matches("/v1").to_owned();
    assert!(tokio::time::timeout(SOON, TcpStream::connect(address)).await.is_err());
}

#[tokio::test]
async fn the_client_speaks_http2_without_an_upgrade() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let answer = service_fn(async |request: Request<Incoming>| {
            let seen =
                format!("{:?} {:?}", request.version(), request.headers().get("authorization"));
            Ok::<_, Infallible>(hyper::Response::new(seen))
        });
        http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), answer)
            .await
    });
    let client = Client::new(address).http2().with_token("a");
    let call = client.get("/").header("x-a", "1").without_header("authorization");
    assert_eq!(call.send().await.text().await, "HTTP/2.0 None");
    server.abort();
}
