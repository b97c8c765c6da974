//! The whole gateway, from outside.

mod cancel;
mod chat;
mod resume;
mod stream;
