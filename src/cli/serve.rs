//! `tollgate serve`: from a configuration to a gateway, until a signal ends it.

use std::{io, path::Path};

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Failure, runtime};
use crate::{
    app::App,
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
    let app = App::start(config).await?;
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
    until_told_to_stop().await?;
    stop.cancel();
    tasks.close();
    tasks.wait().await;
    end(app).await
}

/// Drains and stops. A second signal does not wait for the drain.
pub(super) async fn end(app: App) -> Result<(), Failure> {
    tokio::select! {
        leftovers = app.shutdown() => {
            if leftovers.is_clean() {
                Ok(())
            } else {
                Err(format!("stopped with things left over: {leftovers:?}").into())
            }
        }
        told = until_told_to_stop() => {
            told?;
            Err("told to stop twice: stopped without draining".into())
        }
    }
}

/// Waits for SIGTERM or SIGINT.
pub(super) async fn until_told_to_stop() -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
