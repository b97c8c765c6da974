//! The registered claims (RFC 7519 §4.1): who a token is for and when it is good.

use serde_json::{Map, Value};

use super::{AuthError, Reason};

/// 9999-12-31T23:59:59Z. A time beyond it is a mistake (milliseconds, say), not a date.
const LAST_SECOND: f64 = 253_402_300_799.0;

/// What the times in a token may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimeRules {
    pub leeway_ms: u64,
    pub max_lifetime_ms: u64,
}

impl TimeRules {
    /// Checks `exp`, `nbf`, `iat` and the lifetime; gives `exp` in milliseconds.
    pub(super) fn check(&self, claims: &Map<String, Value>, now_ms: u64) -> Result<u64, AuthError> {
        let exp = time_ms(claims, "exp")?.ok_or(Reason::MissingExpiry)?;
        let nbf = time_ms(claims, "nbf")?;
        let iat = time_ms(claims, "iat")?;
        let soon = now_ms.saturating_add(self.leeway_ms);
        if now_ms >= exp.saturating_add(self.leeway_ms) {
            return Err(AuthError::Expired);
        }
        if nbf.is_some_and(|nbf| nbf > soon) {
            return Err(Reason::NotYetValid.into());
        }
        if iat.is_some_and(|iat| iat > soon) {
            return Err(Reason::IssuedInFuture.into());
        }
        let from = iat.or(nbf).unwrap_or(now_ms);
        if exp.saturating_sub(from) > self.max_lifetime_ms {
            return Err(Reason::LifetimeTooLong.into());
        }
        Ok(exp)
    }
}

/// A `NumericDate` (RFC 7519 §2): seconds, a fraction allowed.
fn time_ms(claims: &Map<String, Value>, name: &str) -> Result<Option<u64>, Reason> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    let seconds = value.as_f64().ok_or(Reason::BadTime)?;
    if !(0.0..=LAST_SECOND).contains(&seconds) {
        return Err(Reason::BadTime);
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the bounds were checked; a fraction of a millisecond does not matter"
    )]
    Ok(Some((seconds * 1_000.0) as u64))
}

/// `aud`, one string or several, must hold one of `accepted`.
pub(super) fn check_audience(
    claims: &Map<String, Value>,
    accepted: &[String],
) -> Result<(), Reason> {
    let is_ours = |value: &Value| match value {
        Value::String(audience) => Ok(accepted.contains(audience)),
        _ => Err(Reason::WrongAudience),
    };
    let ours = match claims.get("aud") {
        Some(Value::Array(several)) => {
            several.iter().try_fold(false, |found, one| Ok::<_, Reason>(is_ours(one)? || found))?
        }
        Some(one) => is_ours(one)?,
        None => false,
    };
    if ours { Ok(()) } else { Err(Reason::WrongAudience) }
}

/// A claim that is text where it is there at all.
pub(super) fn optional_text(
    claims: &Map<String, Value>,
    name: &'static str,
) -> Result<Option<String>, Reason> {
    match claims.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(Reason::BadClaim(name)),
    }
}
