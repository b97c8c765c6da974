//! A call that was begun, and its one end.

use super::{CallContext, Gateway, Progress, content::CallContent, spend::Turn};
use crate::{
    audit::{Audit, Entry, EntryKind},
    budget::{Reservation, Spent, TokenMeter},
    domain::{
        CallId, CancelReason, Denial, FrameError, Kind, MicroUsd, Price, StreamId, Usage,
        UsageSource,
    },
    fail_point::FailPoint,
    provider::Route,
    redact::{Counts, Depth, Direction, LiveRedactor, Tally},
    stream::Conclusion,
    telemetry::{CallSpan, ModelEnd},
};

/// How a call ended.
#[derive(Debug)]
pub enum Ending {
    Completed,
    /// The provider refused it; its answer went to the client as it was.
    RefusedUpstream {
        status: u16,
    },
    /// Refused by us after it was begun: its budget, or a secret in it.
    Denied(Denial),
    Failed(Denial),
    Canceled(CancelReason),
}

impl Ending {
    /// What the client is told, where it has not been told yet.
    #[must_use]
    pub fn denial(&self) -> Option<Denial> {
        match self {
            Self::Completed | Self::RefusedUpstream { .. } => None,
            Self::Denied(denial) | Self::Failed(denial) => Some(denial.clone()),
            Self::Canceled(_) => Some(Denial::new(Kind::Canceled, "The call was canceled.")),
        }
    }

    /// Without the secrets that its message may quote.
    pub(super) fn redacted(self, redactor: &LiveRedactor) -> Self {
        let redact = |text: &str| redactor.changed(text, Depth::Complete);
        match self {
            Self::Denied(denial) => Self::Denied(denial.redacted(redact)),
            Self::Failed(denial) => Self::Failed(denial.redacted(redact)),
            other => other,
        }
    }

    fn outcome(&self) -> &'static str {
        match self {
            Self::Completed => "ok",
            Self::RefusedUpstream { .. } => Kind::UpstreamError.code(),
            Self::Denied(denial) | Self::Failed(denial) => denial.kind.code(),
            Self::Canceled(_) => Kind::Canceled.code(),
        }
    }

    /// The stable code of what went wrong. To cancel a call is not to fail it.
    pub(super) fn failure(&self) -> Option<&'static str> {
        match self {
            Self::Completed | Self::Canceled(_) => None,
            Self::RefusedUpstream { .. } | Self::Denied(_) | Self::Failed(_) => {
                Some(self.outcome())
            }
        }
    }

    const fn entry_kind(&self) -> EntryKind {
        match self {
            Self::Denied(_) => EntryKind::Denied,
            Self::Canceled(_) => EntryKind::Canceled,
            Self::Completed | Self::RefusedUpstream { .. } | Self::Failed(_) => EntryKind::Settle,
        }
    }

    const fn status(&self) -> u16 {
        match self {
            Self::Completed => 200,
            Self::RefusedUpstream { status } => *status,
            Self::Denied(denial) | Self::Failed(denial) => denial.kind.status(),
            Self::Canceled(_) => Kind::Canceled.status(),
        }
    }

    fn detail(&self) -> Option<String> {
        match self {
            Self::Canceled(reason) => Some(reason.as_str().to_owned()),
            Self::Denied(denial) | Self::Failed(denial) => Some(denial.message.clone()),
            Self::Completed | Self::RefusedUpstream { .. } => None,
        }
    }
}

/// What a call holds between its intent and its end. It outlives the story, which may be dropped
/// at any await.
#[derive(Debug)]
pub struct OpenCall {
    pub id: CallId,
    pub context: CallContext,
    pub progress: Progress,
    pub(super) content: CallContent,
    pub(super) reservation: Option<Reservation>,
    pub(super) turn: Option<Box<Turn>>,
    /// The most that the answers can have.
    pub(super) output_bound: Option<u64>,
    pub(super) redactions: Counts,
    /// What it has spent, and who counted: `None` until it was accounted for, and where no provider
    /// has seen the call.
    usage: Option<(Usage, UsageSource)>,
    price: Option<Price>,
    intent: Box<Entry>,
    provider: Option<String>,
    provider_model: Option<String>,
    span: Option<CallSpan>,
}

impl OpenCall {
    pub(super) fn new(
        context: CallContext,
        model: &crate::provider::Model,
        stream_id: Option<StreamId>,
        keeps_content: bool,
    ) -> Self {
        let id = CallId::generate();
        let mut intent =
            Entry::new(EntryKind::Intent, context.operation, context.request_id.as_str());
        intent.call_id = Some(id);
        intent.run_id = context.run_id.as_ref().map(|id| id.as_str().to_owned());
        intent.caller = Some(std::sync::Arc::clone(&context.caller));
        intent.capability = model.requires.first_common(&context.caller.capabilities).cloned();
        intent.required = Some(model.requires.to_string());
        intent.model = Some(model.name.clone());
        intent.stream_id = stream_id;
        intent.trace_id = Some(context.trace.trace_id);
        intent.client_address = context.address;
        Self {
            id,
            context,
            progress: Progress::default(),
            content: CallContent::new(keeps_content),
            reservation: None,
            turn: None,
            output_bound: None,
            redactions: Counts::new(),
            usage: None,
            price: model.price,
            intent: Box::new(intent),
            provider: None,
            provider_model: None,
            span: None,
        }
    }

    /// The row that must be durable before anything leaves.
    pub(super) fn intent(&self) -> Entry {
        (*self.intent).clone()
    }

