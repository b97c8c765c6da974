//! The whole gateway, from outside.

mod admission;
mod answer;
mod body;
mod budget;
mod cancel;
mod chat;
mod counted;
mod drain;
mod failover;
mod fault;
mod fidelity;
mod hang_up;
mod limit;
mod max_tokens;
mod no_leak;
mod redacted_stream;
mod redaction;
mod reload;
mod resume;
mod secret;
mod seen;
mod shared_store;
mod span;
mod status;
mod stream;
mod usage;
