//! Streams on their way to a client: what is written, where it is kept, how it is cut.
//!
//! The task that owns the upstream writes into an [`Outlet`]. Clients only read from it, so one
//! that hangs up takes nothing with it: a [`Lifeline`] tells the task that it did.

mod by_choice;
mod channel;
mod hub;
mod log;
mod native;
mod outlet;
mod passthrough;
mod seldom;

pub use by_choice::ByChoice;
pub use channel::{Receiver, Sender, Watch, channel};
pub use hub::{Hub, HubFull, NativeStream, Owner, Reader, ResumeError};
pub use log::{Log, LogLimits};
pub use native::{NativeWriter, ToolCallOverflow};
pub use outlet::{Conclusion, Gone, Lifeline, Outlet};
pub use passthrough::PassthroughWriter;
pub use seldom::Seldom;
