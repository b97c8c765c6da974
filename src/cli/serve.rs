//! `tollgate serve`: from a configuration to a gateway, until a signal ends it.

use std::{io, path::Path};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Failure, runtime};
use crate::{
    app::{App, StartError},
    config::{self, Config, reload},
    telemetry::Telemetry,
};

pub(super) fn run(path: &Path) -> Result<(), Failure> {
    let config = config::load(path, config::environment())?;
    let telemetry = Telemetry::start(&config.telemetry)?;
    runtime()?.block_on(async {
        let served = serve(path, &config).await;
        telemetry.shutdown().await;
        served
    })
}

async fn serve(path: &Path, config: &Config) -> Result<(), Failure> {
    let mut told = StopSignal::listen()?;
    // From here on SIGHUP does not end the process. One that comes before the watcher listens is
    // not lost: the watcher's first look at the file sees what it was sent for.
    let _hangups = signal(SignalKind::hangup())?;
    let Some(app) = start(config, &mut told).await? else { return Ok(()) };
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let watcher = reload::Reloader::new(path, config::environment(), config.clone());
    let reloader = app.reloader();
    let watching = reload::watch(watcher, reload::POLL_PERIOD, stop.clone(), move |new| {
        if let Err(error) = reloader.reload(&new.config) {
            tracing::error!(%error, "the configuration was not reloaded; the running one stays");
        }
    });
    tasks.spawn(async move {
        if let Err(error) = watching.await {
            tracing::error!(%error, "the configuration is no longer watched");
        }
    });
    told.wait().await;
    stop.cancel();
    tasks.close();
    tasks.wait().await;
    end(app, &mut told).await
}

/// Starts the gateway; `None` if it was told to stop before it had started.
pub(super) async fn start(
    config: &Config,
    told: &mut StopSignal,
) -> Result<Option<App>, StartError> {
    tokio::select! {
        started = App::start(config) => started.map(Some),
        () = told.wait() => Ok(None),
    }
}

/// Drains and stops. A second signal does not wait for the drain.
pub(super) async fn end(app: App, told: &mut StopSignal) -> Result<(), Failure> {
    tokio::select! {
        leftovers = app.shutdown() => {
            if leftovers.is_clean() {
                Ok(())
            } else {
                Err(format!("stopped with things left over: {leftovers:?}").into())
            }
        }
        () = told.wait() => Err("told to stop twice: stopped without draining".into()),
    }
}

/// SIGTERM and SIGINT. They are listened to before anything starts: until then they would end the
/// process on the spot, whatever it had begun.
pub(super) struct StopSignal {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignal {
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next one.
    pub(super) async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
