//! The configuration: `tollgate.toml` with the environment laid over it (DESIGN §4).
//!
//! [`load()`] goes: TOML → a tree that knows where each value was written (`node`) →
//! `TOLLGATE__…` over it (`overlay`) → `${VAR}` filled in (`expand`) → the types of
//! [`section`] (`read`, `typed`) → the rules ([`validate()`]). No step stops at its first
//! error, and no error shows a secret.

mod error;
mod expand;
mod findings;
mod key;
mod load;
mod node;
mod overlay;
mod read;
pub mod reload;
pub mod section;
mod suggest;
mod typed;
mod unavailable;
mod validate;

pub use error::{ConfigError, ConfigErrors, Place};
pub use load::{Check, Loaded, inspect, inspect_with, load, load_with};
pub use section::*;
pub use suggest::did_you_mean;
pub use validate::validate;

/// The process's environment, without what is not UTF-8: no key or secret of ours is.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}
