//! The one integration binary.

mod config;
