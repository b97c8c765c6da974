//! What the gateway's smallest steps cost, each by itself.

use std::hint::black_box;

use bytes::BytesMut;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use tollgate::domain::{Frame, MicroUsd, Usage};

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

criterion_group!(benches, frame_encode);
criterion_main!(benches);
