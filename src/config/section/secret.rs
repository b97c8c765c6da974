//! Secrets compared without telling, by the time it takes, how much of them is equal.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use secrecy::{ExposeSecret, SecretString};

pub(super) fn same(one: Option<&SecretString>, other: Option<&SecretString>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => {
            let (one, other) = (one.expose_secret(), other.expose_secret());
            verify_slices_are_equal(one.as_bytes(), other.as_bytes()).is_ok()
        }
        (None, None) => true,
        _ => false,
    }
}
