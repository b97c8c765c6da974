//! The whole gateway, from outside.

mod admission;
mod cancel;
mod chat;
mod limit;
mod resume;
mod stream;
