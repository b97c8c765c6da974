//! What is pending when the gateway stops.

use std::time::Duration;

use tokio::time::Instant;
use tollgate::budget::Notifier;

use super::{
    SECRET, Sending, notice,
    receiver::{Answer, Receiver},
};
use crate::support::app::TestApp;

#[tokio::test(start_paused = true)]
async fn each_that_waits_for_another_attempt_gets_it_at_once() {
    let mut receiver = Receiver::start([]).await;
    receiver.always(Answer::Later(503, "60".to_owned()));
    let sending = Sending::to(&receiver.url());
    for _ in 0..10 {
        sending.webhook.notify(notice());
    }
    for _ in 0..10 {
        receiver.hit().await;
    }
    receiver.always(Answer::Status(200));
    let start = Instant::now();
    sending.stop().await;
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    assert_eq!(sending.counts(), (10, 0));
    assert_eq!(receiver.rest().len(), 10);
}

#[tokio::test(start_paused = true)]
async fn what_is_queued_and_was_never_tried_is_sent_too() {
    let mut receiver = Receiver::start([]).await;
    let sending = Sending::to(&receiver.url());
    for _ in 0..50 {
        sending.webhook.notify(notice());
    }
    sending.stop().await;
    assert_eq!(sending.counts(), (50, 0));
    assert_eq!(receiver.rest().len(), 50);
}

#[tokio::test(start_paused = true)]
async fn one_more_attempt_that_fails_is_the_last() {
    let mut receiver = Receiver::start([]).await;
    receiver.always(Answer::Status(500));
    let sending = Sending::to(&receiver.url());
    sending.webhook.notify(notice());
    sending.stop().await;
    assert_eq!(sending.counts(), (0, 1));
    assert!((1..=2).contains(&receiver.rest().len()));
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_hangs_does_not_hold_up_the_end() {
    let mut receiver = Receiver::start([]).await;
    receiver.always(Answer::Never);
    let sending = Sending::to(&receiver.url());
    for _ in 0..20 {
        sending.webhook.notify(notice());
    }
    receiver.hit().await;
    let start = Instant::now();
    sending.stop().await;
    assert!(start.elapsed() <= Duration::from_millis(4_100), "{:?}", start.elapsed());
    assert_eq!((sending.counts(), sending.webhook.pending()), ((0, 20), 0));
    sending.webhook.notify(notice());
    assert_eq!((sending.counts(), sending.webhook.pending()), ((0, 21), 0), "nobody sends it");
}

#[tokio::test]
async fn the_gateway_has_the_configured_notifier_and_sends_what_it_holds_at_its_end() {
    let mut receiver = Receiver::start([Answer::Later(503, "60".to_owned())]).await;
    let url = receiver.url();
    let app = TestApp::with(|config| {
        config.budget.notify_url = Some(url);
        config.budget.notify_secret = Some(SECRET.into());
    })
    .await;
    let notice = notice();
    app.gateway().notifier.notify(notice.clone());
    assert_eq!(receiver.hit().await.header("webhook-id"), notice.id.to_string());
    app.shutdown().await;
    assert_eq!(receiver.hit().await.header("webhook-id"), notice.id.to_string());
}
