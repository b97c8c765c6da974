//! Calls that a lost gateway left without an end: closed in the trail, their reservations ended.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::time::sleep;

use crate::{
    audit::{Link, OpenIntents, Reservations, SweepError, Sweeper, spool::Spool},
    budget::Budgets,
    config::Config,
    domain::CallId,
    pipeline::Gateway,
    storage::{self, StoreError},
};

/// How often they are looked for.
const INTERVAL: Duration = Duration::from_mins(1);
/// After a failure, or another gateway's turn; doubled with each further one up to the interval. The
/// first look after a start should not have to wait for long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Before this many failures none is told of: one may be a restart of the database, or its migration.
const QUIET_FAILURES: u32 = 2;

/// Where they are found, and when they are taken for lost.
pub(super) struct LostCalls {
    intents: Arc<dyn OpenIntents>,
    after: Duration,
    /// The last record of this gateway's former lives.
    former: Option<Link>,
}

impl LostCalls {
    /// To be called before anything is written to `spool`.
    pub(super) fn of(config: &Config, spool: &Spool) -> Result<Self, StoreError> {
        let intents = storage::open_intents(&config.audit)?;
        let after = config.audit.unknown_after(config.server.request_timeout_s);
        Ok(Self { intents, after, former: spool.state.head() })
    }

    /// Looks for them until calls are ended: after that the trail takes no more.
    pub(super) async fn close(self, gateway: Arc<Gateway>) {
        let Self { intents, after, former } = self;
        let mut sweeper = Sweeper::new(gateway.audit.clone(), intents, after, former);
        let (mut pause, mut failures) = (FIRST_PAUSE, 0);
        let forever = async {
            loop {
                let looked = look(&mut sweeper, &gateway.budgets).await;
                if let Err(error) = &looked {
                    failures += 1;
                    if failures == QUIET_FAILURES {
                        tracing::warn!(%error, "lost calls can't be looked for; to be tried again");
                    }
                } else {
                    failures = 0;
                }
                if matches!(looked, Ok(true)) {
                    pause = FIRST_PAUSE;
                    sleep(INTERVAL).await;
                } else {
                    sleep(pause).await;
                    pause = INTERVAL.min(pause * 2);
                }
            }
        };
        tokio::select! {
            () = gateway.abort.cancelled() => {}
            () = forever => {}
        }
    }
}

async fn look(sweeper: &mut Sweeper, budgets: &Budgets) -> Result<bool, SweepError> {
    let closed = sweeper.sweep(&Lost(budgets)).await?;
    if let Some(calls @ 1..) = closed {
        tracing::warn!(calls, "calls of a lost gateway are closed: how they ended is unknown");
    }
    Ok(closed.is_some())
}

/// What lost calls have reserved of the budgets.
struct Lost<'a>(&'a Budgets);

#[async_trait]
impl Reservations for Lost<'_> {
    async fn abandon(&self, calls: &[CallId]) {
        if let Err(error) = self.0.abandon(calls).await {
            tracing::warn!(%error, "what lost calls had reserved is settled when it expires");
        }
    }
}
