//! The one integration binary.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "clippy.toml allows them in test functions; what those share is test code as well"
)]

mod audit;
