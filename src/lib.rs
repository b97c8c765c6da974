//! Tollgate: a gateway between agents and what they spend.

pub mod auth;
pub mod config {
    pub mod section;
    pub use section::*;
}
pub mod domain;
