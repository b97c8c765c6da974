//! Connections, each with its deadlines and checked to be to a server that will do.

use std::{fmt, future::Future, str::FromStr, time::Duration};

use secrecy::{ExposeSecret, SecretString};
use sqlx::{AssertSqlSafe, ConnectOptions, PgConnection, Row, postgres::PgConnectOptions};
use tokio::time::timeout;

use super::PostgresError;
use crate::config::AuditConfig;

const OLDEST_SERVER: i32 = 150_000;
/// How much longer than the server a statement's answer is waited for: the server gives up first,
/// and says so, unless it is out of reach.
const GRACE: Duration = Duration::from_secs(5);

/// How to connect: as the gateway, and as the owner of what is in the database.
#[derive(Clone)]
pub(super) struct Connector {
    gateway: PgConnectOptions,
    owner: Option<PgConnectOptions>,
    connect_timeout: Duration,
    statement_timeout: Duration,
}

/// As whom to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// That of `audit.url`.
    Gateway,
    /// That of `audit.owner_url`, or where it is not set of `audit.url`.
    Owner,
}

/// Written out because sqlx shows the password.
impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, port) = (self.gateway.get_host(), self.gateway.get_port());
        f.debug_struct("Connector")
            .field("host", &host)
            .field("port", &port)
            .field("database", &self.gateway.get_database())
            .field("role", &self.gateway_role())
            .finish_non_exhaustive()
    }
}

impl Connector {
    pub(super) fn new(config: &AuditConfig) -> Result<Self, PostgresError> {
        let missing =
            || PostgresError::Url { key: "audit.url", reason: "it is missing".to_owned() };
        let url = config.url.as_ref().ok_or_else(missing)?;
        let owner = config.owner_url.as_ref().map(|url| options("audit.owner_url", url));
        Ok(Self {
            gateway: options("audit.url", url)?,
            owner: owner.transpose()?,
            connect_timeout: Duration::from_millis(config.connect_timeout_ms),
            statement_timeout: Duration::from_millis(config.statement_timeout_ms),
        })
    }

    /// The user of `audit.url`.
    pub(super) fn gateway_role(&self) -> &str {
        self.gateway.get_username()
    }

    /// Connects and makes the session ours.
    pub(super) async fn connect(&self, role: Role) -> Result<PgConnection, PostgresError> {
        let options = match role {
            Role::Gateway => &self.gateway,
            Role::Owner => self.owner.as_ref().unwrap_or(&self.gateway),
        };
        let connecting = async {
            let mut connection = options.connect().await.map_err(PostgresError::Connect)?;
            self.begin(&mut connection).await?;
            Ok(connection)
        };
        let late = PostgresError::TimedOut(self.connect_timeout.as_secs());
        timeout(self.connect_timeout, connecting).await.unwrap_or(Err(late))
    }

    /// In one trip, as trips may take long.
    async fn begin(&self, connection: &mut PgConnection) -> Result<(), PostgresError> {
        // A transaction whose gateway is out of reach must not hold its locks for long.
        let begin = format!(
            "SET search_path = tollgate; SET statement_timeout = {timeout}; \
             SET idle_in_transaction_session_timeout = {timeout}; SET synchronous_commit = on; \
             SELECT current_setting('server_version_num')::int, current_setting('server_encoding')",
            timeout = self.statement_timeout.as_millis()
        );
        let facts = sqlx::raw_sql(AssertSqlSafe(begin)).fetch_one(connection).await?;
        let (version, encoding): (i32, String) = (facts.try_get(0)?, facts.try_get(1)?);
        if version < OLDEST_SERVER {
            return Err(PostgresError::TooOld(version / 10_000));
        }
        if encoding != "UTF8" {
            return Err(PostgresError::Encoding(encoding));
        }
        Ok(())
    }

    /// Waits for a statement's answer, and no longer than there can be one.
    pub(super) async fn answered<T>(
        &self,
        statement: impl Future<Output = sqlx::Result<T>>,
    ) -> Result<T, PostgresError> {
        let patience = self.statement_timeout + GRACE;
        match timeout(patience, statement).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(PostgresError::TimedOut(patience.as_secs())),
        }
    }
}

fn options(key: &'static str, url: &SecretString) -> Result<PgConnectOptions, PostgresError> {
    let bad = |error: sqlx::Error| PostgresError::Url { key, reason: reason(&error) };
    let options = PgConnectOptions::from_str(url.expose_secret()).map_err(bad)?;
    Ok(options.application_name("tollgate").disable_statement_logging())
}

/// Why a URL is none. Sources name the part that is wrong, not the URL.
fn reason(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Configuration(source) => source.to_string(),
        other => other.to_string(),
    }
}
