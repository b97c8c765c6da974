//! Connections that read.

use std::sync::{Mutex, MutexGuard, PoisonError};

use sqlx::{AssertSqlSafe, PgConnection};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{
    PostgresError,
    connection::{Connector, Role},
    error::{QUERY_CANCELED, code},
    migration::Schema,
};
use crate::{
    audit::query::{QueryError, QueryLimits},
    config::AuditConfig,
};

/// How soon the database is to see that nobody waits for an answer any more, in milliseconds; it
/// would go on until then. It can on Linux and the BSDs only.
const HANG_UP_MS: u32 = 100;

/// Opened as they are needed, and again where they were lost.
#[derive(Debug)]
pub(super) struct ReadPool {
    connector: Connector,
    limits: QueryLimits,
    idle: Mutex<Vec<PgConnection>>,
    room: Semaphore,
}

impl ReadPool {
    pub(super) fn new(config: &AuditConfig, limits: QueryLimits) -> Result<Self, PostgresError> {
        Ok(Self {
            connector: Connector::new(config)?,
            limits,
            idle: Mutex::default(),
            room: Semaphore::new(limits.at_once),
        })
    }

    /// Connects once, which says whether there is a trail to ask.
    pub(super) async fn check(&self) -> Result<(), PostgresError> {
        let connection = self.connect().await?;
        self.idle().push(connection);
        Ok(())
    }

    /// A connection for one question.
    pub(super) async fn borrow(&self) -> Result<Loan<'_>, QueryError> {
        let room = tokio::time::timeout(self.limits.wait, self.room.acquire()).await;
        let room = room.ok().and_then(Result::ok).ok_or(QueryError::Busy)?;
        let idle = self.idle().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => self.connect().await.map_err(QueryError::read)?,
        };
        Ok(Loan { connection, pool: self, _room: room })
    }

    async fn connect(&self) -> Result<PgConnection, PostgresError> {
        let mut connection = self.connector.connect(Role::Gateway).await?;
        let schema = self.connector.answered(Schema::read(&mut connection)).await?;
        if schema.as_ref().map(Schema::is_current).transpose()? != Some(true) {
            let role = self.connector.gateway_role().to_owned();
            return Err(PostgresError::NotMigrated { role });
        }
        // Which index serves depends on the values. Compiling a plan takes longer than any question.
        let settings = format!(
            "SET statement_timeout = {}; SET plan_cache_mode = force_custom_plan; \
             SET jit = off; \
             SET default_transaction_read_only = on",
            self.limits.answer.as_millis().max(1)
        );
        sqlx::raw_sql(AssertSqlSafe(settings)).execute(&mut connection).await?;
        let hang_up = format!("SET client_connection_check_interval = {HANG_UP_MS}");
        if let Err(error) = sqlx::raw_sql(AssertSqlSafe(hang_up)).execute(&mut connection).await {
            tracing::debug!(%error, "the database goes on answering those who have gone");
        }
        Ok(connection)
    }

    /// No code that can panic runs under the lock, so poison is no harm.
    fn idle(&self) -> MutexGuard<'_, Vec<PgConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection on loan. Where its question is dropped midway, or fails, it does not come back.
pub(super) struct Loan<'a> {
    connection: PgConnection,
    pool: &'a ReadPool,
    _room: SemaphorePermit<'a>,
}

impl Loan<'_> {
    /// Waits for the answer to a question, and gives the connection back.
    pub(super) async fn ask<T>(
        mut self,
        ask: impl AsyncFnOnce(&mut PgConnection) -> sqlx::Result<T>,
    ) -> Result<T, QueryError> {
        let answer = self.pool.connector.answered(ask(&mut self.connection)).await;
        let Self { connection, pool, .. } = self;
        match answer {
            Ok(answer) => {
                pool.idle().push(connection);
                Ok(answer)
            }
            Err(PostgresError::Query(error)) if code(&error).as_deref() == Some(QUERY_CANCELED) => {
                pool.idle().push(connection);
                Err(QueryError::TooSlow(pool.limits.answer.as_secs()))
            }
            Err(error) => Err(QueryError::read(error)),
        }
    }
}
