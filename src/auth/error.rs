//! Why a caller was not let in, and why the gateway could not set up who is.

use http::HeaderValue;

use crate::domain::{Denial, Kind};

/// Why a request was not authenticated. Nothing of the token is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    #[error("there is no token: send one as `Authorization: Bearer <token>`")]
    Missing,
    #[error("the token has expired: get a new one from its issuer")]
    Expired,
    #[error("the token is not valid: {}", .0.remedy())]
    Invalid(Reason),
    /// Not the caller's fault: the issuer's keys can't be had, or too many already ask for them.
    #[error("the keys of the token's issuer can't be had at the moment: try again shortly")]
    Unavailable,
}

impl AuthError {
    /// What the public is told it is.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Missing => Kind::MissingToken,
            Self::Expired => Kind::ExpiredToken,
            Self::Invalid(_) => Kind::InvalidToken,
            Self::Unavailable => Kind::IssuerUnavailable,
        }
    }

    /// The exact reason, stable, for audit and log.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Expired => "expired",
            Self::Invalid(reason) => reason.as_str(),
            Self::Unavailable => "keys_unavailable",
        }
    }

    /// The challenge that goes with a 401 (RFC 6750 §3): no `error` where no token was sent.
    /// `None` where the answer is not a 401.
    #[must_use]
    pub fn www_authenticate(&self) -> Option<HeaderValue> {
        let description = match self {
            Self::Missing => return Some(HeaderValue::from_static("Bearer realm=\"tollgate\"")),
            Self::Expired => "the token has expired",
            Self::Invalid(reason) => reason.remedy(),
            Self::Unavailable => return None,
        };
        let challenge =
            format!("Bearer error=\"invalid_token\", error_description=\"{description}\"");
        let bare = HeaderValue::from_static("Bearer error=\"invalid_token\"");
        Some(HeaderValue::from_str(&challenge).unwrap_or(bare))
    }

    /// As the public sees it.
    #[must_use]
    pub fn denial(&self) -> Denial {
        let denial = Denial::new(self.kind(), self.to_string());
        match self {
            Self::Unavailable => denial.with_retry_after_ms(1_000),
            _ => denial,
        }
    }
}

impl From<Reason> for AuthError {
    fn from(reason: Reason) -> Self {
        Self::Invalid(reason)
    }
}

/// The rule that a token breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Two tokens in one request: which one counts would be a guess.
    SeveralTokens,
    TooLarge,
    NotThreeParts,
    BadBase64,
    BadHeader,
    /// `crit`, `zip` or `b64`.
    UnsupportedHeader,
    /// `typ` says that it is some other kind of token.
    WrongType,
    BadPayload,
    UnknownIssuer,
    /// The issuer's tokens come in another request header.
    WrongSource,
    AlgorithmNotAllowed,
    /// The key that `kid` names is for another algorithm.
    AlgorithmMismatch,
    MissingKid,
    UnknownKey,
    BadSignature,
    WrongAudience,
    MissingExpiry,
    BadTime,
    NotYetValid,
    IssuedInFuture,
    LifetimeTooLong,
    MissingSubject,
    /// A claim that is there and is not what it must be; which one.
    BadClaim(&'static str),
    /// On the deny list.
    Denied,
}

impl Reason {
    /// A stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SeveralTokens => "several_tokens",
            Self::TooLarge => "too_large",
            Self::NotThreeParts => "not_three_parts",
            Self::BadBase64 => "bad_base64",
            Self::BadHeader => "bad_header",
            Self::UnsupportedHeader => "unsupported_header",
            Self::WrongType => "wrong_type",
            Self::BadPayload => "bad_payload",
            Self::UnknownIssuer => "unknown_issuer",
            Self::WrongSource => "wrong_source",
            Self::AlgorithmNotAllowed => "algorithm_not_allowed",
            Self::AlgorithmMismatch => "algorithm_mismatch",
            Self::MissingKid => "missing_kid",
            Self::UnknownKey => "unknown_key",
            Self::BadSignature => "bad_signature",
            Self::WrongAudience => "wrong_audience",
            Self::MissingExpiry => "missing_expiry",
            Self::BadTime => "bad_time",
            Self::NotYetValid => "not_yet_valid",
            Self::IssuedInFuture => "issued_in_future",
            Self::LifetimeTooLong => "lifetime_too_long",
            Self::MissingSubject => "missing_subject",
            Self::BadClaim(_) => "bad_claim",
            Self::Denied => "denied",
        }
    }

    /// What is wrong, for a person. Printable ASCII without quotes or backslashes, so that it
    /// can stand in an `error_description` (RFC 6750 §3).
    #[must_use]
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::SeveralTokens => "send one token, in one header",
            Self::TooLarge => "a token has at most 8192 bytes",
            Self::NotThreeParts => "a token is a signed JWT, three parts joined by dots",
            Self::BadBase64 => "each part of a JWT is base64url without padding",
            Self::BadHeader => "its header is not a JSON object with alg and unique names",
            Self::UnsupportedHeader => "its header uses crit, zip or b64, which are refused",
            Self::WrongType => "its typ is neither JWT nor at+jwt",
            Self::BadPayload => "its claims are not a JSON object with unique names",
            Self::UnknownIssuer => "its iss is not an issuer that is trusted here",
            Self::WrongSource => "tokens of its issuer are taken from another header",
            Self::AlgorithmNotAllowed => "its alg is not one that is allowed for its issuer",
            Self::AlgorithmMismatch => "its alg is not the one of its key",
            Self::MissingKid => "its header has no kid and its issuer has several keys",
            Self::UnknownKey => "its kid names no key of its issuer",
            Self::BadSignature => "its signature does not verify",
            Self::WrongAudience => "its aud does not name this gateway",
            Self::MissingExpiry => "it has no exp",
            Self::BadTime => "exp, nbf and iat are numbers of seconds since 1970",
            Self::NotYetValid => "its nbf is in the future",
            Self::IssuedInFuture => "its iat is in the future",
            Self::LifetimeTooLong => "it lives longer than is allowed here: ask for a shorter one",
            Self::MissingSubject => "it names no subject",
            Self::BadClaim(_) => "one of its claims is not of the kind that it must be",
            Self::Denied => "it was revoked: get a new one from its issuer",
        }
    }
}

/// Why the configuration of `[auth]` can't be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthSetupError {
    #[error("auth.issuers: there is none, so nobody could call")]
    NoIssuer,
    #[error("auth.{key}: {problem}")]
    Setting { key: &'static str, problem: &'static str },
    #[error("auth.issuers[{index}].{key}: {problem}")]
    Issuer { index: usize, key: &'static str, problem: String },
    #[error("the HTTP client for JWKS can't be made: {0}")]
    Client(#[source] reqwest::Error),
}
