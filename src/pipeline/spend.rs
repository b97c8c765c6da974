//! The stage that takes what a call may spend, and who is told where there is nothing to take.

use std::sync::Arc;

use jiff::Timestamp;

use super::{Authorized, Ending, Gateway, OpenCall, Snapshot};
use crate::{
    budget::{
        Bucket, BudgetNotice, Charge, Claim, Entered, Exhausted, Forecast, LedgerError, Limit,
        Measure, ModelBounds, NoticeOwner, NoticeUnit, Period, Refusal, Report, Scope, Window,
    },
    domain::{Caller, Kind, ModelCall, NoticeId},
    redact::Depth,
};

/// What the call may take of every bucket that applies to it.
pub(super) fn charges(
    gateway: &Gateway,
    snapshot: &Snapshot,
    open: &mut OpenCall,
    authorized: &Authorized<ModelCall>,
) -> Result<Vec<Charge>, Ending> {
    let (call, model) = (authorized.call(), authorized.model());
    let bounds = ModelBounds {
        max_input_tokens: model.max_input_tokens,
        max_output_tokens: model.max_output_tokens,
        price: model.price,
        attempts: u64::try_from(model.routes.len()).unwrap_or(u64::MAX),
    };
    let input_tokens = gateway.meter.estimator.input_tokens(&model.name, call.body_len());
    let forecast = Forecast::new(call, input_tokens, bounds);
    open.output_bound = forecast.output_bound();
    let charges = snapshot.limits.charges(&open.context.caller, &model.name, &forecast);
    charges.map_err(|denial| {
        gateway.budgets.note_refusal(denial.kind);
        Ending::Denied(denial)
    })
}

/// Takes it, and says how the buckets stand then. Where the model's slots are taken it waits for
/// its turn among the callers.
pub(super) async fn reserve(
    gateway: &Gateway,
    weight: u32,
    open: &mut OpenCall,
    charges: Vec<Charge>,
) -> (Report, Result<(), Ending>) {
    let caller = Arc::clone(&open.context.caller);
    gateway.budgets.note(caller.agent.as_ref().unwrap_or(&caller.subject), &charges);
    let turn = slots(&charges).map(|bucket| Turn::new(bucket, &caller));
    let (id, charges) = (open.id, Arc::<[Charge]>::from(charges));
    let attempt = || gateway.budgets.reserve(id, Arc::clone(&charges));
    let reserved = match &turn {
        None => attempt().await,
        Some(turn) => {
            let key = turn.bucket.key();
            let claim = Claim { key, caller: &turn.caller, weight };
            let is_full = |refusal: &Refusal| refusal.is_full_of(key);
            match gateway.queues.enter(claim, attempt, is_full).await {
                Ok(Entered { grant, .. }) => Ok(grant),
                Err(refused) => Err(refused.into_error(|| no_turn(&charges))),
            }
        }
    };
    match reserved {
        Ok((reservation, grant)) => {
            let report = Report::new(&charges, &grant.standings);
            open.reservation = Some(reservation);
            open.turn = turn.map(Box::new);
            (report, Ok(()))
        }
        Err(refusal) => {
            if let Refusal::Exhausted(exhausted) = &refusal {
                tell(gateway, open, exhausted);
            }
            let report = Report::new(&charges, refusal.standings());
            let denial = refusal.to_denial();
            gateway.budgets.note_refusal(denial.kind);
            (report, Err(Ending::Denied(denial)))
        }
    }
}

/// The slots for which a call would wait: those of the model, else those of its tier for it.
fn slots(charges: &[Charge]) -> Option<&Arc<Bucket>> {
    let slots = charges.iter().map(|charge| &charge.bucket).filter(|it| it.limit.is_slots());
    slots.max_by_key(|bucket| matches!(bucket.scope, Scope::Model { .. }))
}

/// The refusal of a call that never had its turn.
fn no_turn(charges: &[Charge]) -> Refusal {
    let full = charges.iter().enumerate().find(|(_, charge)| charge.bucket.limit.is_slots());
    match full {
        Some((position, charge)) => Refusal::Exhausted(Box::new(Exhausted {
            charge: charge.clone(),
            retry_after_micros: None,
            position,
            standings: Vec::new(),
        })),
        None => Refusal::Store(LedgerError("there is nothing to wait for".to_owned())),
    }
}

