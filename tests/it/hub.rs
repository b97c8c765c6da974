//! Native streams without the gateway around them, where time can be paused.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::FutureExt as _;
use proptest::prelude::*;
use tokio::time::advance;
use tollgate::{
    config::StreamConfig,
    domain::{Caller, CancelReason, CapabilitySet, StreamId, TrustLevel, Usage},
    provider::{ChunkView, sse::Event},
    stream::{Conclusion, Hub, NativeStream, NativeWriter, Outlet, Owner, Reader},
};

use crate::support::{
    event_stream::{EventStream, Item},
    native::Frame,
};

const SECOND: Duration = Duration::from_secs(1);
/// A moment before it is so long.
fn just_before(seconds: u64) -> Duration {
    Duration::from_millis(seconds * 1_000 - 1)
}

const MILLISECOND: Duration = Duration::from_millis(1);

fn owner(issuer: &str, subject: &str) -> Owner {
    Owner::from(&Caller {
        subject: subject.to_owned(),
        issuer: issuer.to_owned(),
        tier: String::new(),
        capabilities: CapabilitySet::default(),
        agent: None,
        trust: TrustLevel::L0,
        extra: std::collections::BTreeMap::new(),
    })
}

fn alice() -> Owner {
    owner("https://issuer.test", "alice")
}

fn hub(change: impl FnOnce(&mut StreamConfig)) -> Arc<Hub> {
    let mut config = StreamConfig::default();
    change(&mut config);
    Arc::new(Hub::new(&config))
}

/// A stream and its writer, begun.
struct Stream {
    stream: Arc<NativeStream>,
    outlet: Outlet,
}

impl Stream {
    fn open(hub: &Arc<Hub>) -> Self {
        let writer = NativeWriter::open(hub, alice(), "m".to_owned()).expect("there is room");
        let stream = Arc::clone(writer.stream());
        let outlet = Outlet::Native(writer);
        outlet.begin();
        Self { stream, outlet }
    }

    fn id(&self) -> StreamId {
        self.stream.id()
    }

