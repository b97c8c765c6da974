//! What the tests stand on: a misbehaving upstream, a client that sees bytes.

pub mod app;
pub mod client;
pub mod event_stream;
pub mod leak;
pub mod native;
pub mod patience;
pub mod postgres;
pub mod process;
pub mod proxy;
pub mod redis;
pub mod secret;
pub mod upstream;
