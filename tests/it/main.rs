<<<<<<< HEAD
//! The one integration test binary.
#![cfg(test)]
=======
//! The one test binary: everything is tested through the library's public face.
>>>>>>> auth
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
<<<<<<< HEAD
    reason = "a test's helper fails by panicking, as a test does"
)]

mod sse;
mod support;
mod support_test;
mod telemetry;
=======
    reason = "the lints' own exception for tests does not reach the functions that tests share"
)]

mod auth;
>>>>>>> auth
