//! Notices of busted budgets: signed, retried, in nobody's way. See `notice` and `webhook`.

mod bust;
mod delivery;
mod receiver;
mod signature;
mod stop;

pub use receiver::Receiver;

use std::sync::Arc;

use jiff::Timestamp;
use secrecy::SecretString;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tollgate::{
    budget::{BudgetNotice, NoticeOwner, NoticeUnit, Webhook},
    domain::{CallId, NoticeId},
};

pub const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

pub fn secret() -> SecretString {
    SECRET.into()
}

/// The bust of an agent's daily budget of five dollars.
pub fn notice() -> BudgetNotice {
    let time = |text: &str| text.parse::<Timestamp>().unwrap();
    BudgetNotice {
        id: NoticeId::generate(),
        time: time("2026-03-04T12:30:00.25Z"),
        budget: "usd-per-day".to_owned(),
        owner: NoticeOwner::Agent { agent: "crawler".to_owned() },
        subject: "alice".to_owned(),
        tier: "pro".to_owned(),
        model: "m".to_owned(),
        limit: 5_000_000,
        used: 4_999_990,
        unit: NoticeUnit::MicroUsd,
        window_start: time("2026-03-04T00:00:00Z"),
        resets_at: time("2026-03-05T00:00:00Z"),
        call_id: CallId::generate(),
        trace_id: "4bf92f3577b34da6a3ce929d0e0e4736".to_owned(),
    }
}

/// A webhook with what an app would stop it by.
pub struct Sending {
    pub webhook: Arc<Webhook>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Sending {
    pub fn to(url: &str) -> Self {
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let webhook = Webhook::start(url, Some(&secret()), &tasks, &stop).unwrap();
        Self { webhook: Arc::new(webhook), tasks, stop }
    }

    /// Until nothing is pending any more. Busy, so that a paused clock moves by itself alone.
    pub async fn until_idle(&self) {
        while self.webhook.pending() > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }

    pub async fn stop(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Sent and lost.
    pub fn counts(&self) -> (u64, u64) {
        (self.webhook.sent(), self.webhook.lost())
    }
}
