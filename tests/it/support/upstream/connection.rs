//! One connection: requests in, scripts played, the client watched all the while.

use std::{io, pin::pin, sync::Arc, time::Instant};

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
};

use super::{Framing, Recorded, Script, State, Step, request};

/// How a script ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The framing is complete: another request may follow.
    Complete,
    /// The server ended the connection.
    Closed,
    /// The client did.
    Aborted,
}

pub async fn serve(mut stream: TcpStream, state: Arc<State>) {
    // A provider's events are not to wait for each other's acknowledgement.
    stream.set_nodelay(true).expect("the socket is open");
    let (mut reading, mut writing) = stream.split();
    let mut buffer = BytesMut::new();
    loop {
        let Some(request) = next_request(&mut reading, &mut buffer, &state).await else { return };
        let keep_alive = !request.wants_close();
        let script = state.answer(request);
        let end = {
            let playing = pin!(play(&script, &mut writing));
            let hang_up = pin!(hang_up(&mut reading, &mut buffer));
            tokio::select! {
                // A client that closes after the last byte has aborted nothing.
                biased;
                played = playing => played.unwrap_or(End::Aborted),
                () = hang_up => End::Aborted,
            }
        };
        state.counts.send_modify(|counts| {
            counts.open -= 1;
            if end == End::Aborted {
                counts.aborted += 1;
                counts.last_aborted_at = Some(Instant::now());
            } else {
                counts.served += 1;
            }
        });
        if end != End::Complete || !keep_alive {
            return;
        }
    }
}

/// `None` when there is nothing more to do on this connection.
async fn next_request(
    reading: &mut ReadHalf<'_>,
    buffer: &mut BytesMut,
    state: &State,
) -> Option<Recorded> {
    let mut listening = state.listening.subscribe();
    let stopped = listening.wait_for(|listening| !listening);
    tokio::select! {
        biased;
        // A client that goes away, or writes nonsense, has made no request.
        read = request::read(reading, buffer) => read.ok().flatten(),
        _ = stopped => None,
    }
}

/// Comes back when the client closes or resets. What it sends until then is kept.
async fn hang_up(reading: &mut ReadHalf<'_>, buffer: &mut BytesMut) {
    while matches!(reading.read_buf(buffer).await, Ok(1..)) {}
}

async fn play(script: &Script, out: &mut WriteHalf<'_>) -> io::Result<End> {
    for step in &script.before_head {
        if let Some(end) = step_out(step, &Framing::UntilClose, out).await? {
            return Ok(end);
        }
    }
    if script.has_head {
        out.write_all(&head(script)).await?;
    }
    let terminator: &[u8] = if script.framing == Framing::Chunked { b"0\r\n\r\n" } else { b"" };
    let (last, steps) = match script.steps.split_last() {
        // One write for the last piece and the body's end: a client that stops reading at
        // `[DONE]` has then been sent everything, and counts as served.
        Some((Step::Send(bytes), steps)) => {
            ([&framed(bytes, script.framing), terminator].concat(), steps)
        }
        _ => (terminator.to_vec(), script.steps.as_slice()),
    };
    for step in steps {
        if let Some(end) = step_out(step, &script.framing, out).await? {
            return Ok(end);
        }
    }
    out.write_all(&last).await?;
    Ok(match script.framing {
        Framing::Chunked | Framing::ContentLength => End::Complete,
        Framing::Claimed(_) | Framing::UntilClose => End::Closed,
    })
}

/// Does one step; `Some` if it ends the script.
async fn step_out(
    step: &Step,
    framing: &Framing,
    out: &mut WriteHalf<'_>,
) -> io::Result<Option<End>> {
    match step {
        Step::Send(bytes) => out.write_all(&framed(bytes, *framing)).await?,
        Step::SendSplit { bytes, cuts } => {
            let ends = cuts.iter().copied().chain([bytes.len()]);
            let mut start = 0;
            for end in ends {
                out.write_all(&framed(&bytes[start..end], *framing)).await?;
                tokio::task::yield_now().await;
                start = end;
            }
        }
        Step::Raw(bytes) => out.write_all(bytes).await?,
        // Not a test waiting for something to happen: the delay is what the test is about.
        Step::Delay(pause) => tokio::time::sleep(*pause).await,
        Step::Stall => std::future::pending().await,
        Step::WaitFor(signal) => signal.notified().await,
        Step::Close => return Ok(Some(End::Closed)),
        Step::Reset => {
            out.as_ref().set_zero_linger()?;
            return Ok(Some(End::Closed));
        }
    }
    Ok(None)
}

fn framed(bytes: &[u8], framing: Framing) -> Vec<u8> {
    match framing {
        // An empty chunk would be the last one.
        Framing::Chunked if !bytes.is_empty() => {
            let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
            chunk.extend_from_slice(bytes);
            chunk.extend_from_slice(b"\r\n");
            chunk
        }
        _ => bytes.to_vec(),
    }
}

fn head(script: &Script) -> Bytes {
    let reason = StatusCode::from_u16(script.status).ok().and_then(|it| it.canonical_reason());
    let mut head = String::new();
    let mut line = |line: String| head.push_str(&line);
    line(format!("HTTP/1.1 {} {}\r\n", script.status, reason.unwrap_or_default()));
    for (name, value) in &script.headers {
        line(format!("{name}: {value}\r\n"));
    }
    match script.framing {
        Framing::Chunked => line("transfer-encoding: chunked\r\n\r\n".to_owned()),
        Framing::ContentLength => {
            line(format!("content-length: {}\r\n\r\n", script.sent().len()));
        }
        Framing::Claimed(length) => line(format!("content-length: {length}\r\n\r\n")),
        Framing::UntilClose => line("connection: close\r\n\r\n".to_owned()),
    }
    Bytes::from(head)
}
