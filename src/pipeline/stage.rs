//! The stages before a call leaves, and the types that prove that each was passed.
//!
//! Their constructors are private to this module: a function that takes `Redacted<ModelCall>`
//! can't be called with a call that was not authorized and redacted first.

use std::sync::Arc;

use super::{Refused, Snapshot};
use crate::{
    audit::ContentDigest,
    domain::{Caller, CapabilitySet, Denial, Kind, ModelCall},
    offload::Offload,
    provider::Model,
    redact::{Counts, RedactError},
};

/// A call that its caller may make, and the model that it is for.
#[derive(Debug)]
pub struct Authorized<T> {
    call: T,
    model: Arc<Model>,
}

impl<T> Authorized<T> {
    #[must_use]
    pub const fn call(&self) -> &T {
        &self.call
    }

    #[must_use]
    pub const fn model(&self) -> &Arc<Model> {
        &self.model
    }
}

/// An authorized call that has no secrets in it any more.
#[derive(Debug)]
pub struct Redacted<T> {
    call: T,
    model: Arc<Model>,
    counts: Counts,
    digest: ContentDigest,
}

impl<T> Redacted<T> {
    #[must_use]
    pub const fn call(&self) -> &T {
        &self.call
    }

    #[must_use]
    pub const fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// Of the body as the caller sent it, but for the secrets: so that the caller can work it out.
    #[must_use]
    pub const fn digest(&self) -> ContentDigest {
        self.digest
    }

    /// How many secrets each rule took out.
    #[must_use]
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }
}

/// May this caller use this model, and pass these tools (DESIGN §6)?
///
/// # Errors
/// 404 for a model that there is not, 403 with what would be required.
pub fn authorize(
    snapshot: &Snapshot,
    caller: &Caller,
    call: ModelCall,
) -> Result<Authorized<ModelCall>, Box<Refused>> {
    let Some(model) = snapshot.registry.get(&call.model) else {
        return Err(Box::new(unknown_model(&call.model)));
    };
    if !model.requires.intersects(&caller.capabilities) {
        let what = format!("the model `{}`", model.name);
        return Err(Box::new(denied(&what, "model", &model.requires, &call)));
    }
    for tool in &call.tools {
        if let Some(requires) = snapshot.tools.requires(tool)
            && !requires.intersects(&caller.capabilities)
        {
            return Err(Box::new(denied(&format!("the tool `{tool}`"), "tools", requires, &call)));
        }
    }
    Ok(Authorized { model: Arc::clone(model), call })
}

/// Takes the secrets out; on another thread where that takes long.
///
/// # Errors
/// In `block` mode, a request with a secret; and one that could not be redacted.
pub(super) async fn redact(
    offload: &Offload,
    snapshot: &Arc<Snapshot>,
    authorized: Authorized<ModelCall>,
) -> Result<Redacted<ModelCall>, RedactError> {
    let (snapshot, bytes) = (Arc::clone(snapshot), authorized.call.body_len());
    let redacted = offload.run_for(bytes, move || redact_here(&snapshot, authorized)).await;
    redacted.unwrap_or(Err(RedactError::Failed))
}

fn redact_here(
    snapshot: &Snapshot,
    authorized: Authorized<ModelCall>,
) -> Result<Redacted<ModelCall>, RedactError> {
    let Authorized { call, model } = authorized;
    let (call, counts) = snapshot.redactor.redact_call(call)?;
    let digest = ContentDigest::of(call.body());
    Ok(Redacted { call, model, counts, digest })
}

fn unknown_model(name: &str) -> Refused {
    let message = format!("There is no model `{name}`; GET /v1/models lists those you may use.");
    let denial = Denial::new(Kind::ModelNotFound, message).with_param("model");
    Refused { model: Some(name.to_owned()), ..denial.into() }
}

fn denied(what: &str, param: &str, requires: &CapabilitySet, call: &ModelCall) -> Refused {
    let message = if requires.is_empty() {
        format!("Nobody may use {what}: its `requires` is empty.")
    } else {
        format!("To use {what} takes one of these capabilities, which the token lacks: {requires}.")
    };
    Refused {
        required: Some(requires.to_string()),
        model: Some(call.model.clone()),
        ..Denial::new(Kind::CapabilityDenied, message).with_param(param).into()
    }
}
