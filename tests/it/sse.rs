//! The SSE decoder: each rule of WHATWG HTML §9.2.6 by a vector, and all of them by property.

use bytes::Bytes;
use proptest::{collection::vec, prelude::*, sample::Index};
use tollgate::provider::sse::{Decoder, Event, TooLarge};

use crate::support::event_stream::{EventStream, Item};

const NO_BOUND: usize = usize::MAX / 2;

fn decode(chunks: impl IntoIterator<Item = Bytes>) -> (Vec<Event>, Vec<u8>) {
    let mut decoder = Decoder::new(NO_BOUND);
    let mut events = Vec::new();
    for chunk in chunks {
        decoder.feed(chunk, &mut events).expect("no bound was set");
    }
    (events, decoder.partial().to_vec())
}

/// The data of what a stream dispatches.
fn dispatched(stream: &'static str) -> Vec<String> {
    let (events, _) = decode([Bytes::from_static(stream.as_bytes())]);
    let data = events.into_iter().filter(|event| event.has_data).map(|event| event.data);
    data.map(|data| String::from_utf8(data.to_vec()).unwrap()).collect()
}

fn only(stream: &'static str) -> Event {
    let (mut events, rest) = decode([Bytes::from_static(stream.as_bytes())]);
    assert_eq!((events.len(), rest.as_slice()), (1, &b""[..]), "{stream:?}: {events:?}");
    events.remove(0)
}

#[test]
fn the_three_line_ends_all_end_lines_and_events() {
    for stream in
        ["data: a\n\ndata: b\n\n", "data: a\r\rdata: b\r\r", "data: a\r\n\r\ndata: b\r\n\r\n"]
    {
        assert_eq!(dispatched(stream), ["a", "b"], "{stream:?}");
    }
    assert_eq!(
        dispatched("data: a\r\n\ndata: b\n\r\ndata: c\n\rdata: d\r\r\n"),
        ["a", "b", "c", "d"]
    );
}

#[test]
fn only_one_leading_byte_order_mark_is_dropped() {
    assert_eq!(dispatched("\u{FEFF}data: a\n\n"), ["a"]);
    assert_eq!(dispatched("\u{FEFF}\u{FEFF}data: a\n\ndata: b\n\n"), ["b"]);
    assert_eq!(dispatched("data: a\n\n\u{FEFF}data: b\n\n"), ["a"]);
    assert_eq!(dispatched("\n\u{FEFF}data: b\n\ndata: c\n\n"), ["c"]);
    assert_eq!(dispatched("\u{FEFF}\n\ndata: c\n\n"), ["c"]);
}

#[test]
fn an_event_behind_a_byte_order_mark_is_not_plain() {
    assert!(!only("\u{FEFF}data: a\n\n").plain);
}

#[test]
fn one_space_after_the_colon_is_dropped_and_no_more() {
    assert_eq!(
        dispatched("data:a\n\ndata: a\n\ndata:  a\n\ndata:\ta\n\n"),
        ["a", "a", " a", "\ta"]
    );
}

#[test]
fn several_data_lines_are_joined_by_line_feeds() {
    assert_eq!(dispatched("data: a\ndata: b\r\ndata\rdata:c\n\n"), ["a\nb\n\nc"]);
}

#[test]
fn an_empty_data_field_dispatches_and_its_absence_does_not() {
    // The specification's own example.
    assert_eq!(dispatched("data\n\ndata\ndata\n\ndata:"), ["", "\n"]);
    assert_eq!(dispatched("event: a\n\nid: 1\n\nretry: 5\n\n"), Vec::<String>::new());
}

#[test]
fn an_unterminated_last_event_is_held_and_not_dispatched() {
    for cut in ["data: a\n\ndata: b", "data: a\n\ndata: b\n", "data: a\n\ndata: b\r\n"] {
        let mut decoder = Decoder::new(NO_BOUND);
        let mut events = Vec::new();
        decoder.feed(Bytes::from_static(cut.as_bytes()), &mut events).unwrap();
        assert_eq!(events.len(), 1, "{cut:?}");
        assert!(decoder.has_partial(), "{cut:?}");
    }
    let mut decoder = Decoder::new(NO_BOUND);
    decoder.feed(Bytes::from_static(b"data: a\n\n"), &mut Vec::new()).unwrap();
    assert!(!decoder.has_partial());
}

