//! The one place where a configuration becomes a running gateway, and where it ends.

mod port;
mod sweep;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    port::{Port, listen, local},
    sweep::LostCalls,
};
use crate::{
    audit::{
        Audit, Entry, EntryKind,
        checkpoint::{Checkpointer, SealError},
        spool::{Spool, SpoolError},
    },
    auth::{AuthSetupError, Authenticator},
    budget::{
        Budgets, Busts, Estimator, FairQueues, LedgerError, LedgerHealth, LedgerStore, Notifier,
        NotifierError, QueueBounds, TokenMeter, check_ledger, check_notifier, leased, open_ledger,
        start_notifier,
    },
    config::{AuditContent, Config, ServerConfig},
    domain::{RequestId, Vocabulary},
    http::{
        AppState, Readiness, Settings, Sweeper, admin_router, public_router,
        server::{self, Bounds, TlsError},
    },
    offload::Offload,
    pipeline::{Gateway, Snapshot, SnapshotError},
    redact::{KeySource, KeySourceError, LiveRedactor, Tally},
    storage::{self, StoreError},
    stream::Hub,
};

/// After the drain, calls are ended; this is how long their ends may take.
const END_OF_CALLS: Duration = Duration::from_secs(5);
/// How long the audit trail may take to write what is queued at the end.
const END_OF_AUDIT: Duration = Duration::from_secs(10);

