//! The embedded store: one SQLite file, written by one gateway and read by anyone it allows.

mod append;
mod block;
mod bloom;
mod chain;
mod content;
mod migration;
mod open_intent;
mod page;
mod pool;
mod reader;
mod row;
mod text;
mod usage;

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use sqlx::{
    ConnectOptions, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};
use tokio::{
    fs,
    time::{Instant, sleep},
};

pub use append::SqliteSink;
pub use chain::SqliteChain;
pub use open_intent::SqliteOpenIntents;
pub use reader::AuditReader;

/// How long a writer waits for another process's lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);
const BUSY_PAUSE: Duration = Duration::from_millis(10);
/// Pages in the log before it is copied into the database. The commit that gets there
/// pays for the copy, some 10 ms; pages that changed often are copied once.
const CHECKPOINT_PAGES: &str = "2000";
/// Of a new database. A batch is written page by page, so larger ones are fewer writes.
const PAGE_BYTES: u32 = 16_384;
/// In KiB, negative: what a transaction changes. With less, its pages are written to the log in its
/// middle and again at its end, and read back in between.
const CACHE_SIZE: &str = "-2048";
/// What the log is cut back to after a checkpoint that could not start it over for long.
const LOG_LIMIT_BYTES: &str = "67108864";

/// The database can't be used as it is.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    #[error(
        "no audit database at {}: start tollgate first, or pass --config or --path", .0.display()
    )]
    Missing(PathBuf),
    #[error("can't make the directory {}: {source}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("can't make the audit database {}: {source}", path.display())]
    Create { path: PathBuf, source: io::Error },
    #[error("can't open the audit database {}: {source}", path.display())]
    Open { path: PathBuf, source: sqlx::Error },
    #[error(
        "the database {} was written by a newer tollgate (migration {version} is unknown here): \
         use that version", path.display()
    )]
    Newer { path: PathBuf, version: i64 },
    #[error(
        "the database {} holds no audit trail: is it tollgate's? `tollgate migrate` makes one",
        .0.display()
    )]
    NoAudit(PathBuf),
    #[error(
        "the database {} was written by an older tollgate: bring it to this version's schema with \
         `tollgate migrate`", .0.display()
    )]
    Older(PathBuf),
    #[error("can't migrate the database {}: {source}", path.display())]
    Migrate { path: PathBuf, source: Box<sqlx::migrate::MigrateError> },
}

/// Opens the database at `path` for writing; makes and migrates it as needed.
pub async fn open(path: &Path) -> Result<SqliteSink, StorageError> {
    let mut connection = connect(path).await?;
    bring_up_to_date(path, &mut connection).await?;
    Ok(SqliteSink::new(connection))
}

/// The open intents of the database at `path`. Opens nothing yet.
#[must_use]
pub fn open_intents(path: &Path) -> SqliteOpenIntents {
    SqliteOpenIntents::new(path)
}

/// Makes the database at `path` if it isn't there and brings it up to date.
///
/// Returns how many migrations were applied.
pub async fn migrate(path: &Path) -> Result<usize, StorageError> {
    bring_up_to_date(path, &mut connect(path).await?).await
}

async fn bring_up_to_date(
    path: &Path,
    connection: &mut SqliteConnection,
) -> Result<usize, StorageError> {
    let applied = migration::run(path, connection).await?;
    // After a migration that may take some seconds for each million rows, which a batch has not.
    let summed_up = block::sum_up(connection).await;
    summed_up.map_err(|source| StorageError::Open { path: path.to_owned(), source })?;
    Ok(applied)
}

async fn connect(path: &Path) -> Result<SqliteConnection, StorageError> {
    create(path).await?;
    let options = SqliteConnectOptions::new()
        .filename(path)
        .page_size(PAGE_BYTES)
        .journal_mode(SqliteJournalMode::Wal)
        // What is in the store is removed from the spool, so it must outlive a loss of power. No call
        // waits for it.
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(BUSY_TIMEOUT)
        .pragma("temp_store", "memory")
        .pragma("cache_size", CACHE_SIZE)
        .pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
        .pragma("journal_size_limit", LOG_LIMIT_BYTES)
        .thread_name(|_| "audit-sqlite".to_owned())
        .disable_statement_logging();
    let give_up = Instant::now() + BUSY_TIMEOUT;
    loop {
        // Two processes that switch a new file to WAL at once: SQLite tells one of them that it is
        // busy without waiting for the other (https://sqlite.org/wal.html, "Sometimes Queries
        // Return SQLITE_BUSY In WAL Mode").
        match options.connect().await {
            Err(source) if is_busy(&source) && Instant::now() < give_up => sleep(BUSY_PAUSE).await,
            Err(source) => return Err(StorageError::Open { path: path.to_owned(), source }),
            Ok(connection) => return Ok(connection),
        }
    }
}

fn is_busy(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    code.is_some_and(|code| code == "5")
}

/// Makes the file, readable by its owner alone (SQLite gives its log the same mode), and the
/// directory it is in. What is there already stays as it is.
async fn create(path: &Path) -> Result<(), StorageError> {
    if let Some(directory) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .await
            .map_err(|source| StorageError::Directory { path: directory.to_owned(), source })?;
    }
    fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path)
        .await
        .map(drop)
        .map_err(|source| StorageError::Create { path: path.to_owned(), source })
}
