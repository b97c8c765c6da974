//! A partition for each day, made before it is needed.

use std::{
    collections::HashSet,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use sqlx::PgConnection;
use tokio::time::Instant;

use super::{PostgresError, connection::Connector, error::code};
use crate::audit::Linked;

pub(super) const MICROS_PER_DAY: i64 = 86_400_000_000;
/// So many days ahead of today: who must not make tables at once has so long to see why it fails.
const DAYS_AHEAD: i64 = 7;
/// After a failure, such as a lock held by a long query, it is tried again so much later.
const PAUSE: Duration = Duration::from_mins(1);
/// Days remembered; a spool holds a few.
const MOST_DAYS: usize = 1_000;

/// The days that are seen to.
#[derive(Debug, Default)]
pub(super) struct Days {
    known: HashSet<i64>,
    not_before: Option<Instant>,
}

impl Days {
    /// Makes what `records` and the days to come need. Where that can't be, rows go to the default
    /// partition, which takes them all.
    ///
    /// # Errors
    /// Only if the connection is lost.
    pub(super) async fn make(
        &mut self,
        connector: &Connector,
        connection: &mut PgConnection,
        records: &[Linked<'_>],
    ) -> Result<(), PostgresError> {
        let wanted = self.wanted(records);
        let is_paused = self.not_before.is_some_and(|at| Instant::now() < at);
        if wanted.is_empty() || is_paused {
            return Ok(());
        }
        let made = sqlx::query_scalar::<_, i64>("SELECT make_partitions($1)").bind(&wanted);
        match connector.answered(made.fetch_one(connection)).await {
            Ok(made) => {
                tracing::debug!(made, "audit partitions are there");
                if self.known.len() > MOST_DAYS {
                    self.known.clear();
                }
                self.known.extend(wanted);
                self.not_before = None;
                Ok(())
            }
            Err(PostgresError::Query(error)) if code(&error).is_some() => {
                tracing::warn!(%error, "no audit partitions were made; to be tried again");
                self.not_before = Some(Instant::now() + PAUSE);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn wanted(&self, records: &[Linked<'_>]) -> Vec<i64> {
        let sent = records.iter().filter_map(|linked| linked.record.get("time_micros").number());
        let mut days: Vec<i64> = sent.map(|micros| micros.div_euclid(MICROS_PER_DAY)).collect();
        let today = today();
        days.extend(today..=today + DAYS_AHEAD);
        days.retain(|day| !self.known.contains(day));
        days.sort_unstable();
        days.dedup();
        days
    }
}

/// Counted from 1970.
fn today() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX).div_euclid(MICROS_PER_DAY)
}
