//! Tollgate: a gateway between agents and what they spend.

pub mod app;
pub mod audit;
pub mod auth;
pub mod budget;
pub mod cli;
pub mod config;
pub mod domain;
pub mod http;
pub mod pipeline;
pub mod provider;
pub mod redact;
pub mod storage;
pub mod stream;
pub mod telemetry;
