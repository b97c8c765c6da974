//! Notices by HTTP POST: signed, retried, and in nobody's way.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use aws_lc_rs::rand;
use bytes::Bytes;
use futures_util::{StreamExt, stream::FuturesUnordered};
use http::{
    HeaderMap, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER},
};
use jiff::{Timestamp, fmt::rfc2822};
use reqwest::{Client, Url, redirect};
use secrecy::SecretString;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::{Instant, sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    BudgetNotice, Notifier,
    signature::{NoticeKey, WEBHOOK_ID, WEBHOOK_SIGNATURE, WEBHOOK_TIMESTAMP},
};

/// Notices that may wait or be under way, about 1 KiB each. A further one is lost: the receiver
/// is down or far too slow, and what is first in line tells most of when it began.
pub const MAX_PENDING: usize = 256;
/// POSTs at a time: enough that one slow answer doesn't hold up the others, and no flood.
const MAX_AT_ONCE: usize = 4;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// For a whole attempt. A receiver should note the notice, answer and then work on it.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);

/// The first pause is at most this, each further one at most twice the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// With pauses that are half as long as they may be, this is about five minutes: longer than a
/// receiver's restart.
const MAX_ATTEMPTS: u32 = 16;
/// No attempt is begun later than this after the first one: whoever decides about a budget
/// has heard of it in another way by then.
const GIVE_UP_AFTER: Duration = Duration::from_mins(10);
/// How long the last attempts may take when the gateway stops. Less than what `app` waits for
/// its background tasks.
const LAST_ATTEMPTS: Duration = Duration::from_secs(4);

/// What `localhost` means here.
const LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// The notifier could not be made. No message has the URL or the secret.
#[derive(Debug, thiserror::Error)]
pub enum NotifierError {
    #[error("budget.notify_url is not a URL; write https://host/path")]
    Url,
    #[error("budget.notify_secret {0}")]
    Secret(&'static str),
    #[error("the HTTP client for budget.notify_url can't be built: {0}")]
    Client(#[source] reqwest::Error),
}

/// POSTs notices to one URL. All of it but the queue's end is in one task.
pub struct Webhook {
    queue: mpsc::Sender<Pending>,
    places: Arc<Semaphore>,
    tally: Arc<Tally>,
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sent, lost) = (self.sent(), self.lost());
        f.debug_struct("Webhook").field("sent", &sent).field("lost", &lost).finish_non_exhaustive()
    }
}

impl Webhook {
    /// `url` and `secret` are `budget.notify_url` and `budget.notify_secret`, validated.
    ///
    /// # Errors
    /// [`NotifierError`]; nothing runs then.
    pub fn start(
        url: &str,
        secret: Option<&SecretString>,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Result<Self, NotifierError> {
        let (queue, inbox) = mpsc::channel(MAX_PENDING);
        let sender = Sender { target: Target::new(url, secret)?, stop: stop.clone() };
        tasks.spawn(async move { sender.run(inbox).await });
        Ok(Self { queue, places: Arc::new(Semaphore::new(MAX_PENDING)), tally: Arc::default() })
    }

    pub(super) fn check(url: &str, secret: Option<&SecretString>) -> Result<(), NotifierError> {
        Target::new(url, secret).map(drop)
    }

    /// Notices that the receiver took.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.tally.sent.load(Ordering::Relaxed)
    }

    /// Notices that were given up.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.tally.lost.load(Ordering::Relaxed)
    }

    /// Notices that wait or are under way: at most [`MAX_PENDING`].
    #[must_use]
    pub fn pending(&self) -> usize {
        MAX_PENDING.saturating_sub(self.places.available_permits())
    }
}

impl Notifier for Webhook {
    fn told(&self) -> super::Told {
        super::Told { sent: self.sent(), lost: self.lost() }
    }

    fn notify(&self, notice: BudgetNotice) {
        match Arc::clone(&self.places).try_acquire_owned() {
            Ok(place) => {
                let tally = Arc::clone(&self.tally);
                let pending = Pending { notice, tally, is_told: false, _place: place };
                // Each has a place, so only a queue that was closed refuses one; it counts then.
                let _ = self.queue.try_send(pending);
            }
            Err(_) => self.tally.lose(&notice, "too many wait already"),
        }
    }
}

#[derive(Debug, Default)]
struct Tally {
    sent: AtomicU64,
    lost: AtomicU64,
}

impl Tally {
    fn lose(&self, notice: &BudgetNotice, cause: &str) {
        let lost = self.lost.fetch_add(1, Ordering::Relaxed) + 1;
        let BudgetNotice { id, call_id, budget, .. } = notice;
        tracing::error!(notice_id = %id, %call_id, budget, cause, lost, "a budget's notice is lost");
    }
}

/// A notice that has a place. It ends as sent or as lost, also where it is just dropped.
struct Pending {
    notice: BudgetNotice,
    tally: Arc<Tally>,
    is_told: bool,
    _place: OwnedSemaphorePermit,
}

impl Pending {
    fn sent(mut self) {
        self.is_told = true;
        self.tally.sent.fetch_add(1, Ordering::Relaxed);
    }

    fn lost(mut self, cause: &str) {
        self.is_told = true;
        self.tally.lose(&self.notice, cause);
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.is_told {
            self.tally.lose(&self.notice, "the gateway stopped before it was sent");
        }
    }
}

/// The task's own.
struct Sender {
    target: Target,
    stop: CancellationToken,
}

