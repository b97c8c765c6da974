//! The one integration binary.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that can't go on stops; clippy.toml only knows those inside #[test]"
)]

mod config;
