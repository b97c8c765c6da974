//! GET /metrics, on the admin port alone: how budgets are doing, and what redaction finds.

use axum::extract::State;
use http::header::CONTENT_TYPE;

use super::AppState;
use crate::{
    audit::AuditStatus,
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
    audit(&gateway.audit.status(), &mut out);
    redactions(&gateway.redactions, &mut out);
    if let Some(health) = gateway.budgets.health() {
        store(health, &mut out);
    }
    ([(CONTENT_TYPE, Exposition::CONTENT_TYPE)], out.into_text())
}

fn budgets(state: &AppState, out: &mut Exposition) {
    let gateway = state.gateway();
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

fn audit(status: &AuditStatus, out: &mut Exposition) {
    let gauges = [
        (
            "tollgate_audit_spool_up",
            "Can the audit spool be written and synced?",
            u64::from(status.is_spool_up),
        ),
        (
            "tollgate_audit_store_up",
            "Did the audit store take what it was last sent?",
            u64::from(status.is_store_up),
        ),
        (
            "tollgate_audit_spool_bytes",
            "What waits in the audit spool, in whole segments.",
            status.spool_bytes,
        ),
        (
            "tollgate_audit_spool_limit_bytes",
            "With this much in the audit spool calls are refused.",
            status.spool_limit_bytes,
        ),
        (
            "tollgate_audit_spool_full",
            "Is there as much in the audit spool as may be? Calls are refused then.",
            u64::from(status.is_spool_full),
        ),
        (
            "tollgate_audit_unshipped_entries",
            "Entries in the audit spool that the store does not have.",
            status.unshipped,
        ),
        (
            "tollgate_audit_unwritten_entries",
            "Entries taken and not yet in the audit spool.",
            wide(status.unwritten),
        ),
        (
            "tollgate_audit_checkpoint_up",
            "Was the last checkpoint of the audit trail written?",
            u64::from(status.checkpoints.is_up),
        ),
        (
            "tollgate_audit_unsealed_entries",
            "Entries on the disk that no checkpoint speaks of.",
            status.checkpoints.unsealed,
        ),
    ];
    for (name, help, value) in gauges {
        out.metric(Gauge, name, help, value);
    }
    audit_counts(status, out);
}

fn audit_counts(status: &AuditStatus, out: &mut Exposition) {
    let help = "Checkpoints of the audit trail that were signed and written.";
    out.metric(Counter, "tollgate_audit_checkpoints_total", help, status.checkpoints.written);
    out.metric(
        Counter,
        "tollgate_audit_dead_letters_total",
        "Entries that the audit store refused and that were kept apart.",
        status.dead_letters,
    );
    out.metric(
        Counter,
        "tollgate_audit_closed_unknown_total",
        "Calls of lost gateways that this one closed, as nobody knows how they ended.",
        status.closed_unknown,
    );
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
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
