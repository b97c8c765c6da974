//! Connections that read.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use sqlx::{AssertSqlSafe, PgConnection};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{
    PostgresError,
    connection::{Connector, Role},
    error::{QUERY_CANCELED, code},
    migration::Schema,
};
use crate::{audit::query::QueryError, config::AuditConfig};

/// Connections for each gateway: questions are few, and the database serves many gateways.
const CONNECTIONS: usize = 4;
/// How long a question may take.
const QUERY_LIMIT: Duration = Duration::from_secs(5);
/// How long is waited for a connection that others have.
const WAIT_LIMIT: Duration = Duration::from_secs(2);

/// Opened as they are needed, and again where they were lost.
#[derive(Debug)]
pub(super) struct ReadPool {
    connector: Connector,
    idle: Mutex<Vec<PgConnection>>,
    room: Semaphore,
}

impl ReadPool {
    pub(super) fn new(config: &AuditConfig) -> Result<Self, PostgresError> {
        Ok(Self {
            connector: Connector::new(config)?,
            idle: Mutex::default(),
            room: Semaphore::new(CONNECTIONS),
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
        let room = tokio::time::timeout(WAIT_LIMIT, self.room.acquire()).await;
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
        // Which index serves depends on the values: what is rare has one of its own.
        let settings = format!(
            "SET statement_timeout = {}; SET plan_cache_mode = force_custom_plan; \
             SET default_transaction_read_only = on",
            QUERY_LIMIT.as_millis()
        );
        sqlx::raw_sql(AssertSqlSafe(settings)).execute(&mut connection).await?;
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
                Err(QueryError::TooSlow(QUERY_LIMIT.as_secs()))
            }
            Err(error) => Err(QueryError::read(error)),
        }
    }
}
