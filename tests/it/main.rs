//! The one test binary: everything is tested through the library's public face.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "the lints' own exception for tests does not reach the functions that tests share"
)]

mod auth;
