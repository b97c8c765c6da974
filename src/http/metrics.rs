//! GET /metrics, on the admin port alone: how budgets are doing, and what redaction finds.

use axum::extract::State;
use http::header::CONTENT_TYPE;

use super::AppState;
use crate::{
    budget::{Failure, LedgerHealth},
    redact::Tally,
    telemetry::{
        Exposition,
        MetricKind::{Counter, Gauge},
    },
};

type Answer = ([(http::HeaderName, &'static str); 1], String);

pub(super) async fn metrics(State(state): State<AppState>) -> Answer {
    let gateway = state.gateway();
    let mut out = Exposition::default();
    budgets(&state, &mut out);
    redactions(&gateway.redactions, &mut out);
    if let Some(health) = gateway.budgets.health() {
        store(health, &mut out);
    }
    ([(CONTENT_TYPE, Exposition::CONTENT_TYPE)], out.into_text())
}

fn budgets(state: &AppState, out: &mut Exposition) {
    let gateway = state.gateway();
    let wide = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    let refused = gateway.budgets.refused();
    out.family(
        Counter,
        "tollgate_budget_refusals_total",
        "Calls that a limit, a budget or its store refused.",
        "code",
        refused.iter().map(|(kind, count)| (kind.code(), *count)),
    );
    out.metric(
        Gauge,
        "tollgate_budget_reservations",
        "Reservations of calls that run.",
        wide(gateway.budgets.open()),
    );
    out.metric(
        Counter,
        "tollgate_budget_reservations_leaked_total",
        "Reservations that were dropped unsettled: a bug where it is not 0.",
        gateway.budgets.leaked(),
    );
    out.metric(
        Gauge,
        "tollgate_budget_waiting",
        "Calls that wait for a model's slot.",
        wide(gateway.queues.waiting()),
    );
    let told = gateway.notifier.told();
    out.family(
        Counter,
        "tollgate_budget_notices_total",
        "Notices of spent budgets, by what became of them.",
        "outcome",
        [("sent", told.sent), ("lost", told.lost)],
    );
    out.metric(
        Counter,
        "tollgate_token_counts_refused_total",
        "Answers whose tokens were estimated, as too many waited to be counted.",
        gateway.meter.counter.refused(),
    );
}

fn redactions(tally: &Tally, out: &mut Exposition) {
    let counts = tally.counts();
    out.labelled(
        Counter,
        "tollgate_redactions_total",
        "Secrets taken out, or refused, by the rule that knows them and the way they were on.",
        ["rule", "direction"],
        counts.iter().map(|(rule, direction, count)| ([&**rule, direction.as_str()], *count)),
    );
}

fn store(health: &LedgerHealth, out: &mut Exposition) {
    out.metric(
        Gauge,
        "tollgate_budget_store_up",
        "Did the budget store answer when it was last asked?",
        u64::from(health.is_up()),
    );
    out.metric(
        Counter,
        "tollgate_budget_store_answers_total",
        "Commands that the budget store answered.",
        health.answered(),
    );
    out.family(
        Counter,
        "tollgate_budget_store_failures_total",
        "Commands that brought nothing, by why.",
        "failure",
        Failure::ALL.map(|failure| (failure.as_str(), health.failed(failure))),
    );
    out.metric(
        Counter,
        "tollgate_budget_store_scripts_loaded_total",
        "Scripts that had to be loaded: after a start, a restart, a failover.",
        health.reloaded(),
    );
    let outcomes =
        [("lost", health.lost()), ("unsettled", health.unsettled()), ("shared", health.shared())];
    out.family(
        Counter,
        "tollgate_budget_store_reservations_total",
        "Reservations that were gone when settled, that expired unsettled, or that were let in on \
         this gateway's own share.",
        "outcome",
        outcomes,
    );
}
