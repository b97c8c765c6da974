//! The SSE decoder: a stream means the same however it is cut, no byte is lost, and no more is
//! held than the bound.
//!
//! Input: one byte that says how to cut, then the stream.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use tollgate::provider::sse::{Decoder, Event};

const BOUND: usize = 1 << 16;
const TIGHT_BOUND: usize = 24;

fuzz_target!(|input: &[u8]| {
    let Some((&seed, stream)) = input.split_first() else { return };
    let whole = decode([Bytes::copy_from_slice(stream)]);
    let cut = decode(cuts(stream, seed));
    assert_eq!(meaning(&whole.0), meaning(&cut.0));
    for (events, partial) in [&whole, &cut] {
        let raws = events.iter().flat_map(|event| event.raw.iter());
        assert!(raws.chain(partial).eq(stream), "bytes were lost or made up");
    }
    stays_within_its_bound(stream, seed);
});

/// Pieces of 1 to 16 bytes, their lengths drawn from the seed.
fn cuts(stream: &[u8], seed: u8) -> Vec<Bytes> {
    let (mut rest, mut state, mut pieces) = (stream, u32::from(seed), Vec::new());
    while !rest.is_empty() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let length = 1 + (state >> 28) as usize;
        let (piece, after) = rest.split_at(length.min(rest.len()));
        pieces.push(Bytes::copy_from_slice(piece));
        rest = after;
    }
    pieces
}

fn decode(chunks: impl IntoIterator<Item = Bytes>) -> (Vec<Event>, Vec<u8>) {
    let (mut decoder, mut events) = (Decoder::new(BOUND), Vec::new());
    for chunk in chunks {
        decoder.feed(chunk, &mut events).expect("libFuzzer's inputs are shorter than the bound");
    }
    (events, decoder.partial().to_vec())
}

/// What a receiver acts on: of each block that dispatches.
fn meaning(events: &[Event]) -> Vec<(&Bytes, &Option<Bytes>, bool)> {
    let dispatching = events.iter().filter(|event| event.has_data);
    dispatching.map(|event| (&event.data, &event.name, event.plain)).collect()
}

fn stays_within_its_bound(stream: &[u8], seed: u8) {
    let (mut decoder, mut events) = (Decoder::new(TIGHT_BOUND), Vec::new());
    for chunk in cuts(stream, seed) {
        let fed = decoder.feed(chunk, &mut events);
        assert!(decoder.partial().len() <= TIGHT_BOUND);
        if fed.is_err() {
            break;
        }
    }
    assert!(events.iter().all(|event| !event.has_data || event.raw.len() <= TIGHT_BOUND));
}
