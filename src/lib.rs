//! Tollgate: a gateway between agents and what they spend.

pub mod cli;
pub mod config;
pub mod domain;
