//! Attempts: which are made again, when, and who never waits for them.

use std::time::Duration;

use http::StatusCode;
use jiff::{SignedDuration, Timestamp, fmt::rfc2822};
use secrecy::ExposeSecret;
use tokio::{net::TcpListener, time::Instant};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tollgate::{
    budget::{MAX_PENDING, Notifier, Webhook, verify},
    config::TelemetryConfig,
    telemetry::Telemetry,
};

use super::{
    Sending, notice,
    receiver::{Answer, Receiver},
    secret,
};
use crate::telemetry::Log;

#[tokio::test(start_paused = true)]
async fn an_attempt_after_500_has_the_same_id_and_body() {
    let failing = [500, 503, 408].map(Answer::Status);
    let mut receiver = Receiver::start(failing).await;
    let sending = Sending::to(&receiver.url());
    sending.webhook.notify(notice());
    let first = receiver.hit().await;
    for _ in 0..3 {
        let again = receiver.hit().await;
        assert_eq!(again.header("webhook-id"), first.header("webhook-id"));
        assert_eq!(again.body, first.body);
        verify(&secret(), &again.headers, &again.body, Timestamp::now()).unwrap();
    }
    sending.until_idle().await;
    sending.stop().await;
    assert_eq!(sending.counts(), (1, 0));
    assert!(receiver.rest().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_is_away_for_a_while_gets_it_when_it_is_back() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = nobody.local_addr().unwrap();
    drop(nobody);
    let notice = notice();
    let sending = Sending::to(&format!("http://{address}/"));
    sending.webhook.notify(notice.clone());
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!((sending.counts(), sending.webhook.pending()), ((0, 0), 1));

    let mut receiver = Receiver::on(address, []).await;
    let hit = receiver.hit().await;
    assert_eq!(hit.header("webhook-id"), notice.id.to_string());
    assert_eq!(hit.body, serde_json::to_vec(&notice).unwrap());
    sending.until_idle().await;
    assert_eq!(sending.counts(), (1, 0));
    sending.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_for_good_is_not_sent_again() {
    for status in [400, 401, 404, 410, 422, 304] {
        let mut receiver = Receiver::start([]).await;
        receiver.always(Answer::Status(status));
        let sending = Sending::to(&receiver.url());
        sending.webhook.notify(notice());
        sending.until_idle().await;
        sending.stop().await;
        assert_eq!(sending.counts(), (0, 1), "{status}");
        assert_eq!(receiver.rest().len(), 1, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_redirect_is_not_followed() {
    let mut elsewhere = Receiver::start([]).await;
    let mut receiver = Receiver::start([Answer::Redirect(elsewhere.url())]).await;
    let sending = Sending::to(&receiver.url());
    sending.webhook.notify(notice());
    sending.until_idle().await;
    sending.stop().await;
    assert_eq!(sending.counts(), (0, 1));
    assert_eq!((receiver.rest().len(), elsewhere.rest().len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_waited_out() {
    for status in [429, 503] {
        let mut receiver = Receiver::start([Answer::Later(status, "7".to_owned())]).await;
        let sending = Sending::to(&receiver.url());
        sending.webhook.notify(notice());
        let (first, second) = (receiver.hit().await, receiver.hit().await);
        let waited = second.at - first.at;
        assert!((7_000..=7_550).contains(&waited.as_millis()), "{status}: {waited:?}");
        sending.stop().await;
        assert_eq!(sending.counts(), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn retry_after_may_be_a_date() {
    let date = Timestamp::now() + SignedDuration::from_secs(90);
    let date = rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&date).unwrap();
    assert!(date.ends_with(" GMT"), "{date}");
    let mut receiver = Receiver::start([Answer::Later(429, date)]).await;
    let sending = Sending::to(&receiver.url());
    sending.webhook.notify(notice());
    let (first, second) = (receiver.hit().await, receiver.hit().await);
    let waited = second.at - first.at;
    // The date has whole seconds, and some time of the real clock may have gone by.
    assert!((80..=91).contains(&waited.as_secs()), "{waited:?}");
    sending.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_beyond_all_patience_ends_it() {
    for when in ["601", "18446744073709551615"] {
        let mut receiver = Receiver::start([Answer::Later(429, when.to_owned())]).await;
        let sending = Sending::to(&receiver.url());
        sending.webhook.notify(notice());
        sending.until_idle().await;
        assert_eq!((sending.counts(), receiver.rest().len()), ((0, 1), 1), "{when}");
        sending.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_given_up_after_some_minutes_with_ever_longer_pauses() {
    let mut receiver = Receiver::start([]).await;
    receiver.always(Answer::Status(StatusCode::BAD_GATEWAY.as_u16()));
    let sending = Sending::to(&receiver.url());
    let start = Instant::now();
    sending.webhook.notify(notice());
    sending.until_idle().await;
    assert_eq!(sending.counts(), (0, 1));
    assert!(start.elapsed() <= Duration::from_secs(601), "{:?}", start.elapsed());
    let hits = receiver.rest();
    assert!((11..=16).contains(&hits.len()), "{}", hits.len());
    let mut bound_ms = 500;
    for pair in hits.windows(2) {
        let pause_ms = (pair[1].at - pair[0].at).as_millis();
        assert!(pause_ms <= bound_ms + 50, "{pause_ms} of {bound_ms}");
        bound_ms = (bound_ms * 2).min(60_000);
    }
    sending.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_hangs_delays_nobody_and_the_queue_is_bounded() {
    let mut receiver = Receiver::start([]).await;
    receiver.always(Answer::Never);
    let sending = Sending::to(&receiver.url());
    let start = std::time::Instant::now();
    for _ in 0..1_000 {
        sending.webhook.notify(notice());
    }
    // Not one of them gave way to the task that sends.
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    assert_eq!(sending.webhook.pending(), MAX_PENDING);
    assert_eq!(sending.counts(), (0, 1_000 - MAX_PENDING as u64));
    for _ in 0..4 {
        receiver.hit().await;
    }
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert!(receiver.rest().is_empty(), "four at a time");

    // Attempts time out, the receiver recovers, and those that had a place arrive.
    receiver.always(Answer::Status(200));
    sending.until_idle().await;
    assert_eq!(sending.counts(), (MAX_PENDING as u64, 1_000 - MAX_PENDING as u64));
    sending.webhook.notify(notice());
    sending.until_idle().await;
    assert_eq!(sending.webhook.sent(), MAX_PENDING as u64 + 1);
    sending.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_poisonous_notice_does_not_hold_up_the_others() {
    let mut receiver = Receiver::start([Answer::Later(500, "300".to_owned())]).await;
    let sending = Sending::to(&receiver.url());
    sending.webhook.notify(notice());
    let first = receiver.hit().await;
    let start = Instant::now();
    sending.webhook.notify(notice());
    let second = receiver.hit().await;
    assert_ne!(first.header("webhook-id"), second.header("webhook-id"));
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    sending.stop().await;
    assert_eq!(sending.counts(), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn neither_log_nor_error_nor_debug_shows_the_secret_or_the_url() {
    let log = Log::default();
    let config = TelemetryConfig { log: "trace".to_owned(), ..TelemetryConfig::default() };
    let (telemetry, dispatch) = Telemetry::build(&config, log.clone(), false).unwrap();
    let logging = tracing::dispatcher::set_default(&dispatch);
    let answers = [Answer::Status(500), Answer::Never, Answer::Status(400)];
    let receiver = Receiver::start(answers).await;
    let sending = Sending::to(&receiver.url());
    let notice = notice();
    sending.webhook.notify(notice.clone());
    sending.until_idle().await;
    sending.stop().await;
    let away = Sending::to("http://127.0.0.1:9/hooks/t0ken-in-path");
    away.webhook.notify(self::notice());
    away.stop().await;
    drop(logging);
    drop(telemetry);

    let short = "t0ken-short".into();
    let start = |url, secret| {
        Webhook::start(url, secret, &TaskTracker::default(), &CancellationToken::default())
            .unwrap_err()
    };
    let errors = [
        start("https://[/t0ken-in-path", Some(&secret())),
        start(&receiver.url(), Some(&short)),
        start(&receiver.url(), None),
    ];
    let log = log.text();
    for part in ["was not taken", "is lost", "500", "400", &notice.id.to_string()] {
        assert!(log.contains(part), "{part}: {log}");
    }
    let told = format!("{log}\n{errors:?}\n{:?}", sending.webhook);
    let raw = secret().expose_secret().trim_start_matches("whsec_").to_owned();
    for hidden in [&*raw, "t0ken", "crawler", "alice"] {
        assert!(!told.contains(hidden), "{hidden} in {told}");
    }
}
