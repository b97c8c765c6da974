//! The whole gateway, from outside.

mod cancel;
mod chat;
mod limit;
mod resume;
mod stream;
