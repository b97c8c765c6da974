//! `OpenAI`'s dialect.

pub(super) mod chat;
pub(super) mod models;
