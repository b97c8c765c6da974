//! Connections that read, apart from the one that writes.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use sqlx::SqliteConnection;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{StorageError, migration, reader};
use crate::audit::query::{QueryError, QueryLimits};

/// SQLite looks at the time after so many steps of its machine: some hundred microseconds.
const STEPS: i32 = 10_000;

/// Opened as they are needed. They never hold a lock that a writer waits for.
#[derive(Debug)]
pub(super) struct ReadPool {
    path: PathBuf,
    limits: QueryLimits,
    idle: Mutex<Vec<Connection>>,
    room: Semaphore,
}

#[derive(Debug)]
struct Connection {
    connection: SqliteConnection,
    deadline: Arc<Deadline>,
}

/// When the statement that runs is to be given up.
#[derive(Debug)]
struct Deadline {
    base: Instant,
    micros: AtomicU64,
}

impl Deadline {
    fn set(&self, within: Duration) {
        let at = u64::try_from((self.base.elapsed() + within).as_micros()).unwrap_or(u64::MAX);
        self.micros.store(at, Ordering::Relaxed);
    }

    fn has_passed(&self) -> bool {
        self.base.elapsed().as_micros() >= u128::from(self.micros.load(Ordering::Relaxed))
    }
}

impl ReadPool {
    /// Opens the first connection, which says whether the database is one of ours.
    pub(super) async fn open(path: &Path, limits: QueryLimits) -> Result<Self, StorageError> {
        let mut first = connect(path).await?;
        migration::check_whole(path, &mut first.connection).await?;
        Ok(Self {
            path: path.to_owned(),
            limits,
            idle: Mutex::new(vec![first]),
            room: Semaphore::new(limits.at_once),
        })
    }

    /// A connection, for one question that has [`QueryLimits::answer`] of the machine's time.
    pub(super) async fn borrow(&self) -> Result<Loan<'_>, QueryError> {
        let room = tokio::time::timeout(self.limits.wait, self.room.acquire()).await;
        let room = room.ok().and_then(Result::ok).ok_or(QueryError::Busy)?;
        let idle = self.idle().pop();
        let lent = match idle {
            Some(connection) => connection,
            None => connect(&self.path).await.map_err(QueryError::read)?,
        };
        lent.deadline.set(self.limits.answer);
        let giving_up = GivingUp(Arc::clone(&lent.deadline));
        Ok(Loan { lent, pool: self, _giving_up: giving_up, _room: room })
    }

    /// No code that can panic runs under the lock, so poison is no harm.
    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const INTERRUPTED: &str = "9";

async fn connect(path: &Path) -> Result<Connection, StorageError> {
    let mut connection = reader::connect(path).await?;
    let deadline = Arc::new(Deadline { base: Instant::now(), micros: AtomicU64::new(u64::MAX) });
    let watched = Arc::clone(&deadline);
    let handle = connection.lock_handle().await;
    let mut handle =
        handle.map_err(|source| StorageError::Open { path: path.to_owned(), source })?;
    handle.set_progress_handler(STEPS, move || !watched.has_passed());
    drop(handle);
    Ok(Connection { connection, deadline })
}

/// A connection on loan. Where its question is dropped midway it does not come back: what it still
/// does is given up, and it is closed.
pub(super) struct Loan<'a> {
    lent: Connection,
    pool: &'a ReadPool,
    _giving_up: GivingUp,
    _room: SemaphorePermit<'a>,
}

struct GivingUp(Arc<Deadline>);

impl Drop for GivingUp {
    fn drop(&mut self) {
        self.0.set(Duration::ZERO);
    }
}

impl Loan<'_> {
    pub(super) fn connection(&mut self) -> &mut SqliteConnection {
        &mut self.lent.connection
    }

    /// Gives the connection back, now that it has answered.
    pub(super) fn end<T>(self, answer: sqlx::Result<T>) -> Result<T, QueryError> {
        let Self { lent, pool, .. } = self;
        pool.idle().push(lent);
        answer.map_err(|error| match &error {
            sqlx::Error::Database(told) if told.code().as_deref() == Some(INTERRUPTED) => {
                QueryError::TooSlow(pool.limits.answer.as_secs())
            }
            _ => QueryError::read(error),
        })
    }
}
