//! Whatever a stranger sends as a token, or an issuer publishes as its keys: no panic.
//!
//! That nothing of it gets in is held by the properties in `tests/it/auth/property.rs`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::auth::{KeySet, UnverifiedToken};

fuzz_target!(|bytes: &[u8]| {
    let token = UnverifiedToken::parse(bytes);
    assert!(token.is_err() || bytes.len() <= UnverifiedToken::MAX_LEN);
    let keys = KeySet::parse(bytes);
    assert!(keys.is_err() || bytes.len() <= KeySet::MAX_LEN);
});
