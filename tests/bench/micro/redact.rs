//! Redaction: of whole texts, of the events of a stream, and what compiling the rules takes.

use std::{fmt::Write as _, hint::black_box, sync::Arc};

use criterion::{BatchSize, Criterion, Throughput};
use tollgate::{
    config::RequestRedaction,
    redact::{Counts, Depth, Engine, PlaceholderKey, Redactor, RuleSet, Window},
};

/// An event of a stream has about so much text.
const EVENT_BYTES: usize = 20;

const PROSE: &str = "A gateway stands between agents and what they spend: models and tools. It \
    checks who calls, takes from the caller's budget before anything leaves, and writes down what \
    was done. Secrets are taken out on the way; that must not cost more than reading the text.\n\n\
    - Tokens are counted as they come, and settled when the stream ends.\n\
    - \u{201c}Nothing is lost\u{201d} \u{2014} not even when a client hangs up.\n\n";

const CODE: &str = "impl Ledger for Memory {\n    async fn reserve(&self, key: &str, tokens: u64) \
    -> Result<Reservation, LedgerError> {\n        let mut buckets = self.buckets.lock().await;\n        \
    let bucket = buckets.entry(key.to_owned()).or_insert_with(Bucket::full);\n        \
    let password = config.password()?; // token: see config.token\n        \
    bucket.take(tokens).map(|id| Reservation { id, key: key.into(), tokens })\n    }\n}\n\n";

const LOGS: &str = "2026-11-21T06:26:01.204Z INFO request{id=01a1fcee-1d8d-7722-9f32-c5b1dc82a4e3} \
    POST /v1/chat/completions status=200 latency_ms=184 bytes=5312 model=gpt-oss-120b\n\
    {\"level\":\"warn\",\"msg\":\"retry\",\"attempt\":2,\"host\":\"db-3.internal\",\"sha\":\
    \"3b1f0c9e5d2a47768c11e0f4b7a9d2536f8e4c10\"}\n";

/// A megabyte of what prompts are made of.
fn prompt() -> String {
    let mut text = String::new();
    let mut number = 0;
    while text.len() < 1 << 20 {
        number += 1;
        let _ =
            writeln!(text, "{PROSE}```rust\n{CODE}```\n{LOGS}Item {number}: see #{}.", number * 7);
    }
    text
}

fn redactor() -> Redactor {
    let engine = Engine::built_in().expect("the built-in rules compile");
    let key = PlaceholderKey::random().expect("there are random numbers");
    Redactor::from_parts(engine, key, RequestRedaction::Redact)
}

#[expect(clippy::print_stdout, reason = "a benchmark's figures are its output")]
pub fn redact(criterion: &mut Criterion) {
    let redactor = redactor();
    println!("the compiled rules take {} bytes", redactor.engine().memory_usage());
    whole(criterion, &redactor);
    stream(criterion, &redactor);
    compile(criterion);
}

fn whole(criterion: &mut Criterion, redactor: &Redactor) {
    let mixed = prompt();
    let mut secrets = String::new();
    for (number, line) in mixed.lines().enumerate() {
        secrets.push_str(line);
        if number % 40 == 0 {
            let _ = write!(secrets, " key: AKIAQ2W3E4R5T6Y7U2I3 password=\"Tr0ub4dor&{number}\"");
        }
        secrets.push('\n');
    }
    let prose = PROSE.repeat((1 << 20) / PROSE.len());
    let logs = LOGS.repeat((1 << 20) / LOGS.len());
    let code = CODE.repeat((1 << 20) / CODE.len());
    let texts =
        [("mixed", mixed), ("prose", prose), ("code", code), ("logs", logs), ("secrets", secrets)];
    let mut group = criterion.benchmark_group("redact");
    for (name, text) in &texts {
        group.throughput(Throughput::Bytes(text.len() as u64));
        for (tier, depth) in [("formats", Depth::Formats), ("complete", Depth::Complete)] {
            group.bench_function(format!("{tier}/{name}"), |bencher| {
                let mut counts = Counts::new();
                bencher.iter(|| redactor.redact_text(black_box(text), depth, &mut counts).len());
            });
        }
    }
    group.finish();
}

/// The events of one answer, through one window.
fn stream(criterion: &mut Criterion, redactor: &Redactor) {
    let text = prompt();
    let ends = (EVENT_BYTES..text.len()).step_by(EVENT_BYTES);
    let mut from = 0;
    let mut events: Vec<&str> = Vec::new();
    for end in ends.filter(|end| text.is_char_boundary(*end)) {
        events.push(&text[from..end]);
        from = end;
    }
    let mut group = criterion.benchmark_group("redact");
    group.throughput(Throughput::Elements(events.len() as u64));
    group.bench_function("stream/events", |bencher| {
        bencher.iter_batched_ref(
            || (Window::default(), String::with_capacity(256), Counts::new()),
            |(window, out, counts)| {
                for event in &events {
                    out.clear();
                    black_box(window.feed(redactor, black_box(event), out, counts));
                }
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

fn compile(criterion: &mut Criterion) {
    criterion.bench_function("redact/compile", |bencher| {
        bencher.iter(|| {
            let set = RuleSet::built_in().expect("the built-in rules are well formed");
            Arc::new(Engine::compile(&set).expect("and compile"))
        });
    });
}
