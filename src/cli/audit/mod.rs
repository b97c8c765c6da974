//! `tollgate audit`: looking at the audit trail, with the filters of the API.

mod export;
mod filter;
mod tail;

use std::io;

pub use export::{Export, Format, export};
pub use filter::FilterOptions;
pub(super) use tail::printable;
pub use tail::{Tail, tail};

use crate::audit::query::QueryError;

/// Why the entries can't be shown.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    #[error(transparent)]
    Query(#[from] QueryError),
    #[error("can't write the output: {0}")]
    Output(#[source] io::Error),
}

/// Somebody who reads no more, as `head` does, is no error.
fn unless_gone(printed: Result<(), AuditError>) -> Result<(), AuditError> {
    match printed {
        Err(AuditError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}
