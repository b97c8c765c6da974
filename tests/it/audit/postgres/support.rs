//! A database, the sink that writes to it, and its rows.

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use secrecy::ExposeSecret;
use sqlx::{
    AssertSqlSafe, ConnectOptions, FromRow, PgConnection,
    postgres::{PgConnectOptions, PgRow},
};
use tokio::sync::Mutex;
use tollgate::{
    audit::AuditSink,
    config::{AuditConfig, AuditStore},
    storage::postgres::{self, PostgresSink},
};

use super::super::{contract::Fixture, support::Line};
use crate::support::postgres::{Database, PostgresServer};

/// The server of this process, for as long as anybody stands on it.
static SERVER: Mutex<Weak<PostgresServer>> = Mutex::const_new(Weak::new());

async fn server() -> Arc<PostgresServer> {
    let mut server = SERVER.lock().await;
    if let Some(server) = server.upgrade() {
        return server;
    }
    let started = Arc::new(PostgresServer::start().await);
    *server = Arc::downgrade(&started);
    started
}

/// A migrated database of the test's own, and a sink with the gateway's role.
pub struct Postgres {
    pub config: AuditConfig,
    pub sink: PostgresSink,
    pub database: Database,
    /// None where the test holds it.
    _server: Option<Arc<PostgresServer>>,
}

/// As in production: two roles.
pub fn config(database: &Database) -> AuditConfig {
    AuditConfig {
        store: AuditStore::Postgres,
        url: Some(database.gateway_url()),
        owner_url: Some(database.owner_url()),
        ..AuditConfig::default()
    }
}

impl Postgres {
    pub async fn start() -> Self {
        Self::start_with("").await
    }

    /// `options` of CREATE DATABASE.
    pub async fn start_with(options: &str) -> Self {
        let server = server().await;
        let database = server.database_with(options).await;
        Self { _server: Some(server), ..Self::on(database) }
    }

    /// On a server that the test has started.
    pub fn on(database: Database) -> Self {
        let config = config(&database);
        let sink = postgres::sink(&config).unwrap();
        Self { config, sink, database, _server: None }
    }

    /// A connection of the gateway's role.
    pub async fn gateway(&self) -> PgConnection {
        let options: PgConnectOptions =
            self.database.gateway_url().expose_secret().parse().unwrap();
        options.connect().await.unwrap()
    }

    pub async fn rows<T: for<'r> FromRow<'r, PgRow> + Send + Unpin>(&self, sql: &str) -> Vec<T> {
        let mut superuser = self.database.superuser().await;
        let query = sqlx::query_as(AssertSqlSafe(sql.to_owned()));
        query.fetch_all(&mut superuser).await.unwrap()
    }

    pub async fn number(&self, sql: &str) -> i64 {
        self.rows::<(i64,)>(sql).await[0].0
    }
}

#[async_trait(?Send)]
impl Fixture for Postgres {
    async fn make() -> Self {
        Self::start().await
    }

    fn sink(&self) -> &dyn AuditSink {
        &self.sink
    }

    async fn lines(&self) -> Vec<Line> {
        let mut reader = match postgres::AuditReader::open(&self.config).await {
            // Nothing was ever written.
            Err(postgres::PostgresError::NotMigrated { .. }) => return Vec::new(),
            opened => opened.unwrap(),
        };
        let (mut lines, mut last) = (Vec::new(), 0);
        loop {
            let entries = reader.after(last).await.unwrap();
            let Some(newest) = entries.last() else { return lines };
            last = newest.seq;
            lines.extend(entries.into_iter().map(Line::from));
        }
    }
}
