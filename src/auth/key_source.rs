//! An issuer's keys over time: loaded, kept fresh, replaced, and too old.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use aws_lc_rs::{digest, rand};
use tokio::sync::{Mutex, Semaphore};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{AuthError, Clock, KeySet, Reason, key_origin::KeyOrigin};

/// Requests that may wait for one refetch. Each further one is told to try again.
const MAX_WAITERS: usize = 256;

/// After a failure the next attempt comes sooner than `jwks_refresh_s`.
const RETRY: Duration = Duration::from_secs(15);

/// A key set as it was at some time.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub keys: KeySet,
    /// Counts the sets of this source; what was verified with another one is not believed.
    pub generation: u64,
    digest: [u8; 32],
}

#[derive(Debug, Clone, Copy)]
pub(super) struct FreshnessRules {
    pub refresh: Duration,
    pub max_stale_ms: u64,
    /// Between two refetches for the sake of unknown keys.
    pub cooldown_ms: u64,
}

/// The keys of one issuer.
#[derive(Debug)]
pub(super) struct KeySource {
    issuer: String,
    /// `None`: a configured secret, which never changes.
    origin: Option<KeyOrigin>,
    rules: FreshnessRules,
    clock: Arc<dyn Clock>,
    current: ArcSwapOption<Snapshot>,
    /// When the current set was last seen at its origin.
    seen_at_ms: AtomicU64,
    /// When an unknown key last made us ask; 0: never.
    asked_at_ms: AtomicU64,
    /// Held while the origin is read.
    flight: Mutex<()>,
    waiters: Arc<Semaphore>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// What the keys of a source are kept with.
#[derive(Debug, Clone)]
pub(super) struct Surroundings {
    pub clock: Arc<dyn Clock>,
    pub rules: FreshnessRules,
    pub tasks: TaskTracker,
    pub stop: CancellationToken,
}

impl KeySource {
    pub(super) fn new(issuer: String, origin: KeyOrigin, around: Surroundings) -> Self {
        Self::with(issuer, Some(origin), None, around)
    }

    pub(super) fn from_secret(issuer: String, keys: KeySet, around: Surroundings) -> Self {
        let only = Snapshot { keys, generation: 1, digest: [0; 32] };
        Self::with(issuer, None, Some(Arc::new(only)), around)
    }

    fn with(
        issuer: String,
        origin: Option<KeyOrigin>,
        current: Option<Arc<Snapshot>>,
        around: Surroundings,
    ) -> Self {
        let Surroundings { clock, rules, tasks, stop } = around;
        Self {
            issuer,
            origin,
            rules,
            clock,
            current: ArcSwapOption::new(current),
            seen_at_ms: AtomicU64::new(0),
            asked_at_ms: AtomicU64::new(0),
            flight: Mutex::new(()),
            waiters: Arc::new(Semaphore::new(MAX_WAITERS)),
            tasks,
            stop,
        }
    }

    /// The current set, unless it is too old.
    pub(super) fn usable(&self) -> Option<Arc<Snapshot>> {
        self.current.load_full().filter(|_| !self.is_stale())
    }

    /// Is the set of this generation the current one, and not too old?
    pub(super) fn is_current(&self, generation: u64) -> bool {
        let matches = self.current.load().as_ref().is_some_and(|now| now.generation == generation);
        matches && !self.is_stale()
    }

    fn is_stale(&self) -> bool {
        let age_ms = self.clock.now_ms().saturating_sub(self.seen_at_ms.load(Ordering::Acquire));
        self.origin.is_some() && age_ms > self.rules.max_stale_ms
    }

    /// Reads the origin. Where that fails the last good set stays.
    pub(super) async fn refresh(&self) -> bool {
        let _flight = self.flight.lock().await;
        self.read_origin().await
    }

    /// Only under `flight`.
    async fn read_origin(&self) -> bool {
        let Some(origin) = &self.origin else { return true };
        let result = match origin.read().await {
            Ok(json) => self.take(&json).map_err(Into::into),
            Err(error) => Err(error),
        };
        if let Err(error) = &result {
            tracing::warn!(issuer = self.issuer, %error, "the issuer's keys can't be read");
        }
        result.is_ok()
    }

