//! The channel between a call's task and its answer's body, and what is waited for beside it.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use futures_util::FutureExt as _;
use tokio::{
    sync::oneshot,
    time::{Instant, sleep, timeout},
};
use tollgate::stream::{Gone, Receiver, Seldom, channel};

const PATIENCE: Duration = Duration::from_secs(5);

async fn receive(receiver: &mut Receiver) -> Option<Bytes> {
    timeout(PATIENCE, poll_fn(|context| receiver.poll_receive(context))).await.expect("a piece")
}

#[tokio::test]
async fn pieces_come_in_order_and_then_the_end() {
    let (mut sender, mut receiver) = channel(1 << 10);
    for piece in ["a", "b", "c"] {
        sender.send(Bytes::from(piece)).await.unwrap();
    }
    drop(sender);

    for piece in ["a", "b", "c"] {
        assert_eq!(receive(&mut receiver).await, Some(Bytes::from(piece)));
    }
    assert_eq!(receive(&mut receiver).await, None);
    assert_eq!(receive(&mut receiver).await, None, "and it stays at its end");
}

#[tokio::test]
async fn the_writer_waits_while_the_bound_is_reached() {
    let (mut sender, mut receiver) = channel(10);
    sender.send(Bytes::from_static(&[0; 9])).await.unwrap();
    // One byte is left, so one more piece goes in, of whatever size.
    sender.send(Bytes::from_static(&[0; 9])).await.unwrap();
    assert_eq!(sender.send(Bytes::from_static(b"x")).now_or_never(), None);

    let writing = tokio::spawn(async move { sender.send(Bytes::from_static(b"x")).await });
    assert_eq!(receive(&mut receiver).await.unwrap().len(), 9);

    timeout(PATIENCE, writing).await.expect("there is room").unwrap().unwrap();
    assert_eq!(receive(&mut receiver).await.unwrap().len(), 9);
    assert_eq!(receive(&mut receiver).await.unwrap(), "x");
}

#[tokio::test]
async fn a_piece_wakes_the_reader_that_waits() {
    let (mut sender, mut receiver) = channel(10);
    for round in 0..3_u8 {
        let reading = tokio::spawn(async move { (receive(&mut receiver).await, receiver) });
        tokio::task::yield_now().await;
        sender.send(Bytes::from(vec![round])).await.unwrap();
        let (piece, back) = reading.await.unwrap();
        assert_eq!(piece.unwrap(), [round].as_slice());
        receiver = back;
    }
    let reading = tokio::spawn(async move { receive(&mut receiver).await });
    tokio::task::yield_now().await;
    drop(sender);
    assert_eq!(reading.await.unwrap(), None);
}

#[tokio::test]
async fn a_reader_that_goes_is_seen_by_the_writer_and_by_who_watches() {
    let (mut sender, receiver) = channel(1);
    let watch = sender.watch();
    sender.send(Bytes::from_static(b"x")).await.unwrap();
    assert_eq!(watch.gone().now_or_never(), None);
    let writing = tokio::spawn(async move { sender.send(Bytes::from_static(b"y")).await });
    let watching = tokio::spawn(async move { watch.gone().await });
    tokio::task::yield_now().await;

    drop(receiver);

    assert_eq!(timeout(PATIENCE, writing).await.expect("told").unwrap(), Err(Gone));
    timeout(PATIENCE, watching).await.expect("told").unwrap();
}

/// Counts how often it is polled.
struct Counted<F>(F, Arc<AtomicU32>);

impl<F: Future + Unpin> Future for Counted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.poll_unpin(context)
    }
}

#[tokio::test]
async fn what_seldom_comes_is_polled_only_when_it_says_so() {
    let polls = Arc::new(AtomicU32::new(0));
    let (ring, rings) = oneshot::channel::<()>();
    let mut seldom = pin!(Seldom::new(Counted(rings, Arc::clone(&polls))));
    for _ in 0..10 {
        let polled = poll_fn(|context| Poll::Ready(seldom.as_mut().poll(context))).await;
        assert!(polled.is_pending());
    }
    assert_eq!(polls.load(Ordering::Relaxed), 1);

    let waiting = async { timeout(PATIENCE, seldom.as_mut()).await.expect("it rang").unwrap() };
    let ringing = async {
        tokio::task::yield_now().await;
        ring.send(()).unwrap();
    };
    tokio::join!(waiting, ringing);
    assert!((2..=3).contains(&polls.load(Ordering::Relaxed)));
}

#[tokio::test]
async fn in_another_task_it_wakes_that_one() {
    let (ring, rings) = oneshot::channel::<()>();
    let mut seldom = Box::pin(Seldom::new(rings));
    assert!(seldom.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let moved = tokio::spawn(seldom);
    tokio::task::yield_now().await;

    ring.send(()).unwrap();

    timeout(PATIENCE, moved).await.expect("it rang").unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_timer_that_is_set_anew_rings_then() {
    let started = Instant::now();
    let mut timer = Seldom::new(sleep(Duration::from_secs(1)));
    assert_eq!((&mut timer).now_or_never(), None);
    timer.reset(started + Duration::from_secs(3));
    assert_eq!(timer.deadline(), started + Duration::from_secs(3));

    timer.await;

    assert_eq!(started.elapsed().as_secs(), 3);
}
