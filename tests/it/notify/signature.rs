//! What a receiver may believe.

use http::{HeaderMap, HeaderValue};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tollgate::budget::{BudgetNotice, NoticeOwner, NoticeUnit, Notifier, VerifyError, verify};

use super::{Sending, notice, receiver::Receiver, secret};

/// The one of Standard Webhooks' own libraries (`libraries/javascript`, "sign function works").
const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
const TIME: i64 = 1_614_265_330;
const BODY: &[u8] = br#"{"test": 2432232314}"#;
const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

fn headers(id: &str, timestamp: &str, signature: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in
        [("webhook-id", id), ("webhook-timestamp", timestamp), ("webhook-signature", signature)]
    {
        headers.insert(name, HeaderValue::from_str(value).unwrap());
    }
    headers
}

/// Verifies the vector with a signature of the test's own.
fn with_signature(signature: &str) -> Result<(), VerifyError> {
    let now = Timestamp::from_second(TIME).unwrap();
    verify(&secret(), &headers(ID, &TIME.to_string(), signature), BODY, now)
}

#[test]
fn it_is_that_of_standard_webhooks() {
    with_signature(SIGNATURE).unwrap();
    // A secret that is being changed: several signatures, of which one fits.
    with_signature(&format!("v1,AAAA v1a,{} {SIGNATURE}", &SIGNATURE[3..])).unwrap();
    for wrong in [
        "v1,".to_owned(),
        SIGNATURE[..8].to_owned(),
        SIGNATURE.replace("v1,", "v1a,"),
        SIGNATURE.replace("v1,", ""),
        SIGNATURE.replace("g0hM", "g0hN"),
        SIGNATURE.replace(',', " "),
    ] {
        assert_eq!(with_signature(&wrong), Err(VerifyError::Signature), "{wrong}");
    }
}

#[test]
fn it_holds_for_five_minutes_either_way() {
    let at = |offset| {
        let now = Timestamp::from_second(TIME + offset).unwrap();
        verify(&secret(), &headers(ID, &TIME.to_string(), SIGNATURE), BODY, now)
    };
    for offset in [-300, 0, 300] {
        at(offset).unwrap();
    }
    for offset in [-301, 301, 86_400] {
        assert_eq!(at(offset), Err(VerifyError::Stale), "{offset}");
    }
}

#[test]
fn what_is_no_notice_is_refused_with_a_reason() {
    let now = Timestamp::from_second(TIME).unwrap();
    for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
        let mut headers = headers(ID, &TIME.to_string(), SIGNATURE);
        headers.remove(name);
        assert_eq!(verify(&secret(), &headers, BODY, now), Err(VerifyError::Header(name)));
        headers.insert(name, HeaderValue::from_static(""));
        assert_eq!(verify(&secret(), &headers, BODY, now), Err(VerifyError::Header(name)));
    }
    for (time, error) in [
        ("soon", VerifyError::Timestamp),
        ("99999999999999999999", VerifyError::Timestamp),
        ("-9223372036854775808", VerifyError::Stale),
        // The same second, but not the text that was signed.
        ("+1614265330", VerifyError::Signature),
    ] {
        let verified = verify(&secret(), &headers(ID, time, SIGNATURE), BODY, now);
        assert_eq!(verified, Err(error), "{time}");
    }
}

#[tokio::test]
async fn a_notice_verifies_and_nothing_else_does() {
    let mut receiver = Receiver::start([]).await;
    let sending = Sending::to(&receiver.url());
    sending.webhook.notify(notice());
    let hit = receiver.hit().await;
    sending.stop().await;
    assert_eq!(sending.counts(), (1, 0));

    let now = Timestamp::now();
    let verified = |headers: &HeaderMap, body: &[u8]| verify(&secret(), headers, body, now);
    verified(&hit.headers, &hit.body).unwrap();
    for at in 0..hit.body.len() {
        let mut body = hit.body.to_vec();
        body[at] ^= 1;
        assert_eq!(verified(&hit.headers, &body), Err(VerifyError::Signature), "byte {at}");
    }
    assert_eq!(verified(&hit.headers, &hit.body[1..]), Err(VerifyError::Signature));
    let later = hit.header("webhook-timestamp").parse::<i64>().unwrap() + 1;
    let another = notice().id.to_string();
    for (name, value) in [("webhook-timestamp", &later.to_string()), ("webhook-id", &another)] {
        let mut headers = hit.headers.clone();
        headers.insert(name, HeaderValue::from_str(value).unwrap());
        assert_eq!(verified(&headers, &hit.body), Err(VerifyError::Signature), "{name}");
    }
    let later = now + SignedDuration::from_secs(302);
    let replayed = verify(&secret(), &hit.headers, &hit.body, later);
    assert_eq!(replayed, Err(VerifyError::Stale));
    let other = "another-secret-of-more-than-24-bytes".into();
    let believed = verify(&other, &hit.headers, &hit.body, now);
    assert_eq!(believed, Err(VerifyError::Signature));
}

#[tokio::test]
async fn a_notice_says_whose_budget_it_was_and_until_when() {
    let mut receiver = Receiver::start([]).await;
    let sending = Sending::to(&receiver.url());
    let notice = notice();
    sending.webhook.notify(notice.clone());
    let hit = receiver.hit().await;
    sending.stop().await;

    assert_eq!(hit.method, "POST");
    assert_eq!(hit.path, "/hooks/t0ken-in-path?key=t0ken-in-query");
    assert_eq!(hit.header("content-type"), "application/json");
    assert_eq!(hit.header("webhook-id"), notice.id.to_string());
    let body: Value = serde_json::from_slice(&hit.body).unwrap();
    let expected = json!({
        "type": "budget.exhausted",
        "id": notice.id.to_string(),
        "timestamp": "2026-03-04T12:30:00.25Z",
        "budget": "usd-per-day",
        "owner": { "agent": "crawler" },
        "subject": "alice",
        "tier": "pro",
        "model": "m",
        "limit": 5_000_000,
        "used": 4_999_990,
        "unit": "micro_usd",
        "window_start": "2026-03-04T00:00:00Z",
        "resets_at": "2026-03-05T00:00:00Z",
        "call_id": notice.call_id.to_string(),
        "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
    });
    assert_eq!(body, expected);
}

#[test]
fn every_owner_has_its_words() {
    let text = str::to_owned;
    for (owner, expected) in [
        (NoticeOwner::Subject { subject: text("alice") }, json!({ "subject": "alice" })),
        (NoticeOwner::Tier { tier: text("pro") }, json!({ "tier": "pro" })),
        (
            NoticeOwner::Claim { claim: text("cost_center"), value: text("4711") },
            json!({ "claim": "cost_center", "value": "4711" }),
        ),
    ] {
        let notice = BudgetNotice { owner, unit: NoticeUnit::Tokens, ..notice() };
        let json = serde_json::to_value(&notice).unwrap();
        assert_eq!((&json["owner"], &json["unit"]), (&expected, &json!("tokens")));
    }
}
