//! The whole gateway, from outside.

mod admission;
mod answer;
mod cancel;
mod chat;
mod drain;
mod limit;
mod reload;
mod resume;
mod stream;
