//! Native streams.

use serde::Deserialize;

/// `[stream]`: native streams.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub struct StreamConfig {
    pub replay_store: ReplayStore,
    /// How long a finished stream can still be read.
    pub replay_ttl_s: u64,
    /// How long a stream goes on with nobody reading it.
    pub orphan_timeout_s: u64,
    pub keepalive_s: u64,
    /// What one stream's replay log holds at most; its oldest frames go first.
    pub replay_limit_frames: usize,
    pub replay_limit_bytes: usize,
    /// Streams kept at once, live and finished ones; the oldest finished go first.
    pub max_streams: usize,
}

impl Default for StreamConfig {
    fn default() -> Self {
        Self {
            replay_store: ReplayStore::Memory,
            replay_ttl_s: 300,
            orphan_timeout_s: 30,
            keepalive_s: 15,
            replay_limit_frames: 65_536,
            replay_limit_bytes: 8_388_608,
            max_streams: 10_000,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReplayStore {
    Memory,
    Redis,
}
