//! The one integration binary.

mod audit;
