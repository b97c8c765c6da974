//! HTTP: the only module that knows axum.

pub mod server;
