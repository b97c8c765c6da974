//! One row of the audit trail.

use std::{net::IpAddr, sync::Arc, time::Duration};

use jiff::Timestamp;
use uuid::Uuid;

use super::{Content, ContentDigest, clean::Clean};
use crate::{
    domain::{CallId, Caller, Capability, MicroUsd, StreamId, Usage, UsageSource},
    redact::{Depth, LiveRedactor, Redactor},
};

/// What an entry records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// A call is about to leave. Durable before anything does.
    Intent,
    /// Terminal: a call ended, well or badly, and its budget is settled.
    Settle,
    /// A call was refused. Terminal where an intent came before.
    Denied,
    /// Terminal: a call was given up before its end.
    Canceled,
    ToolCall,
    Approval,
    Reload,
}

impl EntryKind {
    pub const ALL: [Self; 7] = [
        Self::Intent,
        Self::Settle,
        Self::Denied,
        Self::Canceled,
        Self::ToolCall,
        Self::Approval,
        Self::Reload,
    ];

    /// The name in the store and in what `tollgate audit` prints. Part of the contract.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Intent => "intent",
            Self::Settle => "settle",
            Self::Denied => "denied",
            Self::Canceled => "canceled",
            Self::ToolCall => "tool_call",
            Self::Approval => "approval",
            Self::Reload => "reload",
        }
    }

    /// Does it end its call? A sink keeps the first terminal entry of a call and no other.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Settle | Self::Denied | Self::Canceled)
    }
}

/// One row, as it is to be written. Never changed once it is.
#[derive(Debug, Clone)]
pub struct Entry {
    /// A UUIDv7. Sinks write an id once, however often it is sent.
    pub id: Uuid,
    /// What ties an intent to its terminal entry; `None` for denials that had no call.
    pub call_id: Option<CallId>,
    pub time: Timestamp,
    pub kind: EntryKind,
    pub request_id: String,
    /// The operation's id as the API's description has it, such as `create_chat_completion`.
    pub operation: &'static str,
    /// `None` where the caller is not known, as in a 401.
    pub caller: Option<Arc<Caller>>,
    /// The capabilities any one of which was required, separated by spaces.
    pub required: Option<String>,
    /// The name that the caller used.
    pub model: Option<String>,
    pub provider: Option<String>,
    /// What the provider calls the model.
    pub provider_model: Option<String>,
    pub stream_id: Option<StreamId>,
    pub trace_id: Option<u128>,
    pub client_address: Option<IpAddr>,
    pub usage: Option<Usage>,
    pub usage_source: Option<UsageSource>,
    pub cost: Option<MicroUsd>,
    /// `ok`, or the stable code of what went wrong ([`crate::domain::Kind::code`]).
    pub outcome: Option<&'static str>,
    /// The HTTP status sent, or that would have been.
    pub status: Option<u16>,
    pub finish_reason: Option<String>,
    /// From the request's head to the end of its answer.
    pub latency: Option<Duration>,
    /// From the request's head to the first piece of its answer.
    pub time_to_first: Option<Duration>,
    /// JSON: which redaction rules matched, and how often.
    pub redactions: Option<String>,
    /// A sentence for a person. No secrets and no content.
    pub detail: Option<String>,
    /// The run of an agent that it belongs to, as its caller says (`x-run-id`).
    pub run_id: Option<String>,
    /// The tool that was called.
    pub tool: Option<String>,
    /// The one capability that admitted the call.
    pub capability: Option<Capability>,
    /// What was sent, and what came back.
    pub input: Option<ContentDigest>,
    pub output: Option<ContentDigest>,
    /// What is kept of them, beside the row. Redacted by whoever gives it.
    pub content: Option<Box<Content>>,
    /// Were the secrets taken out of what the request says? Then they are not looked for again.
    pub is_redacted: bool,
}

impl Entry {
    /// An entry of now, all else unset.
    #[must_use]
    pub fn new(kind: EntryKind, operation: &'static str, request_id: impl Into<String>) -> Self {
        Self {
            id: Uuid::now_v7(),
            call_id: None,
            time: Timestamp::now(),
            kind,
            request_id: request_id.into(),
            operation,
            caller: None,
            required: None,
            model: None,
            provider: None,
            provider_model: None,
            stream_id: None,
            trace_id: None,
            client_address: None,
            usage: None,
            usage_source: None,
            cost: None,
            outcome: None,
            status: None,
            finish_reason: None,
            latency: None,
            time_to_first: None,
            redactions: None,
            detail: None,
            run_id: None,
            tool: None,
            capability: None,
            input: None,
            output: None,
            content: None,
            is_redacted: false,
        }
    }

    /// A later entry of the same call: what the call is stays, what came of it is unset.
    #[must_use]
    pub fn follow_up(&self, kind: EntryKind) -> Self {
        Self {
            call_id: self.call_id,
            caller: self.caller.clone(),
            required: self.required.clone(),
            model: self.model.clone(),
            provider: self.provider.clone(),
            provider_model: self.provider_model.clone(),
            stream_id: self.stream_id,
            trace_id: self.trace_id,
            client_address: self.client_address,
            run_id: self.run_id.clone(),
            tool: self.tool.clone(),
            capability: self.capability.clone(),
            is_redacted: self.is_redacted,
            ..Self::new(kind, self.operation, self.request_id.clone())
        }
    }

    /// Takes the secrets out of all that a stranger may have said.
    pub(super) fn redact(&mut self, redactor: &LiveRedactor, clean: &mut Clean) {
        let Some(redactor) = redactor.now() else { return };
        clean.renew(&redactor);
        // Names and ids have a shape, which the contextual rules would read too much into.
        let Self { provider, provider_model, finish_reason, tool, .. } = self;
        for name in [provider, provider_model, finish_reason, tool].into_iter().flatten() {
            clean.redact_name(name, Depth::Formats, &redactor);
        }
        if let Some(detail) = &mut self.detail {
            redactor.redact_in_place(detail, Depth::Complete);
        }
        if std::mem::replace(&mut self.is_redacted, true) {
            return;
        }
        for id in [Some(&mut self.request_id), self.run_id.as_mut()].into_iter().flatten() {
            redactor.redact_in_place(id, Depth::Formats);
        }
        if let Some(model) = &mut self.model {
            clean.redact_name(model, Depth::Complete, &redactor);
        }
        if let Some(caller) = &mut self.caller
            && !clean.knows(caller)
        {
            if says_a_secret(caller, &redactor) {
                redact_caller(Arc::make_mut(caller), &redactor);
            } else {
                clean.remember(caller);
            }
        }
    }
}

/// What a token says is its issuer's word, which may have a user's in it.
fn says_a_secret(caller: &Caller, redactor: &Redactor) -> bool {
    let Caller { subject, issuer, tier, agent, extra, .. } = caller;
    let mut texts = [subject, issuer, tier].into_iter().chain(agent).chain(extra.values());
    texts.any(|text| redactor.finds(text, Depth::Formats))
}

fn redact_caller(caller: &mut Caller, redactor: &Redactor) {
    let Caller { subject, issuer, tier, agent, extra, .. } = caller;
    let texts = [subject, issuer, tier].into_iter().chain(agent).chain(extra.values_mut());
    texts.for_each(|text| redactor.redact_in_place(text, Depth::Formats));
}
