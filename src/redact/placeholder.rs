//! What stands in a secret's place: `[REDACTED:rule:hmac8]`.

use std::{borrow::Cow, fmt};

use aws_lc_rs::{hmac, rand};

use super::unseen;

/// A key of fewer bytes could be guessed, and with it what the placeholders stand for.
pub const MIN_KEY_BYTES: usize = 16;

/// Of a longer secret only so much tells it from others: a stream does not hold the rest.
const MAX_HASHED_BYTES: usize = 4096;

pub(super) const OPENING: &[u8] = b"[REDACTED:";
const TAG_DIGITS: usize = 8;

/// The key that placeholders are made with: who has it can tell whether a guess is right.
#[derive(Clone)]
pub struct PlaceholderKey(hmac::Key);

impl fmt::Debug for PlaceholderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PlaceholderKey")
    }
}

/// There is no key for the placeholders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("a key for the placeholders has at least {MIN_KEY_BYTES} bytes")]
    Short,
    #[error("no random key for the placeholders could be made")]
    NoRandom,
}

impl PlaceholderKey {
    /// # Errors
    /// A key of fewer than [`MIN_KEY_BYTES`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, KeyError> {
        if bytes.len() < MIN_KEY_BYTES {
            return Err(KeyError::Short);
        }
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, bytes)))
    }

    /// Placeholders can be matched for as long as this key lives.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn random() -> Result<Self, KeyError> {
        hmac::Key::generate(hmac::HMAC_SHA256, &rand::SystemRandom::new())
            .map(Self)
            .map_err(|_| KeyError::NoRandom)
    }

    /// `[REDACTED:rule:hmac8]`. Characters that are not seen make no difference.
    pub(super) fn placeholder(&self, rule: &str, secret: &[u8]) -> String {
        format!("[REDACTED:{rule}:{}]", self.tag(secret))
    }

    /// `hmac8`: what tells a secret from others.
    pub(super) fn tag(&self, secret: &[u8]) -> String {
        let secret = &secret[..secret.len().min(MAX_HASHED_BYTES)];
        let tag = hmac::sign(&self.0, &visible(secret));
        let tag = tag.as_ref();
        format!("{:02x}{:02x}{:02x}{:02x}", tag[0], tag[1], tag[2], tag[3])
    }
}

/// The bytes that are seen.
pub(super) fn visible(text: &[u8]) -> Cow<'_, [u8]> {
    let transparent = |at: &usize| unseen::transparent(text, *at).is_some();
    let Some(first) = (0..text.len()).find(transparent) else { return Cow::Borrowed(text) };
    let mut seen = text[..first].to_vec();
    let mut at = first;
    while at < text.len() {
        if let Some(length) = unseen::transparent(text, at) {
            at += length;
        } else {
            seen.push(text[at]);
            at += 1;
        }
    }
    Cow::Owned(seen)
}

/// Does one begin in `text`?
pub(super) fn occurs_in(text: &[u8]) -> bool {
    text.windows(OPENING.len()).any(|part| part == OPENING)
}

/// Is all of `text` a placeholder, whoever made it?
pub(super) fn is_placeholder(text: &[u8]) -> bool {
    let Some(inner) = text.strip_prefix(OPENING).and_then(|rest| rest.strip_suffix(b"]")) else {
        return false;
    };
    let Some(colon) = inner.len().checked_sub(TAG_DIGITS + 1) else { return false };
    let (name, tag) = inner.split_at(colon);
    let in_name = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
    tag.starts_with(b":") && tag[1..].iter().all(u8::is_ascii_hexdigit) && name.iter().all(in_name)
}