    /// Adds secrets that were found in the request or in the answer, for the call's row and in
    /// the gateway's `tally`.
    pub(super) fn count_redactions(
        &mut self,
        tally: &Tally,
        direction: Direction,
        counts: &Counts,
    ) {
        tally.add(direction, counts);
        for (rule, count) in counts {
            *self.redactions.entry(std::sync::Arc::clone(rule)).or_default() += count;
        }
    }

    pub(super) fn begin_attempt(&mut self, route: &Route, span: CallSpan) {
        self.provider = Some(route.provider.name().to_owned());
        self.provider_model = Some(route.model.clone());
        self.span = Some(span);
    }

    pub(super) fn end_attempt(&mut self, end: &ModelEnd<'_>) {
        if let Some(span) = self.span.take() {
            span.end_model(end);
        }
    }

    fn cost(&self, usage: &Usage) -> Option<MicroUsd> {
        self.price.map(|price| price.cost(usage))
    }

    /// The name that the caller used.
    pub(super) fn model(&self) -> Option<&str> {
        self.intent.model.as_deref()
    }

    /// Finds what the call has spent: as the provider says, else as we count. Everyone who asks is
    /// told the same after this.
    pub(super) async fn account(&mut self, meter: &TokenMeter) {
        let model = self.intent.model.as_deref().unwrap_or_default();
        if let Some(usage) = self.progress.reported {
            self.usage = Some((usage, UsageSource::Provider));
            meter.learn(model, self.progress.metered(usage));
        } else if self.progress.sent_bytes > 0 {
            let (mut usage, source) = meter.count(model, self.progress.unmetered()).await;
            // A count of ours may be too high, and a provider keeps to the bound: what was reserved
            // as the dearest that the call can be, must be.
            usage.output_tokens = usage.output_tokens.min(self.output_bound.unwrap_or(u64::MAX));
            self.usage = Some((usage, source));
        }
    }

    /// Gives back what the budgets held. Before the client is told of the end, so that whoever has
    /// seen the end of one call finds its slot free for the next.
    pub(super) async fn settle(&mut self, gateway: &Gateway) {
        let Some(reservation) = self.reservation.take() else { return };
        let spent = if reservation.has_left() { self.spent() } else { Spent::Nothing };
        reservation.settle(spent).await;
        if let Some(turn) = self.turn.take() {
            turn.end(gateway);
        }
    }

    /// Of a call that has left.
    fn spent(&self) -> Spent {
        let usage = self.usage.map(|(usage, _)| usage).unwrap_or_default();
        Spent::Actual {
            tokens: usage.input_tokens.saturating_add(usage.output_tokens),
            micro_usd: self.cost(&usage).map_or(0, |cost| cost.0),
        }
    }

    /// What the client is told at the end of a stream.
    pub(super) fn conclusion(&self, ending: &Ending) -> Conclusion {
        let usage = self.usage.map(|(usage, _)| usage);
        match ending {
            Ending::Completed => Conclusion::Completed {
                usage: usage.unwrap_or_default(),
                cost: usage.and_then(|usage| self.cost(&usage)),
            },
            Ending::Canceled(reason) => Conclusion::Canceled(*reason),
            Ending::RefusedUpstream { .. } => Conclusion::Failed(upstream_failed()),
            Ending::Denied(denial) | Ending::Failed(denial) => {
                Conclusion::Failed(FrameError::from(denial))
            }
        }
    }

    /// Writes the terminal row, and ends the span.
    pub(super) async fn record(mut self: Box<Self>, audit: &Audit, ending: &Ending) {
        let mut row = self.terminal_entry(ending);
        std::mem::take(&mut self.content).put(&mut row);
        if ending.outcome() == Kind::AuditUnavailable.code() {
            // The trail takes no entries: don't let those it turned away wait for it in turn.
            audit.denied(row);
        } else {
            audit.record(row).await;
        }
        FailPoint::AfterEnd.hit();
        self.end_span(ending);
    }

    fn terminal_entry(&self, ending: &Ending) -> Entry {
        let mut entry = self.intent.follow_up(ending.entry_kind());
        let usage = self.usage;
        entry.provider.clone_from(&self.provider);
        entry.provider_model.clone_from(&self.provider_model);
        entry.usage = usage.map(|(usage, _)| usage);
        entry.usage_source = usage.map(|(_, source)| source);
        entry.cost = usage.and_then(|(usage, _)| self.cost(&usage));
        entry.outcome = Some(ending.outcome());
        entry.status = Some(ending.status());
        entry.finish_reason = self.progress.finish_reasons().next().map(str::to_owned);
        entry.latency = Some(self.context.arrived.elapsed());
        entry.time_to_first = self.progress.time_to_first;
        entry.redactions = (!self.redactions.is_empty())
            .then(|| serde_json::to_string(&self.redactions).unwrap_or_default());
        entry.detail = ending.detail();
        entry
    }

    fn end_span(mut self: Box<Self>, ending: &Ending) {
        let Some(span) = self.span.take() else { return };
        let reasons: Vec<&str> = self.progress.finish_reasons().collect();
        span.end_model(&ModelEnd {
            response_model: self.progress.response_model.as_deref(),
            response_id: self.progress.response_id.as_deref(),
            finish_reasons: &reasons,
            usage: self.usage.map(|(usage, _)| usage),
            time_to_first_chunk: self.progress.time_to_first,
            error_type: (!matches!(ending, Ending::Completed)).then(|| ending.outcome()),
        });
    }
}

fn upstream_failed() -> FrameError {
    let denial = Denial::new(
        Kind::UpstreamError,
        "The model's provider broke off with an error of its own.",
    );
    FrameError::from(&denial)
}
