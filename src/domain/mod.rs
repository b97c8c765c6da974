//! The words that every other module speaks. No input or output here.

mod call;
mod caller;
mod capability;
mod denial;
mod frame;
mod id;
mod member;
mod money;
mod part;
mod trace;
mod unescaped;
mod usage;

pub use call::{BodyError, ModelCall};
pub use caller::{Caller, TrustLevel};
pub use capability::{Capability, CapabilitySet, Vocabulary};
pub use denial::{Denial, Kind};
pub use frame::{CancelReason, Frame, FrameError};
pub use id::{CallId, InvalidRunId, NoticeId, RequestId, RunId, StreamId};
pub use money::{MicroUsd, Price};
pub use trace::{TraceContext, TraceState};
pub use unescaped::{
    Escapes, MAX_LAYERS, apart, search_layers, search_unescaped, trace_back, unescape,
};
pub use usage::{Usage, UsageSource};