    /// Writes this many tokens at once.
    async fn write(&mut self, tokens: usize) {
        for _ in 0..tokens {
            let data = Bytes::from_static(br#"{"choices":[{"index":0,"delta":{"content":"x"}}]}"#);
            let event = Event { raw: data.clone(), data, name: None, has_data: true, plain: true };
            let view = ChunkView::parse(&event.data).expect("a chunk");
            self.outlet.push(&event, &view).expect("a token");
        }
        self.outlet.flush().await.expect("a native stream takes all");
    }

    /// Ends with two frames: usage and done.
    async fn complete(self) -> StreamId {
        let id = self.id();
        let completed = Conclusion::Completed { usage: Usage::default(), cost: None };
        self.outlet.conclude(&completed).await;
        id
    }
}

fn frames(bytes: &[u8]) -> Vec<Frame> {
    let items = EventStream::parse(bytes);
    let frame = |item| match item {
        Item::Event(event) => Frame::read(&event),
        other => panic!("no frame: {other:?}"),
    };
    items.into_iter().map(frame).collect()
}

#[tokio::test(start_paused = true)]
async fn a_finished_stream_is_kept_for_its_time_and_not_longer() {
    let hub = hub(|config| config.replay_ttl_s = 300);
    let mut stream = Stream::open(&hub);
    stream.write(1).await;
    advance(SECOND * 1_000).await;
    let id = stream.complete().await;

    advance(just_before(300)).await;
    assert!(hub.get(id, &alice()).is_some(), "its time counts from its end");
    advance(MILLISECOND).await;
    assert!(hub.get(id, &alice()).is_none());
    assert_eq!(hub.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn sweeping_lets_go_of_what_nobody_asks_for() {
    let hub = hub(|config| config.replay_ttl_s = 10);
    Stream::open(&hub).complete().await;
    let live = Stream::open(&hub);
    advance(SECOND * 10).await;
    hub.sweep();
    assert_eq!(hub.len(), 1);
    assert!(hub.get(live.id(), &alice()).is_some(), "a live stream does not expire");
}

#[tokio::test]
async fn a_stream_is_its_owners_alone() {
    let hub = hub(|_| {});
    let stream = Stream::open(&hub);
    assert!(hub.get(stream.id(), &alice()).is_some());
    assert!(hub.get(stream.id(), &owner("https://issuer.test", "bob")).is_none());
    assert!(hub.get(stream.id(), &owner("https://other.test", "alice")).is_none());
}

#[tokio::test]
async fn a_stream_that_has_not_begun_takes_a_place_and_cannot_be_found() {
    let hub = hub(|config| config.max_streams = 1);
    let finished = Stream::open(&hub).complete().await;
    let writer = NativeWriter::open(&hub, alice(), "m".to_owned()).expect("there is room");
    let id = writer.stream().id();
    assert!(hub.get(id, &alice()).is_none());
    assert!(NativeWriter::open(&hub, alice(), "m".to_owned()).is_err());
    drop(writer);

    assert!(hub.get(id, &alice()).is_none());
    assert!(hub.get(finished, &alice()).is_some(), "it did not have to make room");
    let begun = Stream::open(&hub);
    assert!(hub.get(begun.id(), &alice()).is_some());
    assert!(hub.get(finished, &alice()).is_none(), "now it had to");
    assert_eq!(hub.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn whoever_comes_in_time_starts_the_orphans_clock_anew() {
    let hub = hub(|_| {});
    let stream = Stream::open(&hub).stream;
    let watched = Arc::clone(&stream);
    let orphaned = tokio::spawn(async move { watched.orphaned(SECOND * 30).await });
    let come_and_go = || drop(stream.read_after(0));

    for _ in 0..3 {
        advance(SECOND * 29).await;
        come_and_go();
    }
    // Gone again before the clock was looked at: still a visit.
    advance(SECOND * 29).await;
    assert!(!orphaned.is_finished());
    let reader = stream.read_after(0).expect("a reader");
    advance(SECOND * 1_000).await;
    assert!(!orphaned.is_finished(), "somebody reads");
    drop(reader);
    tokio::task::yield_now().await;
    advance(just_before(30)).await;
    assert!(!orphaned.is_finished());
    advance(MILLISECOND * 2).await;
    assert_eq!(orphaned.await.expect("the task"), CancelReason::Orphaned);
}

#[tokio::test]
async fn a_slow_readers_stream_ends_without_a_terminal_frame() {
    let hub = hub(|config| config.replay_limit_frames = 4);
    let mut stream = Stream::open(&hub);
    let mut reader = stream.stream.read_after(0).expect("a reader");
    for _ in 0..6 {
        stream.write(1).await;
    }
    assert_eq!(reader.next().await, None, "the frames that it wants are gone");
    assert!(stream.stream.read_after(0).is_err());
    assert!(stream.stream.read_after(1).is_err());
    assert!(stream.stream.read_after(2).is_ok());
}

#[tokio::test]
async fn the_log_is_bounded_in_bytes_too() {
    let hub = hub(|config| config.replay_limit_bytes = 1_000);
    let mut stream = Stream::open(&hub);
    for _ in 0..100 {
        stream.write(1).await;
    }
    let mut kept = 0;
    for seq in 0..100 {
        if let Ok(mut reader) = stream.stream.read_after(seq) {
            let bytes = reader.next().await.expect("frames");
            assert!(bytes.len() <= 1_000, "{}", bytes.len());
            kept += 1;
        }
    }
    assert!((10..30).contains(&kept), "{kept} frames of some 60 bytes");
}

#[tokio::test]
async fn a_reader_far_behind_is_given_the_log_in_pieces() {
    let hub = hub(|_| {});
    let mut stream = Stream::open(&hub);
    for _ in 0..5_000 {
        stream.write(1).await;
    }
    let mut reader = stream.stream.read_after(0).expect("a reader");
    stream.complete().await;
    let (mut pieces, mut all) = (0, Vec::new());
    while let Some(piece) = reader.next().await {
        assert!(piece.len() <= 64 << 10, "{}", piece.len());
        pieces += 1;
        all.extend(frames(&piece));
    }
    assert!(pieces > 2);
    assert_eq!(crate::support::native::assert_whole(0, &all).event, "done");
}

#[tokio::test]
async fn a_writer_that_is_gone_without_a_word_leaves_no_reader_waiting() {
    let hub = hub(|_| {});
    let mut stream = Stream::open(&hub);
    let mut reader = stream.stream.read_after(0).expect("a reader");
    stream.write(1).await;
    drop(stream.outlet);
    assert_eq!(frames(&reader.next().await.expect("the frame")).len(), 1);
    assert_eq!(reader.next().await, None);
}

#[derive(Debug, Clone)]
enum Step {
    /// This many tokens in one piece.
    Write(usize),
    /// Read on as the reader of this number, modulo.
    Read(usize),
    /// A new reader, after a frame chosen among those that there are and a few beyond.
    Come(prop::sample::Index),
    Leave(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1_usize..6).prop_map(Step::Write),
        4 => (0_usize..8).prop_map(Step::Read),
        2 => any::<prop::sample::Index>().prop_map(Step::Come),
        1 => (0_usize..8).prop_map(Step::Leave),
    ]
}

/// What the log must hold: the frames in each batch, the oldest first.
#[derive(Default)]
struct Model {
    batches: VecDeque<u64>,
    last_seq: u64,
    ended: bool,
}

impl Model {
    fn write(&mut self, frames: usize, limit: u64) {
        let frames = u64::try_from(frames).expect("a few");
        self.batches.push_back(frames);
        self.last_seq += frames;
        while self.batches.len() > 1 && self.batches.iter().sum::<u64>() > limit {
            self.batches.pop_front();
        }
    }

    fn has(&self, seq: u64) -> bool {
        (self.last_seq - self.batches.iter().sum::<u64>()..=self.last_seq).contains(&seq)
    }

    /// Reads as `reader`, which has seen `seq`; gives what it has seen after.
    fn check(&self, reader: &mut Reader, seq: u64) -> u64 {
        let next = reader.next().now_or_never();
        if !self.has(seq) {
            assert_eq!(next, Some(None), "frames were lost after {seq}");
            return seq;
        }
        if seq == self.last_seq {
            assert_eq!(next, self.ended.then_some(None), "nothing is left after {seq}");
            return seq;
        }
        let bytes = next.flatten().unwrap_or_else(|| panic!("there are frames after {seq}"));
        let seqs: Vec<u64> = frames(&bytes).iter().map(|frame| frame.seq).collect();
        assert_eq!(seqs, (seq + 1..=self.last_seq).collect::<Vec<_>>());
        self.last_seq
    }
}

async fn play(limit: u64, steps: &[Step]) {
    let hub = hub(|config| {
        config.replay_limit_frames = usize::try_from(limit).expect("small");
    });
    let mut stream = Stream::open(&hub);
    let native = Arc::clone(&stream.stream);
    let (mut model, mut readers) = (Model::default(), Vec::<(Reader, u64)>::new());
    for step in steps {
        let count = readers.len().max(1);
        match step {
            Step::Write(tokens) => {
                stream.write(*tokens).await;
                model.write(*tokens, limit);
            }
            Step::Read(i) => {
                if let Some((reader, seq)) = readers.get_mut(i % count) {
                    *seq = model.check(reader, *seq);
                }
            }
            Step::Come(index) => {
                let seq = index.index(usize::try_from(model.last_seq).expect("small") + 3) as u64;
                match native.read_after(seq) {
                    Ok(reader) => {
                        assert!(model.has(seq), "{seq} is not there");
                        readers.push((reader, seq));
                    }
                    Err(_) => assert!(!model.has(seq), "{seq} is there"),
                }
            }
            Step::Leave(i) if !readers.is_empty() => _ = readers.swap_remove(i % count),
            Step::Leave(_) => {}
        }
    }
    stream.complete().await;
    model.write(2, limit);
    model.ended = true;
    for (mut reader, seq) in readers {
        let seq = model.check(&mut reader, seq);
        assert_eq!(reader.next().await, None);
        assert!(seq == model.last_seq || !model.has(seq));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn readers_see_every_frame_once_or_are_told_that_some_are_gone(
        limit in 1_u64..20,
        steps in prop::collection::vec(step(), 0..60),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime").block_on(play(limit, &steps));
    }
}
