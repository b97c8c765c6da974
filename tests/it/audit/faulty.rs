//! A sink in memory that obeys the contract and fails on demand.

use std::{collections::HashSet, sync::Mutex};

use async_trait::async_trait;
use tokio::sync::watch;
use tollgate::audit::{AuditSink, Link, Linked, SinkError};

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
    rows: Mutex<Vec<(Link, Line)>>,
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
        self.rows.lock().unwrap().iter().map(|(_, line)| line.clone()).collect()
    }

    /// The sizes of the batches that were tried.
    pub fn batches(&self) -> Vec<usize> {
        self.batches.lock().unwrap().clone()
    }

    /// The numbers of the rows in their chain, in the order in which they came.
    pub fn seqs(&self) -> Vec<u64> {
        self.rows.lock().unwrap().iter().map(|(link, _)| link.seq).collect()
    }

    fn write(&self, records: &[Linked<'_>]) {
        let mut rows = self.rows.lock().unwrap();
        let mut ids: HashSet<_> = rows.iter().map(|(_, line)| line.id.clone()).collect();
        let ended = |line: &Line| {
            let is_end = ["settle", "denied", "canceled"].contains(&&*line.kind);
            line.call_id.clone().filter(|_| is_end)
        };
        let mut ends: HashSet<_> = rows.iter().filter_map(|(_, line)| ended(line)).collect();
        for Linked { link, record } in records {
            let line = Line::from(record);
            if ids.insert(line.id.clone()) && ended(&line).is_none_or(|call| ends.insert(call)) {
                rows.push((*link, line));
            }
        }
    }
}

#[async_trait]
impl AuditSink for FaultySink {
    async fn append(&self, records: &[Linked<'_>]) -> Result<(), SinkError> {
        self.batches.lock().unwrap().push(records.len());
        let mut mode = self.mode.subscribe();
        let mode = *mode.wait_for(|mode| *mode != Mode::Hang).await.unwrap();
        match mode {
            Mode::Work | Mode::WriteAndFail => self.write(records),
            Mode::Fail | Mode::Hang => {}
            Mode::Panic => panic!("the sink was told to panic"),
        }
        match mode {
            Mode::Work => Ok(()),
            _ => Err(SinkError::write(std::io::Error::other("told to fail"))),
        }
    }
}
