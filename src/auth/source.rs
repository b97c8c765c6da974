//! Which of a request's headers carries its token.

use http::{
    HeaderMap, HeaderName,
    header::{AUTHORIZATION, GetAll},
};

use super::{AuthError, Reason};

/// Anthropic's SDKs send their key here.
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// A token as it was sent, and the configured header that it counts as.
#[derive(Clone, Copy)]
pub(super) struct Credential<'a> {
    pub token: &'a [u8],
    pub header: &'a HeaderName,
}

/// The headers that issuers name, in the order of the configuration.
///
/// The first that is there is the one whose token must verify; there is no second try. So where
/// a proxy adds an assertion of its own to each request, the operator's order says who wins.
/// The query string is never looked at (RFC 6750 §2.3 calls it insecure, RFC 9700 forbids it).
#[derive(Debug)]
pub(super) struct Sources(Vec<HeaderName>);

impl Sources {
    pub(super) fn new<'a>(headers: impl IntoIterator<Item = &'a HeaderName>) -> Self {
        let mut distinct = Vec::new();
        for header in headers {
            if !distinct.contains(header) {
                distinct.push(header.clone());
            }
        }
        Self(distinct)
    }

    pub(super) fn find<'a>(
        &'a self,
        headers: &'a HeaderMap,
        route_takes_api_key: bool,
    ) -> Result<Credential<'a>, AuthError> {
        for header in &self.0 {
            let token = if header == AUTHORIZATION {
                bearer_or_api_key(headers, route_takes_api_key)?
            } else {
                raw(headers.get_all(header))?
            };
            if let Some(token) = token {
                return Ok(Credential { token, header });
            }
        }
        Err(AuthError::Missing)
    }
}

/// RFC 6750 §2: a client uses one way to send its token, not two.
fn bearer_or_api_key(
    headers: &HeaderMap,
    route_takes_api_key: bool,
) -> Result<Option<&[u8]>, Reason> {
    let bearer = single(headers.get_all(AUTHORIZATION))?.and_then(bearer);
    if !route_takes_api_key {
        return Ok(bearer);
    }
    match (bearer, raw(headers.get_all(X_API_KEY))?) {
        (Some(bearer), Some(key)) if bearer != key => Err(Reason::SeveralTokens),
        (bearer, key) => Ok(bearer.or(key)),
    }
}

fn raw(values: GetAll<'_, http::HeaderValue>) -> Result<Option<&[u8]>, Reason> {
    Ok(single(values)?.filter(|value| !value.is_empty()))
}

fn single(values: GetAll<'_, http::HeaderValue>) -> Result<Option<&[u8]>, Reason> {
    let mut values = values.into_iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(Reason::SeveralTokens);
    }
    Ok(first.map(http::HeaderValue::as_bytes))
}

/// The token of `Bearer <token>`; the scheme's case does not matter (RFC 9110 §11.1). Another
/// scheme, or no token after it, is no token.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked("bearer".len())?;
    let token = rest.strip_prefix(b" ")?.trim_ascii_start();
    (scheme.eq_ignore_ascii_case(b"bearer") && !token.is_empty()).then_some(token)
}
