//! A sink in memory that obeys the contract and fails on demand.

use std::{collections::HashSet, sync::Mutex};

use async_trait::async_trait;
use tokio::sync::watch;
use tollgate::audit::{AuditSink, Entry, SinkError};

use super::support::Line;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Work,
    /// Nothing is written.
    Fail,
    /// All is written, and yet it says that it failed, as when a connection is lost at commit.
    WriteAndFail,
    /// Does not answer until the mode changes, and then does what the new mode says.
    Hang,
    Panic,
}

pub struct FaultySink {
    mode: watch::Sender<Mode>,
    rows: Mutex<Vec<Entry>>,
    batches: Mutex<Vec<usize>>,
}

impl FaultySink {
    pub fn new(mode: Mode) -> Self {
        Self { mode: watch::Sender::new(mode), rows: Mutex::default(), batches: Mutex::default() }
    }

    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    pub fn lines(&self) -> Vec<Line> {
        self.rows.lock().unwrap().iter().map(Line::from).collect()
    }

    /// The sizes of the batches that were tried.
    pub fn batches(&self) -> Vec<usize> {
        self.batches.lock().unwrap().clone()
    }

    fn write(&self, entries: &[Entry]) {
        let mut rows = self.rows.lock().unwrap();
        let mut ids: HashSet<_> = rows.iter().map(|row| row.id).collect();
        let ended = |row: &Entry| row.call_id.filter(|_| row.kind.is_terminal());
        let mut ends: HashSet<_> = rows.iter().filter_map(ended).collect();
        for entry in entries {
            let is_first_end = ended(entry).is_none_or(|call| ends.insert(call));
            if is_first_end && ids.insert(entry.id) {
                rows.push(entry.clone());
            }
        }
    }
}

#[async_trait]
impl AuditSink for FaultySink {
    async fn append(&self, entries: &[Entry]) -> Result<(), SinkError> {
        self.batches.lock().unwrap().push(entries.len());
        let mut mode = self.mode.subscribe();
        let mode = *mode.wait_for(|mode| *mode != Mode::Hang).await.unwrap();
        match mode {
            Mode::Work | Mode::WriteAndFail => self.write(entries),
            Mode::Fail | Mode::Hang => {}
            Mode::Panic => panic!("the sink was told to panic"),
        }
        match mode {
            Mode::Work => Ok(()),
            _ => Err(SinkError::write(std::io::Error::other("told to fail"))),
        }
    }
}
