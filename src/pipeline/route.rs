//! Which provider answers: the model's routes in order, until one does.

use super::{OpenCall, Redacted};
use crate::{
    domain::{Kind, ModelCall},
    fail_point::FailPoint,
    provider::{ProviderError, ProviderRequest, Reply, Route},
    telemetry::{ModelEnd, ModelStart, model_span},
};

/// Sends the call on. Nothing has gone to the client yet, so another route may be tried where one
/// fails; the last one's answer is the answer.
pub(super) async fn send(
    call: &Redacted<ModelCall>,
    open: &mut OpenCall,
    stream: bool,
) -> Result<Reply, ProviderError> {
    let mut routes = call.model().routes.iter().peekable();
    loop {
        let Some(route) = routes.next() else {
            // Validation refuses a model without routes.
            let (provider, cause) = (call.model().name.clone(), "it has no routes".to_owned());
            return Err(ProviderError::Connect { provider, cause });
        };
        let reply = attempt(call, open, route, stream).await;
        if routes.peek().is_none() || !is_worth_another(&reply) {
            return reply;
        }
        let (status, error) = match &reply {
            Ok(Reply::Complete(complete)) => (complete.status, Kind::UpstreamError.code()),
            Ok(Reply::Stream(_)) => return reply,
            Err(error) => (error.kind().status(), error.kind().code()),
        };
        tracing::warn!(provider = route.provider.name(), status, error, "trying the next route");
        open.end_attempt(&ModelEnd { error_type: Some(error), ..ModelEnd::default() });
    }
}

async fn attempt(
    call: &Redacted<ModelCall>,
    open: &mut OpenCall,
    route: &Route,
    stream: bool,
) -> Result<Reply, ProviderError> {
    let span = model_span(&ModelStart {
        model: &route.model,
        provider: route.provider.name(),
        stream,
        max_tokens: call.call().max_tokens,
        server: None,
        request_id: &open.context.request_id,
        parent: open.context.trace,
    });
    let body = call.call().to_upstream(&route.model, stream);
    let sent_before = open.progress.sent_bytes;
    open.progress.sent_bytes += body.len();
    open.progress.request_bytes = body.len();
    let request = ProviderRequest {
        body,
        stream,
        trace: span.trace(),
        trace_state: open.context.trace_state.clone(),
        request_id: open.context.request_id.clone(),
    };
    open.begin_attempt(route, span);
    let reply = route.provider.send(request).await;
    FailPoint::AfterEgress.hit();
    match &reply {
        Err(error) => {
            tracing::warn!(provider = route.provider.name(), %error, "no answer");
            if matches!(error, ProviderError::Connect { .. }) {
                // It never left.
                open.progress.sent_bytes = sent_before;
            }
        }
        Ok(answer) => {
            if matches!(answer, Reply::Complete(complete) if complete.status >= 400) {
                // Refused: nothing was spent that anybody told us of.
                open.progress.sent_bytes = sent_before;
            }
            open.progress.time_to_first = Some(open.context.arrived.elapsed());
        }
    }
    reply
}

/// Could another provider do better? Not where the fault is the request's.
fn is_worth_another(reply: &Result<Reply, ProviderError>) -> bool {
    match reply {
        Ok(Reply::Complete(complete)) => {
            matches!(complete.status, 401..=404 | 408 | 429 | 500..)
        }
        Ok(Reply::Stream(_)) => false,
        Err(_) => true,
    }
}
