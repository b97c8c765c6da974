//! The tokenizer's thread: its counts, and that it never holds anybody up.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    task::Poll,
};

use tollgate::budget::{
    Estimator, MAX_COUNTED_BYTES, TokenCounter, TokenMeter, Unmetered, Written,
};
use tollgate::{budget::Metered, domain::UsageSource};

/// What a future has to say now.
async fn now<T>(future: &mut Pin<Box<impl Future<Output = T>>>) -> Poll<T> {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

fn text(text: &str) -> String {
    text.to_owned()
}

/// A tokenizer that says when it has begun a text, and takes one token's time a permit.
fn held() -> (impl FnMut(&str) -> Option<u64> + Send, mpsc::Receiver<String>, mpsc::Sender<()>) {
    let (begun, has_begun) = mpsc::channel();
    let (permit, permits) = mpsc::channel();
    let tokenizer = move |text: &str| {
        begun.send(text.to_owned()).ok()?;
        permits.recv().ok()?;
        Some(1)
    };
    (tokenizer, has_begun, permit)
}

/// As the original tokenizer counts them.
#[tokio::test]
async fn counts_are_those_of_o200k_base() {
    let counter = TokenCounter::new();
    assert!(!counter.is_warm(), "nothing is unpacked before the first count");
    for (given, tokens) in [
        ("", 0),
        ("Hello, world!", 4),
        ("The capital of France is Paris.", 7),
        ("Grüße aus ", 5),
        ("twelve bytes", 3),
        // Nobody's control tokens: a model that writes this has written text.
        ("<|endoftext|>", 7),
    ] {
        assert_eq!(counter.count(text(given)).await, Some(tokens), "{given:?}");
    }
    assert!(counter.is_warm());
    // Of one letter or one blank, the slowest there is.
    for (piece, tokens) in [("a", 8_192), (" ", 512), ("\n", 4_096)] {
        assert_eq!(counter.count(piece.repeat(MAX_COUNTED_BYTES)).await, Some(tokens));
    }
    assert_eq!(counter.refused(), 0);
}

#[tokio::test]
async fn a_full_queue_refuses_at_once_and_goes_on_after() {
    let (tokenizer, has_begun, permit) = held();
    let counter = TokenCounter::with_tokenizer(1, tokenizer);
    let mut first = Box::pin(counter.count(text("first")));
    assert!(now(&mut first).await.is_pending());
    assert_eq!(has_begun.recv().unwrap(), "first");
    let mut second = Box::pin(counter.count(text("second")));
    assert!(now(&mut second).await.is_pending());
    for refused in 1..=3 {
        assert_eq!(now(&mut Box::pin(counter.count(text("third")))).await, Poll::Ready(None));
        assert_eq!(counter.refused(), refused);
    }
    permit.send(()).unwrap();
    permit.send(()).unwrap();
    assert_eq!((first.await, second.await), (Some(1), Some(1)));
    permit.send(()).unwrap();
    assert_eq!(counter.count(text("fourth")).await, Some(1));
}

#[tokio::test]
async fn a_text_that_nobody_waits_for_any_more_is_not_counted() {
    let (tokenizer, has_begun, permit) = held();
    let counter = TokenCounter::with_tokenizer(8, tokenizer);
    let mut first = Box::pin(counter.count(text("first")));
    assert!(now(&mut first).await.is_pending());
    assert_eq!(has_begun.recv().unwrap(), "first");
    let mut gone = Box::pin(counter.count(text("gone")));
    assert!(now(&mut gone).await.is_pending());
    drop(gone);
    let mut last = Box::pin(counter.count(text("last")));
    assert!(now(&mut last).await.is_pending());
    permit.send(()).unwrap();
    permit.send(()).unwrap();
    assert_eq!((first.await, last.await), (Some(1), Some(1)));
    assert_eq!(has_begun.try_iter().collect::<Vec<_>>(), ["last"]);
}

#[tokio::test]
async fn of_a_long_text_a_part_is_counted_and_scaled() {
    let longest = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&longest);
    let counter = TokenCounter::with_tokenizer(8, move |text| {
        seen.fetch_max(text.len(), Ordering::Relaxed);
        Some(text.chars().count() as u64)
    });
    for (piece, times) in [("a", MAX_COUNTED_BYTES + 1), ("東", 100_000), ("👩x", 50_000)] {
        let whole = piece.repeat(times);
        let (characters, bytes) = (whole.chars().count() as u64, whole.len());
        let tokens = counter.count(whole).await.unwrap();
        assert!((characters..=characters + 2).contains(&tokens), "{tokens} of {bytes} bytes");
    }
    assert!((MAX_COUNTED_BYTES - 3..=MAX_COUNTED_BYTES).contains(&longest.load(Ordering::Relaxed)));
}

