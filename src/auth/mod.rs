//! Identity (DESIGN §5): whose JWT this is, by RFC 8725 in full, and minting for development.
//!
//! ```text
//! headers → source (which header) → cache (SHA-256) ─────────────────→ deny list → Caller
//!                                     └ token (form) → issuer (iss) → key_source → jwk
//!                                         (signature) → claims (aud, times) → mapping ┘
//! ```
//!
//! `jsonwebtoken` checks signatures and nothing else here: the form of a token, its header, the
//! key's fitness, the claims and their times are checked by this module, each by a rule of its
//! own with a test of its own.

mod authenticator;
mod cache;
mod claim_path;
mod claims;
mod clock;
mod deny;
mod error;
mod issuer;
mod json;
mod jwk;
mod key_origin;
mod key_set;
mod key_source;
mod mapping;
pub mod mint;
mod signing_key;
mod source;
mod token;

pub use authenticator::{AuthOptions, Authenticator};
pub use claim_path::{ClaimPath, InvalidClaimPath};
pub use clock::{Clock, SystemClock};
pub use error::{AuthError, AuthSetupError, Reason};
pub use key_set::{KeySet, KeySetError};
pub use token::UnverifiedToken;
