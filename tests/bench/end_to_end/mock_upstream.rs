//! A provider that costs as little as one can: every byte of its answers is made once.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Either, Full};
use hyper::{
    body::{Body, Frame, Incoming},
    service::service_fn,
};
use serde::Deserialize;
use tokio::time::{Instant, Interval, interval_at};

use super::{
    Outcome, listener,
    payload::{ANSWER, Answer, PACE_MS, PATH},
};

pub fn run() -> Outcome<()> {
    let answers = Arc::new(Answers::new());
    let service = service_fn(move |request| {
        let answers = Arc::clone(&answers);
        async move { Ok::<_, Infallible>(answer(request, &answers).await) }
    });
    tokio::runtime::Runtime::new()?.block_on(listener::serve(service))
}

type Answered = Response<Either<Full<Bytes>, Events>>;

async fn answer(request: Request<Incoming>, answers: &Arc<Answers>) -> Answered {
    if request.uri().path() != PATH {
        return whole(StatusCode::NOT_FOUND, Bytes::from_static(b"{}"));
    }
    let Ok(body) = request.into_body().collect().await else {
        return whole(StatusCode::BAD_REQUEST, Bytes::from_static(b"{}"));
    };
    let body = body.to_bytes();
    let asked = serde_json::from_slice::<Asked<'_>>(&body).ok();
    let Some((asked, how)) =
        asked.and_then(|asked| Answer::of_model(asked.model).map(|how| (asked, how)))
    else {
        return whole(StatusCode::BAD_REQUEST, Bytes::from_static(b"{}"));
    };
    if how == Answer::Whole {
        return whole(StatusCode::OK, answers.whole.clone());
    }
    let mut response = Response::new(Either::Right(Events::new(&asked, how, answers)));
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(EVENT_STREAM));
    response
}

const EVENT_STREAM: &str = "text/event-stream; charset=utf-8";

fn whole(status: StatusCode, body: Bytes) -> Answered {
    let mut response = Response::new(Either::Left(Full::new(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}

#[derive(Deserialize)]
struct Asked<'a> {
    model: &'a str,
    max_tokens: u64,
    stream_options: Option<StreamOptions>,
}

#[derive(Deserialize)]
struct StreamOptions {
    include_usage: bool,
}

struct Answers {
    whole: Bytes,
    role: Bytes,
    token: Bytes,
    end: Bytes,
    usage: Bytes,
    done: Bytes,
    paced_streams: AtomicU64,
}

impl Answers {
    /// Streams that were opened at once do not send at once: each next one is a millisecond later
    /// in the pace.
    fn pace(&self) -> Interval {
        let phase_ms = self.paced_streams.fetch_add(1, Ordering::Relaxed) % PACE_MS;
        let first = Instant::now() + Duration::from_millis(phase_ms);
        interval_at(first, Duration::from_millis(PACE_MS))
    }

    fn new() -> Self {
        let usage = r#"{"prompt_tokens":312,"completion_tokens":64,"total_tokens":376}"#;
        let whole = format!(
            r#"{{"id":"chatcmpl-bench","object":"chat.completion","created":1795219200,"model":"bench","choices":[{{"index":0,"message":{{"role":"assistant","content":"{ANSWER}","refusal":null}},"logprobs":null,"finish_reason":"stop"}}],"usage":{usage},"system_fingerprint":"fp_bench"}}"#
        );
        let choice = |delta: &str, finish: &str| {
            let choice = format!(
                r#"[{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{finish}}}]"#
            );
            chunk(&choice, "")
        };
        Self {
            whole: Bytes::from(whole),
            role: choice(r#"{"role":"assistant","content":""}"#, "null"),
            token: choice(r#"{"content":" token"}"#, "null"),
            end: choice("{}", r#""stop""#),
            usage: chunk("[]", &format!(r#","usage":{usage}"#)),
            done: Bytes::from_static(b"data: [DONE]\n\n"),
            paced_streams: AtomicU64::new(0),
        }
    }
}

fn chunk(choices: &str, rest: &str) -> Bytes {
    Bytes::from(format!(
        "data: {{\"id\":\"chatcmpl-bench\",\"object\":\"chat.completion.chunk\",\
         \"created\":1795219200,\"model\":\"bench\",\"system_fingerprint\":\"fp_bench\",\
         \"choices\":{choices}{rest}}}\n\n"
    ))
}

/// A streamed answer: each event is a frame, so an HTTP chunk, of its own.
struct Events {
    answers: Arc<Answers>,
    next: u64,
    tokens: u64,
    with_usage: bool,
    pace: Option<Interval>,
    stays_open: bool,
}

impl Events {
    fn new(asked: &Asked<'_>, how: Answer, answers: &Arc<Answers>) -> Self {
        Self {
            answers: Arc::clone(answers),
            next: 0,
            tokens: asked.max_tokens,
            with_usage: asked.stream_options.as_ref().is_some_and(|options| options.include_usage),
            pace: (how == Answer::Paced).then(|| answers.pace()),
            stays_open: how == Answer::Idle,
        }
    }

    fn event(&self) -> Option<&Bytes> {
        let after_tokens = self.next.checked_sub(self.tokens + 1);
        match after_tokens {
            None if self.next == 0 => Some(&self.answers.role),
            None => Some(&self.answers.token),
            Some(0) => Some(&self.answers.end),
            Some(1) if self.with_usage => Some(&self.answers.usage),
            Some(nth) if nth == 1 + u64::from(self.with_usage) => Some(&self.answers.done),
            Some(_) => None,
        }
    }
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.stays_open && self.next == 2 {
            // Nothing will wake this; the connection ends with its client.
            return Poll::Pending;
        }
        let is_token = (1..=self.tokens).contains(&self.next);
        if let Some(pace) = self.pace.as_mut().filter(|_| is_token) {
            ready!(pace.poll_tick(context));
        }
        let event = self.event().cloned();
        self.next += 1;
        Poll::Ready(event.map(|event| Ok(Frame::data(event))))
    }
}
