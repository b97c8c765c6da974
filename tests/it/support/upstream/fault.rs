//! Answers that go wrong, one way each.

use std::time::Duration;

use bytes::Bytes;

use super::{Framing, Script, Step, openai};

/// The text of every answer here that gets to have one: two characters of more than one byte.
pub const PIECES: [&str; 3] = ["Grüße", " aus ", "東京"];

fn whole() -> Script {
    openai::text_stream(PIECES)
}

/// After the role and the first two pieces of text, one step of another kind.
fn after_two_pieces(step: Step) -> Script {
    whole().only(3).then(step)
}

/// Correct, and cut into chunks of this many bytes: no event, line end or character is safe.
pub fn split_every(bytes: usize) -> Script {
    whole().split_every(bytes)
}

/// Correct, after a pause before the status line.
pub fn late_head(pause: Duration) -> Script {
    whole().before_head(Step::Delay(pause))
}

/// The connection is taken, the request read, and nothing is answered.
pub fn stall_before_head() -> Script {
    whole().before_head(Step::Stall)
}

/// The head comes and no event does.
pub fn stall_after_head() -> Script {
    whole().only(0).then(Step::Stall)
}

pub fn stall_mid_stream() -> Script {
    after_two_pieces(Step::Stall)
}

/// The connection ends between two events.
pub fn cut_between_events() -> Script {
    after_two_pieces(Step::Close)
}

/// The connection ends after an event's JSON, before its blank line.
pub fn cut_mid_event() -> Script {
    let before = after_two_pieces(Step::Close).sent().len();
    let third = openai::text(PIECES[2]).len();
    whole().cut_at(before + third - 1, Step::Close)
}

/// The connection ends in the middle of an event's JSON.
pub fn cut_mid_json() -> Script {
    let before = after_two_pieces(Step::Close).sent().len();
    whole().cut_at(before + 40, Step::Close)
}

/// As [`cut_mid_json`], and the framing says that all is well.
pub fn end_mid_json() -> Script {
    let mut script = cut_mid_json();
    script.steps.pop();
    script
}

pub fn reset_mid_stream() -> Script {
    after_two_pieces(Step::Reset)
}

pub fn reset_before_head() -> Script {
    whole().before_head(Step::Reset)
}

/// A whole answer of less than the length that its head claims.
pub fn short_body() -> Script {
    let script = openai::completion("short");
    let length = script.sent().len();
    script.framing(Framing::Claimed(length + 100))
}

/// Bytes that are no event stream, under the right content type, in a whole body.
pub fn garbage() -> Script {
    Script::events([Bytes::from_static(
        b"\x00\xFF\xFE\x80 garbage \x01\n\x02: \xC3\x28\n\n\x1F\x8B",
    )])
}

/// Bytes that are no HTTP.
pub fn not_http() -> Script {
    Script::raw(&b"SSH-2.0-OpenSSH_9.9\r\n\x00\x01"[..])
}

/// A chunk header that is none, in mid-stream.
pub fn bad_chunk_framing() -> Script {
    after_two_pieces(Step::Raw(Bytes::from_static(b"zz\r\nwhat\r\n"))).then(Step::Close)
}

/// An event whose data is no JSON, among correct ones.
pub fn malformed_json() -> Script {
    whole().insert(2, Step::Send(openai::event(r#"{"id":"x","choices":[{"#)))
}

/// An event whose data is JSON, and no chunk.
pub fn not_a_chunk() -> Script {
    whole().insert(2, Step::Send(openai::event(r#"["surprise",null,1e999]"#)))
}

/// An event of this many bytes, of one line and correct but for that.
pub fn huge_event(bytes: usize) -> Script {
    whole().insert(2, Step::Send(openai::text(&"x".repeat(bytes))))
}

/// A line of this many bytes that never ends in an event.
pub fn endless_line(bytes: usize) -> Script {
    let line = [b"data: ".as_slice(), &vec![b'x'; bytes]].concat();
    whole().only(2).then(Step::Send(Bytes::from(line))).then(Step::Stall)
}

/// All is there but the last `[DONE]`.
pub fn missing_done() -> Script {
    let whole = whole();
    let steps = whole.steps.len();
    whole.only(steps - 1)
}

/// The text, then `[DONE]`: no finish reason and no usage.
pub fn missing_finish_reason() -> Script {
    whole().only(1 + PIECES.len()).then(Step::Send(openai::done()))
}

/// The provider says in mid-stream that it failed, under status 200.
pub fn error_event() -> Script {
    let error = r#"{"error":{"message":"The server is overloaded.","type":"server_error","param":null,"code":"overloaded"}}"#;
    after_two_pieces(Step::Send(openai::event(error)))
}

/// An event stream that says it is a web page.
pub fn wrong_content_type() -> Script {
    whole().header("content-type", "text/html")
}

/// JSON where a stream was asked for.
pub fn json_for_a_stream() -> Script {
    openai::completion("not streamed")
}

/// All that an event stream may hold beside `data:`, around correct events.
pub fn extra_lines() -> Script {
    let named = |event: &Bytes| [b"event: message\nid: 7\n", event.as_ref()].concat();
    let pieces = PIECES.map(|piece| named(&openai::text(piece)).into());
    let noise = ": ping\n\nretry: 10\n\nid: 8\n\n:\n\nevent: ping\ndata: {}\n\n";
    let events = [Bytes::from_static(noise.as_bytes()), openai::role()].into_iter();
    openai::stream(events.chain(pieces).chain([openai::finish("stop")]))
}

/// The same events with CRLF for LF, as some servers write.
pub fn crlf_lines() -> Script {
    let text = String::from_utf8(whole().sent().to_vec()).expect("it is UTF-8");
    Script::events([text.replace('\n', "\r\n")])
}

/// A header of this many bytes.
pub fn huge_header(bytes: usize) -> Script {
    whole().header("x-huge", &"x".repeat(bytes))
}

/// It must not be followed: the request carries the provider's key.
pub fn redirect(location: &str) -> Script {
    Script::body(302, "text/plain", "elsewhere").header("location", location)
}
