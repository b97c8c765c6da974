#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test's helper fails by panicking, as a test does"
)]

mod server;
mod telemetry;
