//! The whole gateway, from outside.

mod chat;
mod span;
