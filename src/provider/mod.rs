//! Upstreams: the servers that answer model calls.

pub mod sse;
