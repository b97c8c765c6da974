//! Notices: whoever decides about a busted budget is told of it, once a window.
//!
//! A [`BudgetNotice`] is handed to a [`Notifier`], which never makes a call wait. The real one is
//! a [`Webhook`]; [`Busts`] knows which windows were told of already.

mod bust;
mod signature;
mod webhook;

use std::{fmt, sync::Arc};

use jiff::Timestamp;
use serde::Serialize;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use bust::Busts;
pub use signature::{
    TOLERANCE_S, VerifyError, WEBHOOK_ID, WEBHOOK_SIGNATURE, WEBHOOK_TIMESTAMP, verify,
};
pub use webhook::{MAX_PENDING, NotifierError, Webhook};

use crate::{
    config::BudgetConfig,
    domain::{CallId, NoticeId},
};

/// A budget was exhausted. As JSON it is what is sent, flat, with `"type": "budget.exhausted"`
/// and `timestamp` as Standard Webhooks name them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename = "budget.exhausted")]
pub struct BudgetNotice {
    /// The same in each attempt to send it: a receiver drops what it has seen.
    pub id: NoticeId,
    /// When a call was refused, in RFC 3339 like the other times.
    #[serde(rename = "timestamp")]
    pub time: Timestamp,
    /// The kind of budget, such as `usd-per-day`.
    pub budget: String,
    pub owner: NoticeOwner,
    /// The caller that was refused; the budget may be shared with others.
    pub subject: String,
    pub tier: String,
    pub model: String,
    /// In `unit`, as `used` is.
    pub limit: u64,
    pub used: u64,
    pub unit: NoticeUnit,
    pub window_start: Timestamp,
    pub resets_at: Timestamp,
    /// The call that was refused, as in its audit rows.
    pub call_id: CallId,
    pub trace_id: String,
}

impl BudgetNotice {
    /// With all that a token may have said put through `redact`, which gives back what it changed.
    #[must_use]
    pub fn redacted(mut self, redact: impl Fn(&str) -> Option<String>) -> Self {
        let owner = match &mut self.owner {
            NoticeOwner::Agent { agent: text }
            | NoticeOwner::Subject { subject: text }
            | NoticeOwner::Tier { tier: text }
            | NoticeOwner::Claim { value: text, .. } => text,
        };
        for text in [owner, &mut self.subject, &mut self.tier, &mut self.model] {
            if let Some(redacted) = redact(text) {
                *text = redacted;
            }
        }
        self
    }
}

/// Whose budget it is: `{"agent": …}`, `{"subject": …}`, `{"tier": …}` or
/// `{"claim": name, "value": …}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum NoticeOwner {
    Agent { agent: String },
    Subject { subject: String },
    Tier { tier: String },
    Claim { claim: String, value: String },
}

/// What a budget counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeUnit {
    Tokens,
    MicroUsd,
}

/// Takes notices on their way.
pub trait Notifier: fmt::Debug + Send + Sync {
    /// Returns at once, whatever the receiver does. What can't be kept is counted and logged.
    fn notify(&self, notice: BudgetNotice);

    /// What became of the notices so far.
    fn told(&self) -> Told {
        Told::default()
    }
}

/// Notices, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Told {
    pub sent: u64,
    pub lost: u64,
}

/// For a configuration without `budget.notify_url`: nobody is told.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoNotifier;

impl Notifier for NoNotifier {
    fn notify(&self, _: BudgetNotice) {}
}

/// The notifier that `config` asks for. Its task is one of `tasks` and ends after `stop`.
///
/// # Errors
/// [`NotifierError`] names the key at fault; nothing runs then.
pub fn start_notifier(
    config: &BudgetConfig,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) -> Result<Arc<dyn Notifier>, NotifierError> {
    Ok(match &config.notify_url {
        Some(url) => Arc::new(Webhook::start(url, config.notify_secret.as_ref(), tasks, stop)?),
        None => Arc::new(NoNotifier),
    })
}

/// Would [`start_notifier`] take this configuration?
///
/// # Errors
/// [`NotifierError`], as the start would give it.
pub fn check_notifier(config: &BudgetConfig) -> Result<(), NotifierError> {
    let url = config.notify_url.as_deref();
    url.map_or(Ok(()), |url| Webhook::check(url, config.notify_secret.as_ref()))
}
