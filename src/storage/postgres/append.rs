//! Writing records.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::sync::Mutex;

use super::{
    PostgresError,
    connection::{Connector, Role},
    dead_letter,
    migration::{self, Schema},
    partition::Days,
    row,
};
use crate::audit::{AuditSink, Linked, SinkError};

/// Connecting and statements have their deadlines; this is for a schema that is being migrated.
const DEADLINE: Duration = Duration::from_hours(1);

/// The audit trail in a Postgres database. It connects when there is something to write, again after
/// each failure, and brings the schema up to date where it may: so a gateway starts while the
/// database is away.
#[derive(Debug)]
pub struct PostgresSink {
    connector: Connector,
    statement: Arc<str>,
    /// Taken out while it is used: one that is given up midway is closed and not used again.
    session: Mutex<Option<Session>>,
    dead_letters: AtomicU64,
}

#[derive(Debug)]
struct Session {
    connection: PgConnection,
    days: Days,
}

impl PostgresSink {
    pub(super) fn new(connector: Connector) -> Self {
        Self {
            connector,
            statement: row::insert().into(),
            session: Mutex::default(),
            dead_letters: AtomicU64::new(0),
        }
    }

    /// Connects before there is anything to write, and says what is wrong if that fails.
    pub async fn warm(&self) {
        let mut session = self.session.lock().await;
        if session.is_some() {
            return;
        }
        match self.open().await {
            Ok(opened) => *session = Some(opened),
            Err(error) => tracing::error!(
                %error,
                "the audit store can't be used yet: entries wait in the spool; calls go on"
            ),
        }
    }

    async fn open(&self) -> Result<Session, PostgresError> {
        let mut connection = self.connector.connect(Role::Gateway).await?;
        let mut schema = self.connector.answered(Schema::read(&mut connection)).await?;
        if schema.as_ref().map(Schema::is_current).transpose()? != Some(true) {
            let applied = migration::run(&self.connector).await?;
            tracing::info!(applied, "the audit database is migrated");
            schema = self.connector.answered(Schema::read(&mut connection)).await?;
        }
        if schema.is_some_and(|schema| schema.is_changeable) {
            let role = self.connector.gateway_role();
            tracing::warn!(
                role,
                "the role of audit.url may change audit entries: give the gateway one of its own, and \
                 their owner's to audit.owner_url"
            );
        }
        Ok(Session { connection, days: Days::default() })
    }

    async fn write(
        &self,
        session: &mut Session,
        records: &[Linked<'_>],
    ) -> Result<(), PostgresError> {
        let Session { connection, days } = session;
        days.make(&self.connector, connection, records).await?;
        match self.insert(connection, records).await {
            Err(PostgresError::Query(error)) if dead_letter::is_of_a_row(&error) => {
                self.write_apart(connection, records).await
            }
            written => written,
        }
    }

    async fn insert(
        &self,
        connection: &mut PgConnection,
        records: &[Linked<'_>],
    ) -> Result<(), PostgresError> {
        let arguments = row::bind(records).map_err(sqlx::Error::Encode)?;
        let insert = sqlx::query_as_with(AssertSqlSafe(Arc::clone(&self.statement)), arguments);
        let (new, superseded): (i64, i64) =
            self.connector.answered(insert.fetch_one(connection)).await?;
        tracing::trace!(sent = records.len(), new, superseded, "audit entries written");
        Ok(())
    }

    /// Finds the rows that are refused, by halves, and keeps them apart; all or nothing.
    async fn write_apart(
        &self,
        connection: &mut PgConnection,
        records: &[Linked<'_>],
    ) -> Result<(), PostgresError> {
        let mut transaction = self.connector.answered(connection.begin()).await?;
        let mut refused = 0;
        let mut parts = vec![records];
        while let Some(part) = parts.pop() {
            // A savepoint, to go back to.
            let mut attempt = self.connector.answered(transaction.begin()).await?;
            match self.insert(&mut attempt, part).await {
                Ok(()) => self.connector.answered(attempt.commit()).await?,
                Err(PostgresError::Query(error)) if dead_letter::is_of_a_row(&error) => {
                    self.connector.answered(attempt.rollback()).await?;
                    if let [linked] = part {
                        let kept = dead_letter::keep(&mut transaction, linked, &error);
                        self.connector.answered(kept).await?;
                        refused += 1;
                    } else {
                        let (first, second) = part.split_at(part.len() / 2);
                        parts.extend([second, first]);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        self.connector.answered(transaction.commit()).await?;
        self.dead_letters.fetch_add(refused, Ordering::Relaxed);
        Ok(())
    }
}

#[async_trait]
impl AuditSink for PostgresSink {
    async fn append(&self, records: &[Linked<'_>]) -> Result<(), SinkError> {
        if records.is_empty() {
            return Ok(());
        }
        let mut slot = self.session.lock().await;
        let mut session = match slot.take() {
            Some(session) => session,
            None => self.open().await?,
        };
        self.write(&mut session, records).await?;
        *slot = Some(session);
        Ok(())
    }

    fn deadline(&self) -> Duration {
        DEADLINE
    }

    fn dead_letters(&self) -> u64 {
        self.dead_letters.load(Ordering::Relaxed)
    }
}
