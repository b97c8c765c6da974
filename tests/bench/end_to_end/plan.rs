//! What a load generator is told, and what it tells in the end; JSON between two processes.

use std::{net::SocketAddr, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::payload::Ask;

/// The argument of a load generator.
#[derive(Debug, Serialize, Deserialize)]
pub struct Plan {
    pub target: SocketAddr,
    /// A JSON array of bearer tokens.
    pub tokens: PathBuf,
    pub work: Work,
    /// The generator fails if its work takes longer.
    pub deadline_s: u64,
}

/// One shape of load.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub enum Work {
    /// Each connection sends its next request as soon as the last one is answered.
    Closed { ask: Ask, connections: usize, requests: u64 },
    /// Requests leave at a fixed rate, answered or not.
    Open { ask: Ask, per_second: u32, requests: u64 },
    /// Streams that are opened and held until standard input closes.
    Held { streams: usize },
}

/// The last line of a load generator.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Tally {
    pub requests: u64,
    pub events: u64,
    pub elapsed_ns: u64,
    /// From the request's start to the end of a whole answer or the first event of a stream.
    pub latencies_ns: Vec<u64>,
}

/// A load generator's first line: its connections are open and warm.
pub const READY: &str = "ready";

/// What a load generator waits for then.
pub const GO: &str = "go";
