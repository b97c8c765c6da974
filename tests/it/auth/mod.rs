//! Identity: each rule of DESIGN §5 by a token that breaks it alone.

mod cache;
mod claim_rules;
mod header_rules;
mod jwks;
mod jwks_server;
mod key_rules;
mod mapping;
mod mint;
mod property;
mod rotation;
mod setup;
mod source;
mod support;
mod token_rules;
