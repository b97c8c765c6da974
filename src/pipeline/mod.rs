//! The story of a call, and the stages it is told in.
//!
//! `model_call` tells it; `stage` proves that each stage was passed; `route` finds a provider
//! that answers; `finish` sees to it that every call that was begun ends just once, whatever
//! happens: settle the budget, write the terminal audit row, end the span.

mod answer;
mod content;
mod fault;
mod finish;
mod model_call;
mod progress;
mod route;
mod spend;
mod stage;

use std::{
    net::IpAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use arc_swap::ArcSwap;
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use answer::{AnswerError, AnswerStream, Taken};
pub use finish::{Ending, OpenCall};
pub use model_call::{Head, Started, start_chat, start_native};
pub use progress::Progress;
pub use stage::{Authorized, Redacted, authorize};

use crate::{
    audit::Audit,
    budget::{Budgets, Busts, FairQueues, LimitTable, Notifier, Report, TokenMeter},
    config::{Config, ResponseRedaction},
    domain::{
        Caller, CapabilitySet, Denial, RequestId, RunId, TraceContext, TraceState, Vocabulary,
    },
    offload::Offload,
    provider::{Registry, RegistryError},
    redact::{KeptKey, KeySourceError, LiveRedactor, Redactor, RedactorError, Tally},
    stream::Hub,
};

/// What calls are measured against. One is built from a whole configuration and swapped in whole;
/// each call keeps the one that it began with.
#[derive(Debug)]
pub struct Snapshot {
    pub registry: Registry,
    pub limits: LimitTable,
    pub tools: ToolTable,
    pub redactor: Arc<Redactor>,
    /// What the redactor's placeholders are made with.
    pub key: KeptKey,
    /// Are the secrets taken out of answers too?
    pub redacts_answers: bool,
    /// Where large bodies and answers are read and redacted.
    pub offload: Offload,
}

/// A snapshot could not be built from a configuration.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Redactor(#[from] RedactorError),
    #[error(transparent)]
    Key(#[from] KeySourceError),
    #[error("tools.{tool}.requires: `{capability}` is not in capabilities.vocabulary")]
    UnknownCapability { tool: String, capability: String },
}

impl Snapshot {
    /// # Errors
    /// [`SnapshotError`] names the key at fault.
    pub fn new(
        config: &Config,
        vocabulary: &Vocabulary,
        key: KeptKey,
        offload: &Offload,
    ) -> Result<Self, SnapshotError> {
        Ok(Self {
            registry: Registry::new(config, vocabulary, offload)?,
            limits: LimitTable::new(config),
            tools: ToolTable::new(config, vocabulary)?,
            redactor: Arc::new(Redactor::with_key(&config.redaction, key.key().clone())?),
            key,
            redacts_answers: config.redaction.responses == ResponseRedaction::Redact,
            offload: offload.clone(),
        })
    }
}

/// What it takes to pass a tool in a request, by the tool's name. Others are the caller's own.
#[derive(Debug, Default)]
pub struct ToolTable(std::collections::HashMap<String, CapabilitySet>);

impl ToolTable {
    fn new(config: &Config, vocabulary: &Vocabulary) -> Result<Self, SnapshotError> {
        let tool = |tool: &crate::config::ToolConfig| {
            let requires = tool.requires.iter().map(|name| {
                vocabulary.get(name).ok_or_else(|| SnapshotError::UnknownCapability {
                    tool: tool.name.clone(),
                    capability: name.clone(),
                })
            });
            Ok((tool.name.clone(), requires.collect::<Result<CapabilitySet, _>>()?))
        };
        config.tools.iter().map(tool).collect::<Result<_, _>>().map(Self)
    }

    /// The capabilities any one of which admits to the tool; `None` if it is not a registered one.
    #[must_use]
    pub fn requires(&self, name: &str) -> Option<&CapabilitySet> {
        self.0.get(name)
    }
}

/// Everything that calls are made with.
#[derive(Debug)]
pub struct Gateway {
    pub snapshot: ArcSwap<Snapshot>,
    pub audit: Audit,
    /// Is the beginning of what is asked and answered kept with the trail?
    pub keeps_content: bool,
    /// The running configuration's redactor, for what is told or written outside of a call.
    pub redactor: LiveRedactor,
    /// What redaction has found so far. Whoever redacts a call adds to it.
    pub redactions: Tally,
    pub budgets: Budgets,
    /// Calls that wait for a slot.
    pub queues: FairQueues,
    pub meter: TokenMeter,
    /// Tells of a busted budget. Ask `busts` first: once a window is enough.
    pub notifier: Arc<dyn Notifier>,
    pub busts: Busts,
    pub hub: Arc<Hub>,
    /// That of all snapshots.
    pub offload: Offload,
    /// The tasks that own upstreams. Drained at the end.
    pub calls: TaskTracker,
    /// Ends every call at once: the drain is over.
    pub abort: CancellationToken,
    pub request_timeout: Duration,
    pub orphan_timeout: Duration,
}

/// What made a call fail, for whoever watches its answer: the head may be out by then.
#[derive(Debug, Clone, Default)]
pub struct Failure(Arc<OnceLock<&'static str>>);

impl Failure {
    fn note(&self, ending: &Ending) {
        if let Some(code) = ending.failure() {
            // A call ends once.
            let _ = self.0.set(code);
        }
    }

    /// The stable code, if the call has failed by now.
    #[must_use]
    pub fn code(&self) -> Option<&'static str> {
        self.0.get().copied()
    }
}

/// Who calls, and how the call came.
#[derive(Debug, Clone)]
pub struct CallContext {
    pub request_id: RequestId,
    pub run_id: Option<RunId>,
    /// The operation's id in the `OpenAPI` document.
    pub operation: &'static str,
    pub caller: Arc<Caller>,
    pub address: Option<IpAddr>,
    /// The server span's place in the caller's trace.
    pub trace: TraceContext,
    /// What else the caller's trace says, for the provider.
    pub trace_state: Option<TraceState>,
    pub arrived: Instant,
    pub failure: Failure,
}

/// A call that was refused before or after it was begun.
#[derive(Debug, Clone)]
pub struct Refused {
    pub denial: Denial,
    /// The capabilities any one of which was required, for a 403's audit row.
    pub required: Option<String>,
    pub model: Option<String>,
    /// Is it in the audit trail already, as the end of a call that was begun?
    pub recorded: bool,
    /// How the call's buckets stand.
    pub limits: Option<Box<Report>>,
}

impl From<Denial> for Refused {
    fn from(denial: Denial) -> Self {
        Self { denial, required: None, model: None, recorded: false, limits: None }
    }
}
