//! A gateway's trail over its lives, on a spool of its own and a store that it may share.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use tokio_util::task::TaskTracker;
use tollgate::{
    audit::{
        Audit, AuditSink, Entry, OpenIntents, Reservations, Sweeper,
        spool::{DirectoryDisk, SEGMENT_BYTES, Spool, SpoolSettings},
        verify::{self, ChainReader, Options, Report},
    },
    domain::CallId,
    redact::LiveRedactor,
    storage::{
        postgres::{self, PostgresChain},
        sqlite::{self, SqliteChain},
    },
};

use super::{
    contract::{Fixture, Sqlite},
    postgres::Postgres,
    support::{TempDir, intent},
};
use crate::support::client::eventually;

const PATIENCE: Duration = Duration::from_secs(20);

/// A store whose open intents are found.
#[async_trait(?Send)]
pub trait SweptStore: Fixture {
    async fn shared_sink(&self) -> Arc<dyn AuditSink>;
    fn intents(&self) -> Arc<dyn OpenIntents>;
    async fn chain(&self) -> Box<dyn ChainReader>;
}

#[async_trait(?Send)]
impl SweptStore for Sqlite {
    async fn shared_sink(&self) -> Arc<dyn AuditSink> {
        Arc::new(sqlite::open(&self.path()).await.unwrap())
    }

    fn intents(&self) -> Arc<dyn OpenIntents> {
        Arc::new(sqlite::open_intents(&self.path()))
    }

    async fn chain(&self) -> Box<dyn ChainReader> {
        Box::new(SqliteChain::open(&self.path()).await.unwrap())
    }
}

#[async_trait(?Send)]
impl SweptStore for Postgres {
    async fn shared_sink(&self) -> Arc<dyn AuditSink> {
        Arc::new(postgres::sink(&self.config).unwrap())
    }

    fn intents(&self) -> Arc<dyn OpenIntents> {
        Arc::new(postgres::open_intents(&self.config).unwrap())
    }

    async fn chain(&self) -> Box<dyn ChainReader> {
        Box::new(PostgresChain::open(&self.config).await.unwrap())
    }
}

/// The calls whose reservations were ended.
#[derive(Default)]
pub struct Ended(pub Mutex<Vec<CallId>>);

#[async_trait]
impl Reservations for Ended {
    async fn abandon(&self, calls: &[CallId]) {
        self.0.lock().unwrap().extend(calls);
    }
}

/// One life of a gateway.
pub struct Life {
    pub audit: Audit,
    pub sweeper: Sweeper,
    tasks: TaskTracker,
    spool: PathBuf,
}

impl Life {
    /// On the spool of `directory`.
    pub async fn begin(store: &impl SweptStore, directory: &TempDir, after: Duration) -> Self {
        Self::begin_with(store.shared_sink().await, store.intents(), directory, after)
    }

    pub fn begin_with(
        sink: Arc<dyn AuditSink>,
        intents: Arc<dyn OpenIntents>,
        directory: &TempDir,
        after: Duration,
    ) -> Self {
        let settings =
            SpoolSettings { limit_bytes: 64 << 20, segment_bytes: SEGMENT_BYTES, is_strict: false };
        let path = directory.path().join("spool");
        let disk = DirectoryDisk::open(&path).unwrap();
        let spool = Spool::open(Arc::new(disk), settings).unwrap();
        let (tasks, former) = (TaskTracker::new(), spool.state.head());
        let audit = Audit::start(spool, sink, LiveRedactor::default(), &tasks).unwrap();
        let sweeper = Sweeper::new(audit.clone(), intents, after, former);
        Self { audit, sweeper, tasks, spool: path }
    }

    pub async fn intent(&self) -> Entry {
        let call = intent();
        self.audit.intent(call.clone()).await.unwrap();
        call
    }

    /// The calls that are closed.
    pub async fn sweep(&mut self) -> Vec<CallId> {
        let ended = Ended::default();
        let closed = self.sweeper.sweep(&ended).await.unwrap();
        let ended = ended.0.into_inner().unwrap();
        assert_eq!(closed, Some(ended.len()), "nobody else is at it");
        ended
    }

    pub async fn end(self) {
        self.audit.flush(PATIENCE).await.unwrap();
        self.audit.shutdown(PATIENCE).await.unwrap();
        drop((self.sweeper, self.audit));
        self.tasks.close();
        self.tasks.wait().await;
        // The writer's thread lets go of the lock last of all.
        eventually(PATIENCE, async || DirectoryDisk::open(&self.spool).is_ok()).await;
    }
}

/// What verifying finds wrong.
pub async fn findings(store: &impl SweptStore) -> Report {
    let options = Options {
        checkpoints: None,
        keys: Vec::new(),
        spool: None,
        from: None,
        to: None,
        retention_days: None,
        contents: false,
        now: jiff::Timestamp::now(),
    };
    let mut chain = store.chain().await;
    verify::verify(&mut *chain, options, &|_, _| {}).await.unwrap()
}

pub async fn expect_sound(store: &impl SweptStore, rows: u64) {
    let report = findings(store).await;
    assert!(report.is_clean, "{report:#?}");
    assert_eq!(report.rows, rows);
}