#[test]
fn comments_are_yielded_as_blocks_that_dispatch_nothing() {
    let event = only(": keep-alive\n\n");
    assert_eq!((event.has_data, event.plain, event.data.len()), (false, false, 0));
    assert_eq!(event.raw, ": keep-alive\n\n");
}

#[test]
fn an_event_with_anything_beside_data_is_not_plain() {
    assert!(only("data: a\ndata: b\n\n").plain);
    for stream in [
        "data: a\nid: 1\n\n",
        "event: x\ndata: a\n\n",
        "retry: 1\ndata: a\n\n",
        ": c\ndata: a\n\n",
        "data: a\nunknown\n\n",
        "data: a\ndataset: x\n\n",
    ] {
        let event = only(stream);
        assert_eq!((event.plain, event.data.as_ref()), (false, &b"a"[..]), "{stream:?}");
    }
}

#[test]
fn the_last_event_field_names_the_event() {
    assert_eq!(only("event: x\nevent: y\ndata: a\n\n").name.as_deref(), Some(&b"y"[..]));
    assert_eq!(only("event: x\nevent:\ndata: a\n\n").name, None);
    assert_eq!(only("eventual: x\ndata: a\n\n").name, None);
    let (events, _) = decode([Bytes::from_static(b"event: x\n\ndata: a\n\n")]);
    assert_eq!(events[1].name, None, "a name does not outlive its block");
}

#[test]
fn an_event_within_one_chunk_is_a_slice_of_it() {
    let chunk = Bytes::from(b"data: {\"a\":1}\n\nevent: x\ndata: b\n\n".to_vec());
    let (events, _) = decode([chunk.clone()]);
    let within = |part: &Bytes| chunk.as_ptr_range().contains(&part.as_ptr());
    assert!(events.iter().all(|event| within(&event.raw) && within(&event.data)));
    assert!(events[1].name.as_ref().is_some_and(within));
}

#[test]
fn an_event_is_yielded_as_soon_as_its_blank_line_begins() {
    let mut decoder = Decoder::new(NO_BOUND);
    let mut events = Vec::new();
    decoder.feed(Bytes::from_static(b"data: a\r\n\r"), &mut events).unwrap();
    assert_eq!(events.len(), 1);
    decoder.feed(Bytes::from_static(b"\ndata: b\r\n\r\n"), &mut events).unwrap();
    let raw: Vec<_> = events.iter().map(|event| event.raw.as_ref()).collect();
    assert_eq!(raw, [&b"data: a\r\n\r"[..], b"\n", b"data: b\r\n\r\n"]);
}

#[test]
fn blank_lines_beyond_an_event_are_a_block_of_their_own() {
    for (stream, raws) in [
        ("data: a\n\n\n\rdata: b\n\n", ["data: a\n\n", "\n\r", "data: b\n\n"]),
        ("data: a\r\n\r\n\r\ndata: b\r\r", ["data: a\r\n\r\n", "\r\n", "data: b\r\r"]),
    ] {
        let (events, _) = decode([Bytes::from_static(stream.as_bytes())]);
        let seen: Vec<_> = events.iter().map(|event| event.raw.as_ref()).collect();
        assert_eq!(seen, raws.map(str::as_bytes));
        assert!(!events[1].has_data);
    }
}

#[test]
fn an_event_over_the_bound_is_an_error_however_it_arrives() {
    let event = b"data: 0123456789\n\n";
    for step in [1, 7, event.len()] {
        let mut exact = Decoder::new(event.len());
        let mut tight = Decoder::new(event.len() - 1);
        let mut events = Vec::new();
        let mut refused = None;
        for chunk in event.chunks(step) {
            exact.feed(Bytes::copy_from_slice(chunk), &mut events).unwrap();
            refused = refused.or(tight.feed(Bytes::copy_from_slice(chunk), &mut Vec::new()).err());
        }
        assert_eq!(events.len(), 1, "step {step}");
        assert_eq!(refused, Some(TooLarge { max_event_bytes: event.len() - 1 }), "step {step}");
    }
}

