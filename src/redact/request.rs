//! Requests, and every other whole JSON text, without their secrets.

use std::{collections::BTreeSet, fmt::Write as _, sync::Arc};

use bytes::Bytes;

use super::{
    Counts, Depth, Redactor,
    path::paths,
    search::{Found, search, search_json},
};
use crate::{
    config::RequestRedaction,
    domain::{BodyError, Denial, Kind, ModelCall},
};

/// As many places as a person mends at a time; that there are more is said.
const MAX_PLACES: usize = 8;

/// A redacted call must still be a call.
#[derive(Debug, thiserror::Error)]
pub enum RedactError {
    #[error("{}", .denial.message)]
    Blocked { denial: Denial, counts: Counts },
    #[error("redaction left no valid request: {source}")]
    Broken { source: BodyError, counts: Counts },
    /// The redactor panicked, or its thread is gone.
    #[error("the redactor failed")]
    Failed,
}

impl RedactError {
    /// How many secrets each rule found before it came to this.
    #[must_use]
    pub fn counts(&self) -> Counts {
        match self {
            Self::Blocked { counts, .. } | Self::Broken { counts, .. } => counts.clone(),
            Self::Failed => Counts::new(),
        }
    }

    #[must_use]
    pub fn to_denial(&self) -> Denial {
        match self {
            Self::Blocked { denial, .. } => denial.clone(),
            Self::Broken { .. } | Self::Failed => Denial::new(
                Kind::Internal,
                "The request could not be redacted, so it was not sent.",
            ),
        }
    }
}

impl Redactor {
    /// The call without its secrets. A call that has none is handed back as it was.
    ///
    /// # Errors
    /// In `block` mode a request with a secret; and a call that redaction broke.
    pub fn redact_call(&self, call: ModelCall) -> Result<(ModelCall, Counts), RedactError> {
        let found = search_json(self, call.body(), Depth::Complete);
        if found.is_empty() {
            return Ok((call, Counts::new()));
        }
        let counts = self.count_all(&found);
        if self.mode == RequestRedaction::Block {
            let denial = self.blocked(call.body(), &found, &counts);
            return Err(RedactError::Blocked { denial, counts });
        }
        match ModelCall::parse(replace(call.body(), &found)) {
            Ok(call) => Ok((call, counts)),
            Err(source) => Err(RedactError::Broken { source, counts }),
        }
    }

    /// A whole body without its secrets, and how many each rule found. Without any the bytes are
    /// the same ones, not copied.
    ///
    /// JSON is looked through string by string, and stays JSON of the same shape; what is no JSON
    /// is one text. With [`Depth::Formats`] each string is looked at only as it reads, as a
    /// stream's would be: not what it holds in JSON, in base64 or percent-encoded.
    #[must_use]
    pub fn redact_json(&self, body: &Bytes, depth: Depth) -> (Bytes, Counts) {
        self.replaced(body, &search(self, body, depth))
    }

    /// As [`Redactor::redact_json`], of what is known to be JSON, and looked at in all views.
    #[must_use]
    pub fn redact_known_json(&self, body: &Bytes) -> (Bytes, Counts) {
        self.replaced(body, &search_json(self, body, Depth::Complete))
    }

    fn replaced(&self, body: &Bytes, found: &Found) -> (Bytes, Counts) {
        if found.is_empty() {
            return (body.clone(), Counts::new());
        }
        (replace(body, found), self.count_all(found))
    }

    fn count_all(&self, found: &Found) -> Counts {
        let mut counts = Counts::new();
        for (_, secret) in found {
            *counts.entry(Arc::clone(self.engine().name(secret.rule))).or_default() += 1;
        }
        counts
    }

    /// Names rules and places, never a secret.
    fn blocked(&self, body: &[u8], found: &Found, counts: &Counts) -> Denial {
        let paths = paths(body, found, MAX_PLACES);
        let mut message = String::from("The request holds secrets: ");
        let mut told = BTreeSet::new();
        for ((_, secret), path) in found.iter().zip(&paths) {
            let rule = self.engine().name(secret.rule);
            if told.insert((rule, path)) {
                let comma = if told.len() > 1 { ", " } else { "" };
                // A String takes all that is written to it.
                let _ = write!(message, "{comma}{rule} at `{path}`");
            }
        }
        let more = found.len().saturating_sub(MAX_PLACES);
        if more > 0 {
            let named: BTreeSet<_> = told.iter().map(|(rule, _)| *rule).collect();
            let others = counts.keys().filter(|rule| !named.contains(rule)).take(MAX_PLACES);
            let others: Vec<&str> = others.map(|rule| &**rule).collect();
            let _ = write!(message, ", and {more} more");
            if !others.is_empty() {
                let _ = write!(message, " ({})", others.join(", "));
            }
        }
        message.push_str(". Take them out.");
        let denial = Denial::new(Kind::SecretInRequest, message);
        match paths.into_iter().next() {
            Some(path) => denial.with_param(path),
            None => denial,
        }
    }
}

pub(super) fn replace(body: &[u8], found: &Found) -> Bytes {
    let mut out = Vec::with_capacity(body.len());
    let mut from = 0;
    for (at, secret) in found {
        out.extend_from_slice(&body[from..at.start]);
        out.extend_from_slice(secret.placeholder.as_bytes());
        from = at.end;
    }
    out.extend_from_slice(&body[from..]);
    Bytes::from(out)
}
