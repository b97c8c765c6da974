//! What the gateway's smallest steps cost, each by itself.

#![expect(
    clippy::expect_used,
    reason = "a benchmark whose step fails has nothing to measure, and must say so"
)]

mod answer;
mod budget;
mod hold;
mod redact;

use std::{
    fs,
    hint::black_box,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use futures_util::FutureExt as _;
use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use serde_json::json;
use tokio::runtime;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tollgate::{
    auth::{
        Authenticator,
        mint::{SigningKey, TokenSpec, mint},
    },
    config::{AuthConfig, CapabilitiesConfig, ClaimDefaults, ClaimsConfig, IssuerConfig},
    domain::{Caller, Frame, MicroUsd, ModelCall, TrustLevel, Usage},
    provider::{ChunkView, sse::Decoder},
    stream::{Outlet, PassthroughWriter, Receiver, channel},
};

/// One native frame written as an SSE event into a buffer that has room for it.
fn frame_encode(criterion: &mut Criterion) {
    let token = Frame::Token { delta: " gateway", model: "gpt-oss-120b", choice: 0 };
    let escaped = Frame::Token { delta: "\n\t\"quoted\"", model: "gpt-oss-120b", choice: 0 };
    let usage = Usage { input_tokens: 312, output_tokens: 118, ..Usage::default() };
    let usage = Frame::Usage { usage, cost: Some(MicroUsd(198)) };

    let mut group = criterion.benchmark_group("frame_encode");
    group.throughput(Throughput::Elements(1));
    for (name, frame) in [("token", token), ("token_escaped", escaped), ("usage", usage)] {
        group.bench_function(name, |bencher| {
            bencher.iter_batched_ref(
                || BytesMut::with_capacity(512),
                |out| black_box(frame).encode(black_box(42), out),
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

const ISSUER: &str = "https://bff.example.com";
const AUDIENCE: &str = "tollgate";

/// An issuer with one Ed25519 key, and an authenticator that has it from a JWKS file.
struct Identity {
    key: SigningKey,
    authenticator: Authenticator,
    /// The authenticator's background tasks live in it, and never run.
    _runtime: runtime::Runtime,
}

impl Identity {
    fn new() -> Self {
        let dir = std::env::temp_dir().join(format!("tollgate-micro-{}", uuid::Uuid::new_v4()));
        let key = SigningKey::generate_file(&dir.join("key.pem")).expect("a key is made");
        let jwks = dir.join("jwks.json");
        fs::write(&jwks, key.public_jwks().to_string()).expect("its public half is written");
        let issuer = IssuerConfig {
            issuer: ISSUER.to_owned(),
            audience: vec![AUDIENCE.to_owned()],
            algorithms: vec!["EdDSA".to_owned()],
            jwks_url: None,
            jwks_file: Some(jwks),
            hmac_secret: None,
            header: "authorization".to_owned(),
            claims: ClaimsConfig::default(),
            defaults: ClaimDefaults::default(),
        };
        let config = AuthConfig { issuers: vec![issuer], ..AuthConfig::default() };
        let vocabulary = CapabilitiesConfig::default().vocabulary();
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime starts");
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let authenticator =
            runtime.block_on(Authenticator::start(&config, &vocabulary, &tasks, &stop));
        let authenticator = authenticator.expect("the keys are read");
        fs::remove_dir_all(&dir).expect("the files were read once and are not needed again");
        Self { key, authenticator, _runtime: runtime }
    }

    /// The headers of a request with a token that there was none like before: its `jti` is new.
    fn fresh(&self) -> HeaderMap {
        let spec = TokenSpec {
            issuer: ISSUER.to_owned(),
            audience: vec![AUDIENCE.to_owned()],
            subject: "user-4711".to_owned(),
            tier: Some("pro".to_owned()),
            agent: Some("support".to_owned()),
            capabilities: vec!["model:reasoning".to_owned(), "code:read".to_owned()],
            trust: Some(TrustLevel::L1),
            ttl: Duration::from_hours(1),
            ..TokenSpec::default()
        };
        let token = mint(&self.key, &spec).expect("a token is signed");
        let value = HeaderValue::try_from(format!("Bearer {token}")).expect("it is ASCII");
        HeaderMap::from_iter([(AUTHORIZATION, value)])
    }

    fn authenticate(&self, headers: &HeaderMap) -> Arc<Caller> {
        // With the keys at hand there is nothing to wait for, so no runtime is measured.
        let caller = self.authenticator.authenticate(black_box(headers), false).now_or_never();
        caller.expect("it waits for nothing").expect("the token is good")
    }
}

/// Whose token this is, by its signature or from memory.
///
/// 16,384 tokens fit the cache. `cold` is given each token once and makes it outside of what is
/// measured, so none is found there however many fit; a run uses more than that, so that it pays
/// for the eviction too. `cached` is given one token, which is verified anew each 60 s.
fn jwt_verify(criterion: &mut Criterion) {
    let identity = Identity::new();
    let mut group = criterion.benchmark_group("jwt_verify");
    group.throughput(Throughput::Elements(1));
    group.bench_function("cold", |bencher| {
        bencher.iter_batched_ref(
            || identity.fresh(),
            |headers| identity.authenticate(headers),
            BatchSize::SmallInput,
        );
    });
    let headers = identity.fresh();
    group.bench_function("cached", |bencher| bencher.iter(|| identity.authenticate(&headers)));
    group.finish();
}

const WORDS: [&str; 8] = [" A", " token", " bucket", " fills", " at", " a", " steady", " rate,\\n"];

/// Events as an `OpenAI`-compatible server sends them that was asked for usage: each but the last
/// says that there is none yet.
fn chunks(count: usize) -> Bytes {
    let event = |word| {
        let event = format!(
            "data: {{\"id\":\"chatcmpl-0f6d4b1e9c7a4f52\",\"object\":\"chat.completion.chunk\",\
             \"created\":1772000000,\"model\":\"openai/gpt-oss-120b\",\"choices\":[{{\"index\":0,\
             \"delta\":{{\"content\":\"{word}\"}},\"logprobs\":null,\"finish_reason\":null}}],\
             \"usage\":null}}\n\n"
        );
        assert!((200..=250).contains(&event.len()), "an event of {} bytes", event.len());
        event
    };
    Bytes::from(WORDS.into_iter().cycle().take(count).map(event).collect::<String>())
}

/// A stream in its middle, from the provider's bytes to those that the client's connection takes.
struct Forwarding {
    decoder: Decoder,
    outlet: Outlet,
    client: Receiver,
}

impl Forwarding {
    fn new(include_usage: bool) -> Self {
        let (sender, client) = channel(1 << 20);
        let outlet = Outlet::Passthrough(PassthroughWriter::new(sender, include_usage));
        Self { decoder: Decoder::new(1 << 20), outlet, client }
    }

    fn forward(&mut self, batch: Bytes) -> Bytes {
        let mut events = Vec::with_capacity(4);
        self.decoder.feed(batch, &mut events).expect("the events are small");
        for event in &events {
            let view = ChunkView::parse(&event.data).expect("it is a chunk");
            self.outlet.push(event, &view).expect("it is passed through");
        }
        let flushed = self.outlet.flush().now_or_never();
        flushed.expect("there is room").expect("the client is there");
        let context = Context::from_waker(Waker::noop());
        let Poll::Ready(piece) = self.client.poll_receive(&context) else { unreachable!() };
        piece.expect("a batch is one piece")
    }
}

/// One batch of what a provider sent, on its way to an `OpenAI` client.
///
/// A client that asked for usage gets the very bytes; for one that did not, `"usage":null` is
/// taken out of each event, as usage was asked for by us.
fn chunk_forward(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("chunk_forward");
    for count in [1, 16] {
        let batch = chunks(count);
        for (variant, include_usage) in [("untouched", true), ("usage_out", false)] {
            let mut forwarding = Forwarding::new(include_usage);
            let sent = forwarding.forward(batch.clone());
            assert_eq!(sent == batch, include_usage, "{variant}: the bytes are the same");
            group.throughput(Throughput::Elements(u64::try_from(count).unwrap_or(u64::MAX)));
            group.bench_function(BenchmarkId::new(variant, count), |bencher| {
                bencher.iter(|| forwarding.forward(black_box(batch.clone())));
            });
        }
    }
    group.finish();
}

/// A streamed chat request of an agent in the middle of its work, with a tool to call.
fn request() -> Bytes {
    let system = "You are the operations assistant of a logistics company. You answer questions \
        about imports, shipments and the services that run them. Cite the log line or the metric \
        that you rely on; say plainly when you do not know. Never guess a customer's name, an \
        address or a price. Answer in the language of the question, in full sentences. If a step \
        could change data, describe it and ask for a confirmation first.";
    let finding = "The import of 03:00 stopped after 41,200 of 88,000 rows. The worker's log says \
        `429 Too Many Requests` from 03:12:07 on, with a retry-after of 48 seconds each time; the \
        worker gave up after five attempts, as its settings say. The rows that had been written \
        stayed, since each batch of 400 is committed by itself, so the import can be taken up \
        again from row 41,201 without harm.";
    let body = json!({
        "model": "reasoning",
        "messages": [
            { "role": "system", "content": system },
            { "role": "user", "content": "Why did yesterday's import stop half way?" },
            { "role": "assistant", "content": finding },
            { "role": "user", "content": "Explain how the limit works, in \"three\" sentences." },
        ],
        "tools": [{ "type": "function", "function": {
            "name": "search_logs",
            "description": "Searches a service's log lines of the last seven days.",
            "parameters": {
                "type": "object",
                "properties": {
                    "service": { "type": "string" },
                    "query": { "type": "string", "description": "Words that must all appear" },
                },
                "required": ["service", "query"],
            },
        } }],
        "stream": true,
        "max_tokens": 512,
        "temperature": 0.2,
        "user": "user-4711",
    });
    let body = Bytes::from(body.to_string());
    assert!((1_400..=1_600).contains(&body.len()), "a body of {} bytes", body.len());
    body
}

/// A request's body read, and written for the provider: its name of the model, and usage asked for.
fn body_parse(criterion: &mut Criterion) {
    let body = request();
    let mut group = criterion.benchmark_group("body_parse");
    group.throughput(Throughput::Bytes(u64::try_from(body.len()).unwrap_or(u64::MAX)));
    group.bench_function("chat", |bencher| {
        bencher.iter(|| {
            let call = ModelCall::parse(black_box(body.clone())).expect("it is a request");
            call.to_upstream(black_box("openai/gpt-oss-120b"), true)
        });
    });
    group.finish();
}

criterion_group!(
    benches,
    frame_encode,
    jwt_verify,
    chunk_forward,
    body_parse,
    answer::answer_redact,
    budget::budget,
    redact::redact,
    hold::hold
);
criterion_main!(benches);
