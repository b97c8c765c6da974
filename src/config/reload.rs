//! A new configuration while running: after SIGHUP, or when the file has changed.
//!
//! A whole new [`Config`] is loaded and validated, then handed on at once; a bad file changes
//! nothing. What can't change while running is kept as it is and named.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    time::Duration,
};

use aws_lc_rs::digest::{SHA256, digest};
use tokio::{
    signal::unix::{SignalKind, signal},
    task::spawn_blocking,
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;

use super::{AuthConfig, BudgetConfig, Config, ConfigErrors, load, validate};

/// How often the file is looked at. By its content: a Kubernetes `ConfigMap` changes by swapping
/// a symbolic link two directories up, which no watch on the file itself sees.
pub const POLL_PERIOD: Duration = Duration::from_secs(2);

/// A configuration to go on with.
#[derive(Debug)]
pub struct Reload {
    /// The new one, with the running one's values where those can't change.
    pub config: Config,
    /// The sections whose new values wait for a restart.
    pub needs_restart: Vec<&'static str>,
}

/// What one look at the file came to.
#[derive(Debug)]
pub enum Outcome {
    Unchanged,
    Changed(Box<Reload>),
    /// The running configuration stays.
    Refused(ConfigErrors),
}

/// Looks at the file, and knows what it saw last and what is running.
pub struct Reloader {
    path: PathBuf,
    env: Vec<(String, String)>,
    running: Config,
    seen: Seen,
}

#[derive(PartialEq)]
enum Seen {
    Nothing,
    /// The content's SHA-256: the content itself may hold secrets.
    Content(Vec<u8>),
    Unreadable,
}

/// The environment is full of secrets, and the rest is long.
impl fmt::Debug for Reloader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloader").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Reloader {
    /// `running` is what [`super::load()`] made of the same file and environment.
    pub fn new(
        path: &Path,
        env: impl IntoIterator<Item = (String, String)>,
        running: Config,
    ) -> Self {
        let env = env.into_iter().collect();
        Self { path: path.to_owned(), env, running, seen: Seen::Nothing }
    }

    /// Reads the file, and loads it if it is not what it was at the last look, or in any case
    /// if `asked`. The first look loads: the file may have changed since the start. Blocks.
    pub fn look(&mut self, asked: bool) -> Outcome {
        let read = load::read_file(&self.path);
        let seen = match &read {
            Ok(text) => Seen::Content(digest(&SHA256, text.as_bytes()).as_ref().to_vec()),
            Err(_) => Seen::Unreadable,
        };
        if seen == self.seen && !asked {
            return Outcome::Unchanged;
        }
        self.seen = seen;
        match read {
            Ok(text) => self.load(&text).unwrap_or_else(Outcome::Refused),
            Err(source) => Outcome::Refused(load::unreadable(&self.path, &source)),
        }
    }

    fn load(&mut self, text: &str) -> Result<Outcome, ConfigErrors> {
        let loaded = load::inspect_text(&self.path, text, self.env.iter().cloned())?;
        loaded.log_warnings(&self.path);
        if loaded.config == self.running {
            return Ok(Outcome::Unchanged);
        }
        let reload = keep_what_is_fixed(&self.running, loaded.config);
        // New tiers may not go with the old issuers: what is to run must be right as a whole.
        if !reload.needs_restart.is_empty() {
            validate(&reload.config).map_err(|errors| {
                errors.in_file(&self.path).without_restart(&reload.needs_restart)
            })?;
        }
        self.running = reload.config.clone();
        Ok(Outcome::Changed(Box::new(reload)))
    }
}

/// Puts back, in `new`, what only a restart can change.
fn keep_what_is_fixed(running: &Config, mut new: Config) -> Reload {
    let mut needs_restart = Vec::new();
    macro_rules! keep {
        ($($section:ident)*) => {$(
            if new.$section != running.$section {
                new.$section = running.$section.clone();
                needs_restart.push(stringify!($section));
            }
        )*};
    }
    keep!(server admission capabilities audit stream telemetry);
    // Of `budget`, what claims may spend is live.
    let kept = BudgetConfig { claims: new.budget.claims.clone(), ..running.budget.clone() };
    if new.budget != kept {
        new.budget = kept;
        needs_restart.push("budget");
    }
    if new.auth.issuers != running.auth.issuers {
        new.auth.issuers.clone_from(&running.auth.issuers);
        needs_restart.push("auth.issuers");
    }
    // Of the rest of `auth`, the deny list is live.
    let kept = AuthConfig { deny: new.auth.deny.clone(), ..running.auth.clone() };
    if new.auth != kept {
        new.auth = kept;
        needs_restart.push("auth");
    }
    Reload { config: new, needs_restart }
}

/// Looks at the file each `period` and on SIGHUP until `stop`, and hands on what has changed.
///
/// Spawn it in a task that is tracked. Every error of a refused file goes to the log.
///
/// # Errors
/// If SIGHUP can't be listened to, or a look at the file panicked.
pub async fn watch(
    mut reloader: Reloader,
    period: Duration,
    stop: CancellationToken,
    mut on_change: impl FnMut(Reload) + Send,
) -> io::Result<()> {
    let mut hangups = signal(SignalKind::hangup())?;
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let asked = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            Some(()) = hangups.recv() => true,
            _ = ticks.tick() => false,
        };
        let look = spawn_blocking(move || {
            let outcome = reloader.look(asked);
            (reloader, outcome)
        });
        let outcome;
        (reloader, outcome) = look.await.map_err(io::Error::other)?;
        match outcome {
            Outcome::Unchanged if asked => tracing::info!("configuration is unchanged"),
            Outcome::Unchanged => {}
            Outcome::Changed(reload) => {
                log_change(&reload.needs_restart);
                on_change(*reload);
            }
            Outcome::Refused(errors) => log_refusal(&errors),
        }
    }
}

fn log_change(needs_restart: &[&str]) {
    tracing::info!("configuration reloaded");
    if !needs_restart.is_empty() {
        let sections = needs_restart.join(", ");
        tracing::warn!(%sections, "these sections have changed and wait for a restart");
    }
}

fn log_refusal(errors: &ConfigErrors) {
    tracing::error!("configuration not reloaded; the running one stays");
    for error in errors.lines() {
        tracing::error!(%error, "configuration error");
    }
}
