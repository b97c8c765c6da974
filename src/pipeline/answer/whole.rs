//! A whole answer, good or bad.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use serde::de::IgnoredAny;

use super::{
    AnswerError,
    frame::Edits,
    walk::{Step, is_member, walk},
};
use crate::{
    offload::Offload,
    pipeline::Snapshot,
    provider::Complete,
    redact::{Counts, Depth, Redactor},
};

/// The answer without its secrets; worked out on another thread where that takes long.
///
/// A choice whose message was changed has `logprobs` of null: they would tell the secret token by
/// token.
pub(in crate::pipeline) async fn redact(
    offload: &Offload,
    snapshot: &Arc<Snapshot>,
    complete: Complete,
) -> Result<(Complete, Counts), AnswerError> {
    let Complete { status, headers, body } = complete;
    let (snapshot, bytes) = (Arc::clone(snapshot), body.len());
    let is_good = status < 400;
    let work = move || redact_body(&snapshot.redactor, &body, is_good);
    let redacted = offload.run_for(bytes, work).await;
    let (body, counts) = redacted.unwrap_or(Err(AnswerError::Failed))?;
    Ok((Complete { status, headers, body }, counts))
}

/// A good answer is JSON, as its provider has seen to.
fn redact_body(
    redactor: &Redactor,
    body: &Bytes,
    is_good: bool,
) -> Result<(Bytes, Counts), AnswerError> {
    let (redacted, counts) = if is_good {
        redactor.redact_known_json(body)
    } else {
        redactor.redact_json(body, Depth::Complete)
    };
    if counts.is_empty() || !is_json(body) {
        return Ok((redacted, counts));
    }
    let redacted = without_logprobs(body, redacted);
    if is_json(&redacted) { Ok((redacted, counts)) } else { Err(AnswerError::Broken) }
}

fn is_json(body: &[u8]) -> bool {
    serde_json::from_slice::<IgnoredAny>(body).is_ok()
}

/// `redacted` without the `logprobs` of the choices that are not as they were in `body`.
fn without_logprobs(body: &[u8], redacted: Bytes) -> Bytes {
    let (before, after) = (choices(body), choices(&redacted));
    let mut edits = Edits::default();
    for (old, new) in before.iter().zip(&after) {
        if let Some(logprobs) = &new.logprobs
            && body.get(old.at.clone()) != redacted.get(new.at.clone())
        {
            edits.null(logprobs.clone());
        }
    }
    if edits.is_empty() { redacted } else { edits.apply(&redacted) }
}

#[derive(Default)]
struct Choice {
    at: Range<usize>,
    logprobs: Option<Range<usize>>,
}

/// Where an answer's choices stand.
fn choices(json: &[u8]) -> Vec<Choice> {
    let (mut choices, mut logprobs) = (Vec::new(), None);
    walk(json, |_, at, way| match way {
        [top, Step::Element(_)] if is_member(json, Some(top), "choices") => {
            choices.push(Choice { at, logprobs: logprobs.take() });
        }
        [top, Step::Element(_), member]
            if json.get(at.start) == Some(&b'{')
                && is_member(json, Some(top), "choices")
                && is_member(json, Some(member), "logprobs") =>
        {
            logprobs = Some(at);
        }
        _ => {}
    });
    choices
}
