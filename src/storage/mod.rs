//! All SQL. What is stored and read is the business of the module that the rows belong to.

pub mod postgres;
pub mod sqlite;