#[test]
fn an_endless_line_is_refused_before_it_ends() {
    let mut decoder = Decoder::new(1_000);
    let mut fed = 0;
    while decoder.feed(Bytes::from_static(&[b'x'; 100]), &mut Vec::new()).is_ok() {
        fed += 100;
    }
    assert_eq!((fed, decoder.partial().len()), (1_000, 1_000));
}

#[test]
fn the_events_before_one_over_the_bound_are_still_yielded() {
    let mut events = Vec::new();
    let chunk = Bytes::from_static(b"data: a\n\ndata: b\n\ndata: far too long\n\n");
    assert!(Decoder::new(9).feed(chunk, &mut events).is_err());
    assert_eq!(events.len(), 2);
}

#[test]
fn blank_lines_are_never_too_much() {
    let mut decoder = Decoder::new(10);
    let mut events = Vec::new();
    decoder.feed(Bytes::from(vec![b'\n'; 10_000]), &mut events).unwrap();
    assert_eq!(events.len(), 1, "a run of them is one block");
    assert!(!decoder.has_partial());
}

/// Streams made of the pieces that the rules are about.
fn streams() -> impl Strategy<Value = Vec<u8>> {
    let known: Vec<&'static [u8]> = vec![
        b"data",
        b"data:",
        b"data: ",
        b"event: ",
        b"event:",
        b"id: 1",
        b"id: \0",
        b"retry: 10",
        b":",
        b" ",
        b"\n",
        b"\r",
        b"\r\n",
        b"\n\n",
        b"\r\r",
        b"\r\n\r\n",
        b"\xEF\xBB\xBF",
        b"\xEF\xBB",
        b"{\"a\":\"\xC3\xA9\"}",
        b"[DONE]",
        b"x",
    ];
    let piece = prop_oneof![
        8 => prop::sample::select(known).prop_map(<[u8]>::to_vec),
        1 => vec(any::<u8>(), 0..4),
        2 => Just(b"data: {}\n\n".to_vec()),
    ];
    vec(piece, 0..48).prop_map(|pieces| pieces.concat())
}

fn cut(stream: &[u8], cuts: &[Index]) -> Vec<Bytes> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
    cuts.extend([0, stream.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| Bytes::copy_from_slice(&stream[pair[0]..pair[1]])).collect()
}

/// What a receiver acts on.
fn meaning(events: &[Event]) -> Vec<(String, Vec<u8>)> {
    let named = |event: &Event| match &event.name {
        Some(name) => String::from_utf8_lossy(name).into_owned(),
        None => "message".to_owned(),
    };
    let dispatching = events.iter().filter(|event| event.has_data);
    dispatching.map(|event| (named(event), event.data.to_vec())).collect()
}

fn expected(stream: &[u8]) -> Vec<(String, Vec<u8>)> {
    let items = EventStream::parse(stream).into_iter();
    let events = items.filter_map(|item| match item {
        Item::Event(event) => Some((event.event, event.data)),
        Item::Comment(_) | Item::Retry(_) => None,
    });
    events.collect()
}

/// Has the block only `data` lines, going by the specification's notion of a line?
fn is_only_data(raw: &[u8]) -> bool {
    let mut lines = raw.split(|byte| matches!(byte, b'\n' | b'\r')).filter(|line| !line.is_empty());
    lines.all(|line| line == b"data" || line.starts_with(b"data:"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_stream_cut_anywhere_decodes_as_the_specification_says(
        stream in streams(),
        cuts in vec(any::<Index>(), 0..24),
    ) {
        let (events, partial) = decode(cut(&stream, &cuts));
        prop_assert_eq!(meaning(&events), expected(&stream));
        let raws = events.iter().flat_map(|event| event.raw.iter().copied());
        let put_together: Vec<u8> = raws.chain(partial).collect();
        prop_assert_eq!(put_together, stream);
    }

    #[test]
    fn an_event_is_plain_exactly_when_its_bytes_are_only_data_lines(
        stream in streams(),
        cuts in vec(any::<Index>(), 0..24),
    ) {
        let (events, _) = decode(cut(&stream, &cuts));
        for event in events {
            prop_assert_eq!(event.plain, event.has_data && is_only_data(&event.raw), "{:?}", event);
        }
    }
}
