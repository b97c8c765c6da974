//! Tollgate: a gateway between agents and what they spend.

pub mod audit;
pub mod cli;
pub mod config {
    pub mod section;
    pub use section::*;
}
pub mod budget;
pub mod domain;
pub mod pipeline;
pub mod provider;
pub mod redact;
pub mod storage;
pub mod stream;
pub mod telemetry;