#[tokio::test]
async fn a_tokenizer_that_fails_leaves_nobody_waiting() {
    let unable = TokenCounter::with_tokenizer(8, |_| None);
    assert_eq!(unable.count(text("x")).await, None);
    let broken = TokenCounter::with_tokenizer(8, |_| panic!("on purpose"));
    for _ in 0..3 {
        assert_eq!(broken.count(text("x")).await, None);
    }
}

fn meter(counter: TokenCounter) -> TokenMeter {
    let mut meter = TokenMeter::new(Estimator::new(["m"]));
    meter.counter = counter;
    meter
}

fn unmetered(text: &str) -> Unmetered {
    Unmetered { sent_bytes: 400, written_bytes: text.len(), text: text.to_owned() }
}

#[tokio::test]
async fn what_was_counted_says_so() {
    let meter = meter(TokenCounter::with_tokenizer(8, |text| Some(text.len() as u64)));
    let (usage, source) = meter.count("m", unmetered("twelve bytes")).await;
    assert_eq!((usage.input_tokens, usage.output_tokens), (100, 12));
    assert_eq!(source, UsageSource::Counted);
    // What has no text is nothing to count.
    let (usage, source) = meter.count("m", unmetered("")).await;
    assert_eq!((usage.input_tokens, usage.output_tokens), (100, 0));
    assert_eq!(source, UsageSource::Estimate);
    // Of what was not kept, as much as of what was.
    let part = Unmetered { written_bytes: 36, ..unmetered("twelve bytes") };
    assert_eq!(meter.count("m", part).await.0.output_tokens, 36);
}

#[tokio::test]
async fn no_correction_makes_more_tokens_than_there_are_bytes() {
    let meter = meter(TokenCounter::with_tokenizer(8, |text| Some(text.len() as u64)));
    (0..100).for_each(|_| meter.estimator.observe_counted("m", 100, 300));
    assert_eq!(meter.estimator.own_tokens("m", 12), 36);
    assert_eq!(meter.count("m", unmetered("twelve bytes")).await.0.output_tokens, 12);
}

/// Paused, so that a quarter of a second is over at once.
#[tokio::test(start_paused = true)]
async fn a_count_that_takes_too_long_is_not_waited_for() {
    let (tokenizer, has_begun, permit) = held();
    let meter = meter(TokenCounter::with_tokenizer(8, tokenizer));
    let (usage, source) = meter.count("m", unmetered("twelve bytes")).await;
    assert_eq!((usage.output_tokens, source), (3, UsageSource::Estimate));
    drop((has_begun, permit));
}

/// What a provider counted of an answer of so many bytes.
fn metered(bytes: usize, tokens: u64) -> Metered {
    let written = Some(Written { text: "x".repeat(bytes), bytes, tokens });
    Metered { request_bytes: 4_000, input_tokens: 2_000, written }
}

#[tokio::test]
async fn a_model_whose_vocabulary_differs_is_learnt_of_once_counting_was_needed() {
    let texts = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&texts);
    let tokenizer = move |text: &str| {
        *counted.lock().unwrap() += 1;
        Some(text.len() as u64)
    };
    let meter = meter(TokenCounter::with_tokenizer(1_000, tokenizer));
    (0..100).for_each(|_| meter.learn("m", metered(100, 50)));
    assert_eq!(meter.estimator.input_tokens("m", 4_000), 2_000);
    assert_eq!(meter.estimator.output_tokens("m", 100), 50);
    assert_eq!(meter.count("m", unmetered("twelve bytes")).await.0.output_tokens, 12);
    assert_eq!(*texts.lock().unwrap(), 1, "nothing was counted before somebody needed it");

    (0..160).for_each(|_| meter.learn("m", metered(100, 50)));
    // In their order: this one comes after those that were learnt from.
    let usage = meter.count("m", unmetered("twelve bytes")).await.0;
    assert_eq!(*texts.lock().unwrap(), 12, "one in sixteen");
    // Ten steps of a tenth from 1 towards a half: 12 times 0.674, rounded up.
    assert_eq!(usage.output_tokens, 9);
}
