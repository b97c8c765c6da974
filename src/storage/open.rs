//! The store that a configuration asks for.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    postgres::{self, PostgresError, PostgresTrail},
    sqlite::{self, StorageError},
};
use crate::{
    audit::{AuditSink, OpenIntents, query::AuditQuery},
    config::{AuditConfig, AuditStore},
};

/// How often what is too old is looked for.
const RETIRE_INTERVAL: Duration = Duration::from_hours(1);

/// The store can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("audit.path: {0}")]
    Sqlite(#[from] StorageError),
    #[error(transparent)]
    Postgres(#[from] PostgresError),
}

/// Could [`open_sink`] make something of it? Connects to nothing.
///
/// # Errors
/// [`StoreError`].
pub fn check(config: &AuditConfig) -> Result<(), StoreError> {
    match config.store {
        AuditStore::Sqlite => Ok(()),
        AuditStore::Postgres => Ok(postgres::sink(config).map(drop)?),
    }
}

/// Opens the store for writing, and starts on `tasks` what it needs now and then. A Postgres that is
/// away is no error: entries wait in the spool.
///
/// # Errors
/// [`StoreError`].
pub async fn open_sink(
    config: &AuditConfig,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) -> Result<Arc<dyn AuditSink>, StoreError> {
    match config.store {
        AuditStore::Sqlite => Ok(Arc::new(sqlite::open(&config.path).await?)),
        AuditStore::Postgres => {
            let sink = Arc::new(postgres::sink(config)?);
            let (warmed, stopped) = (Arc::clone(&sink), stop.clone());
            tasks.spawn(async move { stopped.run_until_cancelled(warmed.warm()).await });
            if config.retention_days.is_some() {
                let (config, stopped) = (config.clone(), stop.clone());
                tasks.spawn(async move { stopped.run_until_cancelled(retire(config)).await });
            }
            Ok(sink)
        }
    }
}

/// The trail, to be asked beside a sink that is open. A Postgres that is away is no error: questions
/// are, until it is back.
///
/// # Errors
/// [`StoreError`].
pub async fn open_trail(config: &AuditConfig) -> Result<Arc<dyn AuditQuery>, StoreError> {
    Ok(match config.store {
        AuditStore::Sqlite => Arc::new(sqlite::AuditReader::open(&config.path).await?),
        AuditStore::Postgres => Arc::new(PostgresTrail::new(config)?),
    })
}

/// As [`open_trail`], for who asks now or never.
///
/// # Errors
/// [`StoreError`], also where the database does not answer.
pub async fn ask_trail(config: &AuditConfig) -> Result<Arc<dyn AuditQuery>, StoreError> {
    match config.store {
        AuditStore::Sqlite => open_trail(config).await,
        AuditStore::Postgres => Ok(Arc::new(PostgresTrail::open(config).await?)),
    }
}

/// Where the store's open intents are found. Opens nothing yet.
///
/// # Errors
/// [`StoreError`].
pub fn open_intents(config: &AuditConfig) -> Result<Arc<dyn OpenIntents>, StoreError> {
    match config.store {
        AuditStore::Sqlite => Ok(Arc::new(sqlite::open_intents(&config.path))),
        AuditStore::Postgres => Ok(Arc::new(postgres::open_intents(config)?)),
    }
}

/// Takes entries that are too old out of the store, for ever.
async fn retire(config: AuditConfig) {
    let mut interval = tokio::time::interval(RETIRE_INTERVAL);
    loop {
        interval.tick().await;
        if let Err(error) = postgres::retire(&config, Timestamp::now()).await {
            tracing::error!(%error, "old audit entries stay in the store; to be tried again");
        }
    }
}
