//! Callers that were looked through for secrets already: each calls again and again.

use std::sync::Arc;

use crate::{domain::Caller, redact::Redactor};

/// So many are remembered.
const PLACES: usize = 256;
/// Bytes that no two callers share, as they are larger.
const GRAIN: usize = 64;

/// Callers whose names hold no secret, as the rules of now see it. Told apart by where they are: as
/// long as one is remembered, no other can be there.
#[derive(Debug, Default)]
pub(super) struct CleanCallers {
    redactor: Option<Arc<Redactor>>,
    places: Vec<Option<Arc<Caller>>>,
}

impl CleanCallers {
    pub fn knows(&self, caller: &Arc<Caller>, redactor: &Arc<Redactor>) -> bool {
        self.redactor.as_ref().is_some_and(|known| Arc::ptr_eq(known, redactor))
            && matches!(self.places.get(place(caller)), Some(Some(known)) if Arc::ptr_eq(known, caller))
    }

    pub fn remember(&mut self, caller: &Arc<Caller>, redactor: &Arc<Redactor>) {
        if self.redactor.as_ref().is_none_or(|known| !Arc::ptr_eq(known, redactor)) {
            self.redactor = Some(Arc::clone(redactor));
            self.places.clear();
            self.places.resize(PLACES, None);
        }
        if let Some(known) = self.places.get_mut(place(caller)) {
            *known = Some(Arc::clone(caller));
        }
    }
}

fn place(caller: &Arc<Caller>) -> usize {
    Arc::as_ptr(caller) as usize / GRAIN % PLACES
}