/// The gateway could not be started. Each names what to mend.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot listen on {address} ({key}): {}", why_not(.source))]
    Listen { key: &'static str, address: SocketAddr, source: std::io::Error },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("audit.spool: {0}")]
    Spool(#[from] SpoolError),
    #[error(transparent)]
    Seal(#[from] SealError),
    #[error("cannot start the audit writer's thread: {0}")]
    Thread(#[source] std::io::Error),
    #[error(transparent)]
    Auth(#[from] AuthSetupError),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error(transparent)]
    RedactionKey(#[from] KeySourceError),
    #[error(transparent)]
    Notifier(#[from] NotifierError),
    #[error("budget.redis_url: {0}")]
    Ledger(#[from] LedgerError),
    #[error("server.tls: {0}")]
    Tls(#[from] TlsError),
}

/// Would [`App::start`] take this configuration? Listens on nothing, and asks no one.
///
/// # Errors
/// [`StartError`], as the start would give it.
pub fn check(config: &Config) -> Result<(), StartError> {
    config.server.tls.as_ref().map(server::tls_config).transpose()?;
    let vocabulary = Vocabulary::new(&config.capabilities.vocabulary);
    Snapshot::new(config, &vocabulary, key_source(config).peek()?, &Offload::default())?;
    Authenticator::check(&config.auth, &vocabulary)?;
    check_notifier(&config.budget)?;
    check_ledger(&config.budget)?;
    Checkpointer::check(&config.audit)?;
    storage::check(&config.audit)?;
    Ok(())
}

fn why_not(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => "something listens there already".to_owned(),
        _ => error.to_string(),
    }
}

/// A running gateway.
#[derive(Debug)]
pub struct App {
    address: SocketAddr,
    admin_address: SocketAddr,
    drain: Duration,
    readiness: Readiness,
    reloader: Reloader,
    gateway: Arc<Gateway>,
    connections: Port,
    /// Answers until the end.
    admin: Port,
    /// What runs beside the calls: key refresh, sweeping, the audit writer, notices.
    background: TaskTracker,
    ledger_health: Option<Arc<LedgerHealth>>,
    stop_background: CancellationToken,
}

/// What was left when the gateway had stopped. All zero, or there is a bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leftovers {
    pub open_reservations: usize,
    pub leaked_reservations: u64,
    pub open_calls: usize,
    pub open_connections: usize,
    pub unwritten_audit_entries: usize,
}

impl Leftovers {
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.open_reservations == 0
            && self.leaked_reservations == 0
            && self.open_calls == 0
            && self.open_connections == 0
            && self.unwritten_audit_entries == 0
    }
}

impl App {
    /// Starts a gateway from a configuration that was validated.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left running then.
    pub async fn start(config: &Config) -> Result<Self, StartError> {
        Self::start_with(config, LiveRedactor::default()).await
    }

    /// As [`App::start`], with `redactor` set to the redactor that `config` asks for, now and with
    /// each reload: for telemetry, which runs before the gateway does.
    ///
    /// # Errors
    /// As [`App::start`].
    pub async fn start_with(config: &Config, redactor: LiveRedactor) -> Result<Self, StartError> {
        let server = &config.server;
        let public = listen("server.listen", server.listen).await?;
        let admin_listener = listen("server.admin_listen", server.admin_listen).await?;
        let (address, admin_address) =
            (local(&public, server.listen), local(&admin_listener, server.admin_listen));
        let tls = server.tls.as_ref().map(server::tls_config).transpose()?;
        let vocabulary = Vocabulary::new(&config.capabilities.vocabulary);
        let offload = Offload::default();
        let snapshot = Snapshot::new(config, &vocabulary, key_source(config).open()?, &offload)?;
        redactor.set(Arc::clone(&snapshot.redactor));
        let (spool, checkpointer) = open_files(config).await?;
        let (background, stop_background) = (TaskTracker::new(), CancellationToken::new());
        let lost_calls = LostCalls::of(config, &spool)?;
        let sink = storage::open_sink(&config.audit, &background, &stop_background).await?;
        let trail = storage::open_trail(&config.audit).await?;
        let authenticator =
            Authenticator::start(&config.auth, &vocabulary, &background, &stop_background).await;
        let authenticator = Arc::new(authenticator.inspect_err(|_| stop_background.cancel())?);
        let notifier = start_notifier(&config.budget, &background, &stop_background);
        let notifier = notifier.inspect_err(|_| stop_background.cancel())?;
        let store = open_ledger(&config.budget).inspect_err(|_| stop_background.cancel())?;
        let ledger_health = store.health.clone();
        let audit = Audit::start(spool, sink, redactor.clone(), &background)
            .map_err(StartError::Thread)
            .inspect_err(|_| stop_background.cancel())?;
        audit.seal(checkpointer);
        let gateway = Arc::new(gateway(config, snapshot, redactor, audit, notifier, store));
        let sweeper = Sweeper { tasks: background.clone(), stop: stop_background.clone() };
        start_tasks(&gateway, lost_calls, &sweeper);

        let readiness = Readiness::default();
        let state = AppState::new(
            Arc::clone(&gateway),
            trail,
            Arc::clone(&authenticator),
            settings(config),
            readiness.clone(),
        );
        let bounds = Bounds::new(server, &config.admission);
        let router = public_router(state.clone(), &sweeper);
        let connections = Port::open(public, router, bounds.clone(), tls);
        let bounds = Bounds { drain: Duration::from_secs(1), ..bounds };
        let admin = Port::open(admin_listener, admin_router(state), bounds, None);
        readiness.set(true);
        tracing::info!(%address, %admin_address, "listening");
        Ok(Self {
            address,
            admin_address,
            drain: Duration::from_secs(server.drain_s),
            readiness,
            reloader: Reloader { gateway: Arc::clone(&gateway), authenticator },
            gateway,
            connections,
            admin,
            background,
            ledger_health,
            stop_background,
        })
    }

    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    #[must_use]
    pub const fn admin_address(&self) -> SocketAddr {
        self.admin_address
    }

    /// The handle that swaps in a new configuration.
    #[must_use]
    pub fn reloader(&self) -> Reloader {
        self.reloader.clone()
    }

    /// What calls are made with: for tests to look at what is open.
    #[must_use]
    pub const fn gateway(&self) -> &Arc<Gateway> {
        &self.gateway
    }

    /// How the shared store of budgets is doing; `None` where there is none.
    #[must_use]
    pub const fn ledger_health(&self) -> Option<&Arc<LedgerHealth>> {
        self.ledger_health.as_ref()
    }

    /// Stops: no new requests; those in flight have `drain_s` to end, then are ended; everything
    /// that they owe is settled and written.
    pub async fn shutdown(self) -> Leftovers {
        self.readiness.set(false);
        self.connections.close();
        self.gateway.calls.close();
        let calls = self.gateway.calls.len();
        tracing::info!(calls, drain_s = self.drain.as_secs(), "draining");
        // Both: a request that is still coming in becomes a call.
        let requests = async {
            self.connections.tasks.wait().await;
            self.gateway.calls.wait().await;
        };
        if tokio::time::timeout(self.drain, requests).await.is_err() {
            tracing::warn!(calls = self.gateway.calls.len(), "the drain is over: ending calls");
        }
        self.gateway.abort.cancel();
        wait(&self.connections.tasks, END_OF_CALLS).await;
        wait(&self.gateway.calls, END_OF_CALLS).await;
        let unwritten = self.gateway.audit.shutdown(END_OF_AUDIT).await;
        self.stop_background.cancel();
        self.background.close();
        wait(&self.background, END_OF_CALLS).await;
        self.admin.close();
        wait(&self.admin.tasks, END_OF_CALLS).await;
        let leftovers = Leftovers {
            open_reservations: self.gateway.budgets.open(),
            leaked_reservations: self.gateway.budgets.leaked(),
            open_calls: self.gateway.calls.len(),
            open_connections: self.connections.tasks.len(),
            unwritten_audit_entries: unwritten.err().map_or(0, |unwritten| unwritten.0),
        };
        if leftovers.is_clean() {
            tracing::info!("stopped");
        } else {
            tracing::error!(?leftovers, "stopped with things left over");
        }
        leftovers
    }
}

/// Swaps a new configuration in, whole or not at all.
#[derive(Debug, Clone)]
pub struct Reloader {
    gateway: Arc<Gateway>,
    authenticator: Arc<Authenticator>,
}

impl Reloader {
    /// Makes models, providers, tiers, tools, redaction and the deny list those of `config`.
    /// Calls under way keep the ones that they began with.
    ///
    /// # Errors
    /// [`SnapshotError`]; nothing has changed then.
    pub fn reload(&self, config: &Config) -> Result<(), SnapshotError> {
        let key = self.gateway.snapshot.load().key.of(key_source(config))?;
        let vocabulary = Vocabulary::new(&config.capabilities.vocabulary);
        let snapshot = Snapshot::new(config, &vocabulary, key, &self.gateway.offload)?;
        self.gateway.redactor.set(Arc::clone(&snapshot.redactor));
        self.gateway.snapshot.store(Arc::new(snapshot));
        self.gateway.meter.estimator.retain(model_names(config));
        self.authenticator.set_deny_list(&config.auth.deny);
        let request_id = RequestId::generate();
        let mut entry = Entry::new(EntryKind::Reload, "reload", request_id.as_str());
        entry.outcome = Some("ok");
        let audit = self.gateway.audit.clone();
        self.gateway.calls.spawn(async move { audit.record(entry).await });
        Ok(())
    }
}

fn gateway(
    config: &Config,
    snapshot: Snapshot,
    redactor: LiveRedactor,
    audit: Audit,
    notifier: Arc<dyn Notifier>,
    store: LedgerStore,
) -> Gateway {
    Gateway {
        offload: snapshot.offload.clone(),
        snapshot: ArcSwap::from_pointee(snapshot),
        audit,
        keeps_content: config.audit.content == AuditContent::Redacted,
        redactor,
        redactions: Tally::default(),
        budgets: Budgets::new(leased(store.ledger, config.budget.lease_ms))
            .with_health(store.health),
        meter: TokenMeter::new(Estimator::new(model_names(config))),
        notifier,
        busts: Busts::default(),
        queues: FairQueues::new(QueueBounds {
            max_waiting: config.budget.queue_limit,
            max_wait: Duration::from_millis(config.budget.queue_wait_ms),
        }),
        hub: Arc::new(Hub::new(&config.stream)),
        calls: TaskTracker::new(),
        abort: CancellationToken::new(),
        request_timeout: Duration::from_secs(config.server.request_timeout_s),
        orphan_timeout: Duration::from_secs(config.stream.orphan_timeout_s),
    }
}

fn key_source(config: &Config) -> KeySource {
    KeySource::new(&config.redaction, &config.audit.path)
}

fn model_names(config: &Config) -> impl Iterator<Item = &str> {
    config.models.iter().map(|model| &*model.name)
}

fn settings(config: &Config) -> Settings {
    let ServerConfig { body_limit_bytes, body_idle_timeout_s, ref trusted_proxies, .. } =
        config.server;
    Settings {
        body_limit_bytes,
        body_idle_timeout: Duration::from_secs(body_idle_timeout_s),
        keepalive: Duration::from_secs(config.stream.keepalive_s),
        trusted_proxies: trusted_proxies.clone(),
        max_in_flight: config.admission.max_in_flight,
        address_requests_per_second: config.admission.address_requests_per_second,
        address_burst: config.admission.address_burst,
        caller_requests_per_second: config.admission.caller_requests_per_second,
        caller_burst: config.admission.caller_burst,
    }
}

/// What the gateway does beside its calls.
fn start_tasks(gateway: &Arc<Gateway>, lost_calls: LostCalls, sweeper: &Sweeper) {
    let hub = Arc::clone(&gateway.hub);
    sweeper.every_minute(move || hub.sweep());
    sweeper.tasks.spawn(lost_calls.close(Arc::clone(gateway)));
    sweeper.tasks.spawn(gateway.budgets.clone().keep_alive(sweeper.stop.clone()));
}

/// What waits in the spool is read whole; the checkpoints' key is made at the first start: all on a
/// thread that may block.
async fn open_files(config: &Config) -> Result<(Spool, Checkpointer), StartError> {
    let audit = config.audit.clone();
    let open = move || Ok((Spool::of(&audit)?, Checkpointer::of(&audit)?));
    tokio::task::spawn_blocking(open).await.map_err(|lost| StartError::Thread(lost.into()))?
}

/// Waits for a closed tracker's tasks; false if time runs out.
async fn wait(tasks: &TaskTracker, patience: Duration) -> bool {
    tokio::time::timeout(patience, tasks.wait()).await.is_ok()
}
