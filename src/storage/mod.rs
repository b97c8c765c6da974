//! All SQL. What is stored and read is the business of the module that the rows belong to.

mod archive;
mod open;
pub mod postgres;
pub mod sqlite;

pub use open::{StoreError, ask_trail, check, open_intents, open_sink, open_trail};
