//! Why a call was not answered, as one closed list with stable codes.

/// What went wrong, as the public knows it: gives the status, the stable code and the retry hint.
///
/// The codes are part of the contract: never change one, only add.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    // 400
    InvalidRequest,
    InvalidJson,
    SecretInRequest,
    // 401
    MissingToken,
    InvalidToken,
    ExpiredToken,
    // 403
    CapabilityDenied,
    UnknownTier,
    // 404
    NotFound,
    ModelNotFound,
    StreamGone,
    // 405, 408, 413, 415, 431
    MethodNotAllowed,
    RequestTimeout,
    BodyTooLarge,
    UnsupportedMediaType,
    // 429
    RateLimited,
    ConcurrencyLimited,
    // 499-like: only ever seen in audit and in a stream's frames
    Canceled,
    // 500
    Internal,
    // 502, 503, 504
    UpstreamUnavailable,
    UpstreamInvalid,
    UpstreamLost,
    UpstreamError,
    Overloaded,
    AuditUnavailable,
    IssuerUnavailable,
    ShuttingDown,
    UpstreamTimeout,
    CallTimeout,
}

impl Kind {
    /// Every kind, for the documentation.
    pub const ALL: &[Self] = &[
        Self::InvalidRequest,
        Self::InvalidJson,
        Self::SecretInRequest,
        Self::MissingToken,
        Self::InvalidToken,
        Self::ExpiredToken,
        Self::CapabilityDenied,
        Self::UnknownTier,
        Self::NotFound,
        Self::ModelNotFound,
        Self::StreamGone,
        Self::MethodNotAllowed,
        Self::RequestTimeout,
        Self::BodyTooLarge,
        Self::UnsupportedMediaType,
        Self::RateLimited,
        Self::ConcurrencyLimited,
        Self::Canceled,
        Self::Internal,
        Self::UpstreamUnavailable,
        Self::UpstreamInvalid,
        Self::UpstreamLost,
        Self::UpstreamError,
        Self::Overloaded,
        Self::AuditUnavailable,
        Self::IssuerUnavailable,
        Self::ShuttingDown,
        Self::UpstreamTimeout,
        Self::CallTimeout,
    ];

    /// The stable code in an error's body, an `error` frame and an audit row.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request",
            Self::InvalidJson => "invalid_json",
            Self::SecretInRequest => "secret_in_request",
            Self::MissingToken => "missing_token",
            Self::InvalidToken => "invalid_token",
            Self::ExpiredToken => "expired_token",
            Self::CapabilityDenied => "capability_denied",
            Self::UnknownTier => "unknown_tier",
            Self::NotFound => "not_found",
            Self::ModelNotFound => "model_not_found",
            Self::StreamGone => "stream_gone",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::RequestTimeout => "request_timeout",
            Self::BodyTooLarge => "body_too_large",
            Self::UnsupportedMediaType => "unsupported_media_type",
            Self::RateLimited => "rate_limited",
            Self::ConcurrencyLimited => "concurrency_limited",
            Self::Canceled => "canceled",
            Self::Internal => "internal",
            Self::UpstreamUnavailable => "upstream_unavailable",
            Self::UpstreamInvalid => "upstream_invalid",
            Self::UpstreamLost => "upstream_lost",
            Self::UpstreamError => "upstream_error",
            Self::Overloaded => "overloaded",
            Self::AuditUnavailable => "audit_unavailable",
            Self::IssuerUnavailable => "issuer_unavailable",
            Self::ShuttingDown => "shutting_down",
            Self::UpstreamTimeout => "upstream_timeout",
            Self::CallTimeout => "call_timeout",
        }
    }

    /// The HTTP status.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::InvalidRequest | Self::InvalidJson | Self::SecretInRequest => 400,
            Self::MissingToken | Self::InvalidToken | Self::ExpiredToken => 401,
            Self::CapabilityDenied | Self::UnknownTier => 403,
            Self::NotFound | Self::ModelNotFound | Self::StreamGone => 404,
            Self::MethodNotAllowed => 405,
            Self::RequestTimeout => 408,
            Self::BodyTooLarge => 413,
            Self::UnsupportedMediaType => 415,
            Self::RateLimited | Self::ConcurrencyLimited => 429,
            Self::Canceled => 499,
            Self::Internal => 500,
            Self::UpstreamUnavailable
            | Self::UpstreamInvalid
            | Self::UpstreamLost
            | Self::UpstreamError => 502,
            Self::Overloaded
            | Self::AuditUnavailable
            | Self::IssuerUnavailable
            | Self::ShuttingDown => 503,
            Self::UpstreamTimeout | Self::CallTimeout => 504,
        }
    }

    /// May the same request succeed if it is sent again? Not a call that took all the time there
    /// is: it would be bought once more for nothing.
    #[must_use]
    pub const fn retryable(self) -> bool {
        matches!(self.status(), 408 | 429 | 502 | 503 | 504) && !matches!(self, Self::CallTimeout)
    }
}

/// A refusal or failure as the public may see it: no secret and no internals in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", .kind.code())]
pub struct Denial {
    pub kind: Kind,
    /// A sentence for a person; names the remedy.
    pub message: String,
    /// The request field at fault.
    pub param: Option<String>,
    /// When to try again, in milliseconds from now.
    pub retry_after_ms: Option<u64>,
}

impl Denial {
    #[must_use]
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), param: None, retry_after_ms: None }
    }

    #[must_use]
    pub fn with_param(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    #[must_use]
    pub fn with_retry_after_ms(mut self, retry_after_ms: u64) -> Self {
        self.retry_after_ms = Some(retry_after_ms);
        self
    }
}
