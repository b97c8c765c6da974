//! Signatures as Standard Webhooks 1.0.0 has them, so that any of its libraries verifies ours.
//!
//! `webhook-signature: v1,<base64 of HMAC-SHA256(secret, "{id}.{timestamp}.{body}")>`. The id and
//! the time of the attempt are signed with the body, so a recorded POST can't be sent again
//! later, nor under another id.

use std::fmt;

use aws_lc_rs::hmac;
use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderName};
use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};

use crate::config::decode_notify_secret;

/// The notice's id, the same in each attempt.
pub const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
/// When this attempt was made, in seconds since the Unix epoch.
pub const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
/// Signatures with spaces between them; any one that fits is enough.
pub const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// How far a timestamp may be from the receiver's clock, either way. A receiver that keeps ids
/// for twice as long takes nothing twice.
pub const TOLERANCE_S: u64 = 300;

/// What symmetric signatures of the specification begin with.
const VERSION: &str = "v1,";

/// The secret that we share with the receiver, ready to sign.
pub(super) struct NoticeKey(hmac::Key);

impl fmt::Debug for NoticeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NoticeKey(_)")
    }
}

impl NoticeKey {
    /// # Errors
    /// What is wrong with the secret, without it.
    pub fn new(secret: &SecretString) -> Result<Self, &'static str> {
        let bytes = decode_notify_secret(secret)?;
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, bytes.expose_secret())))
    }

    /// The value of `webhook-signature`.
    pub fn sign(&self, id: &str, timestamp: &str, body: &[u8]) -> String {
        let tag = hmac::sign(&self.0, &signed_content(id, timestamp, body));
        format!("{VERSION}{}", STANDARD.encode(tag))
    }
}

fn signed_content(id: &str, timestamp: &str, body: &[u8]) -> Vec<u8> {
    [id.as_bytes(), b".", timestamp.as_bytes(), b".", body].concat()
}

/// Why a POST is not to be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    #[error("the secret {0}")]
    Secret(&'static str),
    #[error("the header {0} is missing or no text")]
    Header(&'static str),
    #[error("webhook-timestamp is no number of seconds")]
    Timestamp,
    #[error("webhook-timestamp is more than {TOLERANCE_S} s from now")]
    Stale,
    #[error("no signature fits")]
    Signature,
}

/// Is this POST from whoever shares `secret`, whole, and made at about `now`? What a receiver
/// does, but for remembering the ids that it has seen. `body` is what came, byte for byte.
///
/// # Errors
/// [`VerifyError`].
pub fn verify(
    secret: &SecretString,
    headers: &HeaderMap,
    body: &[u8],
    now: Timestamp,
) -> Result<(), VerifyError> {
    let key = NoticeKey::new(secret).map_err(VerifyError::Secret)?;
    let id = text(headers, &WEBHOOK_ID, "webhook-id")?;
    let timestamp = text(headers, &WEBHOOK_TIMESTAMP, "webhook-timestamp")?;
    let signatures = text(headers, &WEBHOOK_SIGNATURE, "webhook-signature")?;
    let sent_at: i64 = timestamp.parse().map_err(|_| VerifyError::Timestamp)?;
    if sent_at.abs_diff(now.as_second()) > TOLERANCE_S {
        return Err(VerifyError::Stale);
    }
    let content = signed_content(id, timestamp, body);
    let fits = |tag: Vec<u8>| hmac::verify(&key.0, &content, &tag).is_ok();
    let mut tags = signatures
        .split(' ')
        .filter_map(|signature| signature.strip_prefix(VERSION))
        .filter_map(|tag| STANDARD.decode(tag).ok());
    if tags.any(fits) { Ok(()) } else { Err(VerifyError::Signature) }
}

fn text<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
    shown: &'static str,
) -> Result<&'a str, VerifyError> {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.filter(|text| !text.is_empty()).ok_or(VerifyError::Header(shown))
}
