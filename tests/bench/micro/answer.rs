//! What redaction adds to an event of a stream.

use std::hint::black_box;

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput};
use tollgate::{
    config::RedactionConfig,
    pipeline::AnswerStream,
    provider::{
        ChunkView,
        sse::{Decoder, Event},
    },
    redact::Redactor,
};

/// Pieces of about 20 bytes; of the last one the end may begin a secret.
const PIECES: [&str; 4] = [
    " token bucket fills at",
    " steady rate,\\n until",
    " it is full (\\\"burst\\\")",
    " then it waits for A",
];

fn event(piece: &str, obfuscation: &str) -> Event {
    let event = format!(
        "data: {{\"id\":\"chatcmpl-0f6d4b1e9c7a4f52\",\"object\":\"chat.completion.chunk\",\
         \"created\":1772000000,\"model\":\"openai/gpt-oss-120b\",\"choices\":[{{\"index\":0,\
         \"delta\":{{\"content\":\"{piece}\"}},\"logprobs\":null,\"finish_reason\":null}}],\
         \"usage\":null{obfuscation}}}\n\n"
    );
    let mut events = Vec::new();
    Decoder::new(1 << 20).feed(Bytes::from(event), &mut events).expect("it is small");
    events.remove(0)
}

/// One event through the windows of its answer.
///
/// `alike` differs from the event before it in its text alone, as nearly all do; `other` also in
/// what hides a text's length; `held` holds a part back and gives it out again.
pub fn answer_redact(criterion: &mut Criterion) {
    let redactor = Redactor::new(&RedactionConfig::default()).expect("the rules are good");
    let [plain, escaped, quoted, held] = PIECES;
    let cases = [
        ("alike", vec![event(plain, "")]),
        ("alike_escaped", vec![event(escaped, ""), event(quoted, "")]),
        (
            "other",
            vec![event(plain, ",\"obfuscation\":\"a9Kd\""), event(plain, ",\"obfuscation\":\"x\"")],
        ),
        ("held", vec![event(held, ""), event(plain, "")]),
    ];
    let mut group = criterion.benchmark_group("answer_redact");
    for (name, events) in cases {
        let views: Vec<ChunkView<'_>> = events
            .iter()
            .map(|event| ChunkView::parse(&event.data).expect("it is a chunk"))
            .collect();
        let mut stream = AnswerStream::default();
        group.throughput(Throughput::Elements(u64::try_from(events.len()).unwrap_or(u64::MAX)));
        group.bench_function(BenchmarkId::new(name, events.len()), |bencher| {
            bencher.iter(|| {
                for (event, view) in events.iter().zip(&views) {
                    let taken = stream.take(&redactor, black_box(event), view);
                    black_box(taken.expect("it is passed on"));
                }
            });
        });
    }
    group.finish();
}
