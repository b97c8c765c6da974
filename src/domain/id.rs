//! Identifiers, each a type of its own.

use std::{fmt, str::FromStr, sync::Arc};

use serde::Serialize;
use uuid::Uuid;

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// A new one; later ones sort after earlier ones.
            #[must_use]
            pub fn generate() -> Self {
                Self(Uuid::now_v7())
            }

            #[must_use]
            pub const fn as_uuid(self) -> Uuid {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse().map(Self)
            }
        }
    };
}

uuid_id! {
    /// One governed call, from its intent row to its terminal one. A UUIDv7 (RFC 9562 §5.7).
    CallId
}

uuid_id! {
    /// One native stream. A UUIDv7 with 74 random bits, so it can't be guessed; it is checked
    /// against its owner all the same.
    StreamId
}

uuid_id! {
    /// One notice of a busted budget, however often it is sent. A UUIDv7.
    NoticeId
}

/// `x-run-id`: which run of an agent a request belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RunId(String);

/// A run's id that is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("`x-run-id` is to be sent once, as 1 to 128 visible ASCII characters, or not at all.")]
pub struct InvalidRunId;

impl RunId {
    /// It stands in every row of its run, and in an index.
    pub const MAX_LEN: usize = 128;

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<&[u8]> for RunId {
    type Error = InvalidRunId;

    fn try_from(header: &[u8]) -> Result<Self, InvalidRunId> {
        let text = str::from_utf8(header).map_err(|_| InvalidRunId)?;
        let is_sane = (1..=Self::MAX_LEN).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_sane.then(|| Self(text.to_owned())).ok_or(InvalidRunId)
    }
}

/// `x-request-id`: the caller's own if it is sane, else ours.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RequestId(Arc<str>);

impl RequestId {
    /// At most this many bytes of a caller's own id are taken.
    pub const MAX_LEN: usize = 128;

    #[must_use]
    pub fn generate() -> Self {
        let mut text = Uuid::encode_buffer();
        Self(Arc::from(&*Uuid::now_v7().simple().encode_lower(&mut text)))
    }

    /// `None` unless `text` is 1–128 characters of `[A-Za-z0-9._:-]`, safe in any log or header.
    #[must_use]
    pub fn from_caller(text: &str) -> Option<Self> {
        let sane = !text.is_empty()
            && text.len() <= Self::MAX_LEN
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:-".contains(&b));
        sane.then(|| Self(Arc::from(text)))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
