//! Why a call was not answered, as one closed list with stable codes.

use std::iter;

/// Makes [`Kind`] and all that is said of a kind from one table, so that none can be left out.
macro_rules! kinds {
    ($($(#[doc = $meaning:literal])+ $name:ident = $status:literal, $code:literal;)+) => {
        /// What went wrong, as the public knows it: gives the status, the stable code and the
        /// retry hint.
        ///
        /// The codes are part of the contract: never change one, only add.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Kind {
            $($(#[doc = $meaning])+ $name,)+
        }

        impl Kind {
            /// Every kind, for the documentation.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The stable code in an error's body, an `error` frame and an audit row.
            #[must_use]
            pub const fn code(self) -> &'static str {
                match self {
                    $(Self::$name => $code,)+
                }
            }

            /// The HTTP status.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self {
                    $(Self::$name => $status,)+
                }
            }

            /// What happened and what to do, in a sentence or two for the documentation.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($meaning),+).trim_ascii(),)+
                }
            }
        }
    };
}

kinds! {
    /// The request is not one that this route takes; `param` names the field.
    InvalidRequest = 400, "invalid_request";
    /// The body is not a JSON object.
    InvalidJson = 400, "invalid_json";
    /// There is a secret in the request and the gateway is set to refuse those: take it out.
    SecretInRequest = 400, "secret_in_request";
    /// No token came: send `Authorization: Bearer …`.
    MissingToken = 401, "missing_token";
    /// The token is not one that the gateway trusts.
    InvalidToken = 401, "invalid_token";
    /// The token's time is over: get a new one.
    ExpiredToken = 401, "expired_token";
    /// The token lacks the capability that the model or tool takes.
    CapabilityDenied = 403, "capability_denied";
    /// The gateway does not know the token's tier.
    UnknownTier = 403, "unknown_tier";
    /// A budget in USD applies to the caller, and the model has no price.
    UnpricedModel = 403, "unpriced_model";
    /// There is no such route.
    NotFound = 404, "not_found";
    /// There is no such model; `GET /v1/models` lists yours.
    ModelNotFound = 404, "model_not_found";
    /// No call of a run of this id is in the audit trail.
    RunNotFound = 404, "run_not_found";
    /// There is no such stream, it is another's, or its frames are no longer kept.
    StreamGone = 404, "stream_gone";
    /// The route does not take this method.
    MethodNotAllowed = 405, "method_not_allowed";
    /// The request did not come in time.
    RequestTimeout = 408, "request_timeout";
    /// The body is larger than the gateway takes.
    BodyTooLarge = 413, "body_too_large";
    /// Send the body with `content-type: application/json`.
    UnsupportedMediaType = 415, "unsupported_media_type";
    /// Too many requests: wait for `retry-after`.
    RateLimited = 429, "rate_limited";
    /// Too many calls at once: wait for one to end.
    ConcurrencyLimited = 429, "concurrency_limited";
    /// A budget is spent: wait for `retry-after`, until its window ends.
    BudgetExhausted = 429, "budget_exhausted";
    /// The call was canceled. Only in a stream's frames and in the audit trail.
    Canceled = 499, "canceled";
    /// A fault of the gateway; `x-request-id` finds it in its log.
    Internal = 500, "internal";
    /// The provider cannot be reached.
    UpstreamUnavailable = 502, "upstream_unavailable";
    /// The provider sent what is not understood.
    UpstreamInvalid = 502, "upstream_invalid";
    /// The provider's answer broke off.
    UpstreamLost = 502, "upstream_lost";
    /// The provider ended the answer with an error of its own.
    UpstreamError = 502, "upstream_error";
    /// The gateway has all the work that it can take.
    Overloaded = 503, "overloaded";
    /// The audit trail cannot be written, and nothing leaves unaudited; or it cannot be read.
    AuditUnavailable = 503, "audit_unavailable";
    /// The store of the budgets does not answer, and nothing is spent uncounted.
    BudgetUnavailable = 503, "budget_unavailable";
    /// The keys of the token's issuer cannot be had.
    IssuerUnavailable = 503, "issuer_unavailable";
    /// The gateway is stopping: another instance, or the next, will answer.
    ShuttingDown = 503, "shutting_down";
    /// The provider did not answer in time, or fell silent.
    UpstreamTimeout = 504, "upstream_timeout";
    /// The call took longer than a call may. To send it again would buy it twice.
    CallTimeout = 504, "call_timeout";
    /// The audit trail was searched for too long: narrow the time, or filter by more.
    QueryTooSlow = 504, "query_too_slow";
}

impl Kind {
    /// May the same request succeed if it is sent again? Not a call that took all the time there
    /// is: it would be bought once more for nothing. Nor the same long search.
    #[must_use]
    pub const fn retryable(self) -> bool {
        matches!(self.status(), 408 | 429 | 502 | 503 | 504)
            && !matches!(self, Self::CallTimeout | Self::QueryTooSlow)
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

    /// With all that may quote a request put through `redact`, which gives back what it changed.
    #[must_use]
    pub fn redacted(mut self, redact: impl Fn(&str) -> Option<String>) -> Self {
        for text in iter::once(&mut self.message).chain(&mut self.param) {
            if let Some(redacted) = redact(text) {
                *text = redacted;
            }
        }
        self
    }
}
