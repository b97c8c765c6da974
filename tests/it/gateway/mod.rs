//! The whole gateway, from outside.

mod chat;
mod max_tokens;
