//! The one integration test binary.
#![cfg(test)]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test's helper fails by panicking, as a test does"
)]

mod audit;
mod auth;
mod channel;
mod cli;
mod config;
mod contract;
mod counting;
mod estimate;
mod gateway;
mod hub;
mod lease;
mod ledger;
mod notify;
mod proof;
mod queue;
mod redact;
mod server;
mod sse;
mod support;
mod support_test;
mod telemetry;
