//! `tollgate serve`: from a configuration to a gateway, until a signal ends it.

use std::{io, path::Path};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Failure, check_config::rule_faults, file_limit, runtime};
use crate::{
    app::{App, StartError},
    config::{self, Config, reload},
    redact::LiveRedactor,
    telemetry::Telemetry,
};

pub(super) fn run(path: &Path) -> Result<(), Failure> {
    let config = config::load_with(path, config::environment(), &rule_faults)?;
    let telemetry = Telemetry::start(&config.telemetry)?;
    runtime()?.block_on(async {
        let served = serve(path, &config, telemetry.redactor().clone()).await;
        telemetry.shutdown().await;
        served
    })
}

async fn serve(path: &Path, config: &Config, redactor: LiveRedactor) -> Result<(), Failure> {
    file_limit::raise();
    file_limit::warn_if_short(&config.admission);
    let mut signals = Signals::listen()?;
    // A signal that nobody listens for kills. What one asks for before `watch` listens too, its
    // first look does.
    let _hangups = signal(SignalKind::hangup())?;
    let Some(app) = start(config, redactor, &mut signals).await? else { return Ok(()) };
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let watcher = reload::Reloader::new(path, config::environment(), config.clone());
    let reloader = app.reloader();
    let watching = reload::watch(watcher, reload::POLL_PERIOD, stop.clone(), move |new| {
        // To compile the redaction's rules takes longer than other tasks should wait.
        if let Err(error) = tokio::task::block_in_place(|| reloader.reload(&new.config)) {
            tracing::error!(%error, "the configuration was not reloaded; the running one stays");
        }
    });
    tasks.spawn(async move {
        if let Err(error) = watching.await {
            tracing::error!(%error, "the configuration is no longer watched");
        }
    });
    end(app, signals, async || {
        stop.cancel();
        tasks.close();
        tasks.wait().await;
    })
    .await
}

/// SIGTERM and SIGINT. Listened for before anything is begun that they must not cut off.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn told_to_stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Starts the gateway; `None` if it was told to stop before it had started.
pub(super) async fn start(
    config: &Config,
    redactor: LiveRedactor,
    signals: &mut Signals,
) -> Result<Option<App>, StartError> {
    tokio::select! {
        started = App::start_with(config, redactor) => started.map(Some),
        () = signals.told_to_stop() => Ok(None),
    }
}

/// Waits for a signal, then drains and stops. A second signal does not wait for the drain.
pub(super) async fn end(
    app: App,
    mut signals: Signals,
    before: impl AsyncFnOnce(),
) -> Result<(), Failure> {
    signals.told_to_stop().await;
    before().await;
    tokio::select! {
        leftovers = app.shutdown() => {
            if leftovers.is_clean() {
                Ok(())
            } else {
                Err(format!("stopped with things left over: {leftovers:?}").into())
            }
        }
        () = signals.told_to_stop() => {
            Err("told to stop twice: stopped without draining".into())
        }
    }
}
