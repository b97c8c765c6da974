//! The whole gateway, from outside.

mod body;
mod chat;
mod failover;
mod fault;
mod fidelity;
mod hang_up;
mod redaction;
mod secret;
mod seen;
mod status;
mod usage;