impl Sender {
    async fn run(self, mut inbox: mpsc::Receiver<Pending>) {
        let slots = Semaphore::new(MAX_AT_ONCE);
        let mut deliveries = FuturesUnordered::new();
        loop {
            tokio::select! {
                () = self.stop.cancelled() => break,
                Some(pending) = inbox.recv() => deliveries.push(self.deliver(pending, &slots)),
                Some(()) = deliveries.next() => {}
            }
        }
        inbox.close();
        while let Ok(pending) = inbox.try_recv() {
            deliveries.push(self.deliver(pending, &slots));
        }
        let last = async { while deliveries.next().await.is_some() {} };
        // What is not through by then counts itself as lost.
        let _ = timeout(LAST_ATTEMPTS, last).await;
    }

    /// Tries until it is sent, or it is hopeless. After `stop` there is one more attempt, at once.
    async fn deliver(&self, pending: Pending, slots: &Semaphore) {
        let id = pending.notice.id.to_string();
        // Once, so that each attempt has the same bytes.
        let Ok(body) = serde_json::to_vec(&pending.notice).map(Bytes::from) else {
            return pending.lost("it can't be written as JSON");
        };
        let mut first_at = None;
        for attempt in 1.. {
            let Ok(slot) = slots.acquire().await else { return };
            let is_last = self.stop.is_cancelled();
            let first_at = *first_at.get_or_insert_with(Instant::now);
            let failure = match self.target.post(&id, &body).await {
                Ok(()) => return pending.sent(),
                Err(failure) => failure,
            };
            drop(slot);
            let Failure { cause, may_pass, retry_after } = failure;
            let pause = pause_after(attempt, retry_after);
            let is_late = first_at.elapsed().saturating_add(pause) > GIVE_UP_AFTER;
            if is_last || !may_pass || attempt == MAX_ATTEMPTS || is_late {
                return pending.lost(&cause);
            }
            let pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
            tracing::info!(
                notice_id = id,
                attempt,
                cause,
                pause_ms,
                "a budget's notice was not taken"
            );
            self.stop.run_until_cancelled(sleep(pause)).await;
        }
    }
}

/// Full jitter: anything from nothing to the bound, so that replicas which saw one bust together
/// don't ask together. What the receiver asked for is waited out first.
fn pause_after(attempt: u32, retry_after: Option<Duration>) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(1 << (attempt - 1).min(MAX_ATTEMPTS));
    let mut random = [0; 2];
    // Without randomness there is no pause of ours, and the number of attempts is bounded still.
    let _ = rand::fill(&mut random);
    let share = f64::from(u16::from_le_bytes(random)) / f64::from(u16::MAX);
    let own = doubled.min(LONGEST_PAUSE).mul_f64(share);
    retry_after.unwrap_or_default().saturating_add(own)
}

/// Where notices go, and how they are signed.
struct Target {
    url: Url,
    key: NoticeKey,
    client: Client,
}

/// Why an attempt came to nothing.
struct Failure {
    cause: String,
    /// Could another attempt do better?
    may_pass: bool,
    retry_after: Option<Duration>,
}

impl Target {
    fn new(url: &str, secret: Option<&SecretString>) -> Result<Self, NotifierError> {
        let secret = secret.ok_or(NotifierError::Secret("is missing"))?;
        let key = NoticeKey::new(secret).map_err(NotifierError::Secret)?;
        let url = Url::parse(url).map_err(|_| NotifierError::Url)?;
        let client = client(&url).map_err(|error| NotifierError::Client(error.without_url()))?;
        Ok(Self { url, key, client })
    }

    async fn post(&self, id: &str, body: &Bytes) -> Result<(), Failure> {
        // The attempt's own: receivers refuse what is minutes old.
        let timestamp = Timestamp::now().as_second().to_string();
        let signature = self.key.sign(id, &timestamp, body);
        let request = self
            .client
            .post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(WEBHOOK_ID, id)
            .header(WEBHOOK_TIMESTAMP, timestamp)
            .header(WEBHOOK_SIGNATURE, signature)
            .body(body.clone());
        let response = request.send().await.map_err(|error| Failure {
            cause: causes(&error.without_url()),
            may_pass: true,
            retry_after: None,
        })?;
        // What the answer says beyond its head is of no use, and may be endless.
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        let cause = if status.is_redirection() {
            format!("{status}: redirects are not followed; give their end as budget.notify_url")
        } else {
            status.to_string()
        };
        let retry_after = retry_after(response.headers());
        Err(Failure { cause, may_pass: may_pass(status), retry_after })
    }
}

/// Follows nobody. Plain http is for this machine only, so no proxy sees it.
fn client(url: &Url) -> reqwest::Result<Client> {
    let builder = Client::builder()
        .redirect(redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(ATTEMPT_TIMEOUT)
        // Notices are rare: a kept connection would be dead by the next.
        .pool_max_idle_per_host(0)
        // So that plain http to this name stays on this machine whatever the resolver says.
        .resolve_to_addrs("localhost", &LOOPBACK.map(|ip| (ip, 0).into()))
        .user_agent(concat!("tollgate/", env!("CARGO_PKG_VERSION")));
    if url.scheme() == "http" { builder.no_proxy().build() } else { builder.build() }
}

fn may_pass(status: StatusCode) -> bool {
    let too_early = matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
    status.is_server_error() || too_early
}

/// Seconds or a date (RFC 9110 §10.2.3).
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?;
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = rfc2822::parse(text).ok()?.timestamp();
    Duration::try_from(date.duration_since(Timestamp::now())).ok()
}

/// The error and what is behind it; by itself it only says that something failed.
fn causes(error: &dyn std::error::Error) -> String {
    let behind = std::iter::successors(error.source(), |error| error.source());
    behind.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