/// Whose turn it was, and for which slots: those behind it are told when they are free again.
#[derive(Debug)]
pub(super) struct Turn {
    bucket: Arc<Bucket>,
    caller: String,
}

impl Turn {
    fn new(bucket: &Arc<Bucket>, caller: &Caller) -> Self {
        let name = caller.agent.as_ref().unwrap_or(&caller.subject);
        Self { bucket: Arc::clone(bucket), caller: format!("{} {name}", caller.issuer) }
    }

    pub(super) fn end(self, gateway: &Gateway) {
        gateway.queues.freed(self.bucket.key(), &self.caller);
    }
}

/// Marks the call as one that is charged, whatever becomes of it.
pub(super) async fn depart(open: &mut OpenCall) -> Result<(), Ending> {
    let Some(reservation) = &mut open.reservation else { return Ok(()) };
    reservation.depart().await.map_err(|error| {
        tracing::error!(%error, "a call was refused: it could not be marked as one that leaves");
        Ending::Denied(Refusal::from(error).to_denial())
    })
}

/// Tells whoever decides about budgets that one is spent, once in its window.
fn tell(gateway: &Gateway, open: &OpenCall, exhausted: &Exhausted) {
    let Exhausted { charge, .. } = exhausted;
    let bucket = &charge.bucket;
    if exhausted.kind() != Kind::BudgetExhausted {
        return;
    }
    let now = Timestamp::now();
    let micros = u64::try_from(now.as_microsecond()).unwrap_or(0);
    // An agent's tokens a minute have no window of their own: once an hour will do.
    let (period, end) = match bucket.limit {
        Limit::Window { period, .. } => (period, Window::at(period, micros).end_micros),
        Limit::Rate { .. } | Limit::Slots(_) => (Period::Hour, micros + wait(exhausted)),
    };
    let start = Window::at(period, micros).start_micros;
    if !gateway.busts.first(bucket.key(), timestamp(start)) {
        return;
    }
    tracing::warn!(budget = bucket.name(), owner = %bucket.scope, "a budget is spent");
    let standing = exhausted.standing();
    let caller = &open.context.caller;
    let notice = BudgetNotice {
        id: NoticeId::generate(),
        time: now,
        budget: bucket.name().to_owned(),
        owner: owner(&bucket.scope),
        subject: caller.subject.clone(),
        tier: caller.tier.clone(),
        model: open.model().unwrap_or_default().to_owned(),
        limit: standing.limit,
        used: standing.used.saturating_add(standing.reserved),
        unit: match bucket.limit.measure() {
            Some(Measure::MicroUsd) => NoticeUnit::MicroUsd,
            _ => NoticeUnit::Tokens,
        },
        window_start: timestamp(start),
        resets_at: timestamp(end),
        call_id: open.id,
        trace_id: format!("{:032x}", open.context.trace.trace_id),
    };
    let notice = notice.redacted(|text| gateway.redactor.changed(text, Depth::Formats));
    // Another gateway may have told of it: the store knows, and the call does not wait for it.
    let (budgets, notifier) = (gateway.budgets.clone(), Arc::clone(&gateway.notifier));
    let bucket = Arc::clone(bucket);
    gateway.calls.spawn(async move {
        if budgets.is_first_bust(&bucket, period).await {
            notifier.notify(notice);
        }
    });
}

fn wait(exhausted: &Exhausted) -> u64 {
    exhausted.retry_after_micros.unwrap_or(0)
}

fn timestamp(micros: u64) -> Timestamp {
    let micros = i64::try_from(micros).unwrap_or(i64::MAX);
    Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MAX)
}

fn owner(scope: &Scope) -> NoticeOwner {
    match scope {
        Scope::Agent { agent, .. } => NoticeOwner::Agent { agent: agent.clone() },
        Scope::Tier { tier } | Scope::TierModel { tier, .. } => {
            NoticeOwner::Tier { tier: tier.clone() }
        }
        // No budget is a model's; should one be, it is of every tier.
        Scope::Model { .. } => NoticeOwner::Tier { tier: "*".to_owned() },
        Scope::Claim { name, value } => {
            NoticeOwner::Claim { claim: name.clone(), value: value.clone() }
        }
    }
}