    fn take(&self, json: &[u8]) -> Result<(), super::KeySetError> {
        let mut digest = [0; 32];
        digest.copy_from_slice(digest::digest(&digest::SHA256, json).as_ref());
        let previous = self.current.load();
        if previous.as_ref().is_none_or(|previous| previous.digest != digest) {
            let keys = KeySet::parse(json)?;
            let generation = previous.as_ref().map_or(1, |previous| previous.generation + 1);
            tracing::info!(issuer = self.issuer, generation, "the issuer has new keys");
            self.current.store(Some(Arc::new(Snapshot { keys, generation, digest })));
        }
        self.seen_at_ms.store(self.clock.now_ms(), Ordering::Release);
        Ok(())
    }

    /// A set other than the one of generation `known`, read again if need be.
    ///
    /// However many ask, one reads, and none again before the cool-down is over: a stranger's
    /// made-up `kid` must not turn us on the issuer. The reading is a task of its own, so that a
    /// caller who hangs up does not break it off for the others.
    ///
    /// # Errors
    /// [`Reason::UnknownKey`] if there is no other set, [`AuthError::Unavailable`] if there is
    /// none at all or too many wait.
    pub(super) async fn newer_than(
        self: &Arc<Self>,
        known: Option<u64>,
    ) -> Result<Arc<Snapshot>, AuthError> {
        let none = known.map_or(AuthError::Unavailable, |_| Reason::UnknownKey.into());
        if self.origin.is_none() || (self.is_cooling() && self.flight.try_lock().is_ok()) {
            return Err(none);
        }
        let Ok(place) = Arc::clone(&self.waiters).try_acquire_owned() else {
            return Err(AuthError::Unavailable);
        };
        let (source, stop) = (Arc::clone(self), self.stop.clone());
        let asked = self.tasks.spawn(async move {
            let _place = place;
            stop.run_until_cancelled(source.ask_again(known)).await.flatten()
        });
        asked.await.ok().flatten().ok_or(none)
    }

    async fn ask_again(&self, known: Option<u64>) -> Option<Arc<Snapshot>> {
        let newer = || self.usable().filter(|now| Some(now.generation) != known);
        let _flight = self.flight.lock().await;
        // Whoever held the flight before us may have brought what we want.
        if let Some(newer) = newer() {
            return Some(newer);
        }
        if self.is_cooling() {
            return None;
        }
        self.asked_at_ms.store(self.clock.now_ms().max(1), Ordering::Release);
        self.read_origin().await;
        newer()
    }

    fn is_cooling(&self) -> bool {
        let asked_at_ms = self.asked_at_ms.load(Ordering::Acquire);
        // `None`: the clock was set back, which must not make the cool-down last for hours.
        let since_ms = self.clock.now_ms().checked_sub(asked_at_ms);
        asked_at_ms != 0 && since_ms.is_some_and(|since_ms| since_ms < self.rules.cooldown_ms)
    }

    /// Reads the origin over and over until told to stop. `fresh`: was it just read well?
    pub(super) fn keep_fresh(self: &Arc<Self>, mut fresh: bool) {
        if self.origin.is_none() {
            return;
        }
        let (source, stop) = (Arc::clone(self), self.stop.clone());
        self.tasks.spawn(async move {
            let forever = async {
                loop {
                    let refresh = source.rules.refresh;
                    let pause = if fresh { refresh } else { refresh.min(RETRY) };
                    tokio::time::sleep(with_jitter(pause)).await;
                    fresh = source.refresh().await;
                }
            };
            stop.run_until_cancelled(forever).await
        });
    }
}

/// Up to a tenth more or less, so that replicas that started together don't ask together.
fn with_jitter(pause: Duration) -> Duration {
    let mut random = [128];
    // Without randomness there is no jitter, which is no harm.
    let _ = rand::fill(&mut random);
    pause.mul_f64(0.9 + f64::from(random[0]) / 255.0 * 0.2)
}
