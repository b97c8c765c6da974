//! What was looked through for secrets already: callers, and names that come again and again.

use std::{borrow::Cow, sync::Arc};

use crate::{
    domain::Caller,
    redact::{Depth, Redactor},
};

/// So many callers are remembered, and so many names.
const CALLERS: usize = 256;
const NAMES: usize = 64;
/// A longer name is seldom the same as another one.
const MAX_NAME_BYTES: usize = 64;
/// Bytes that no two callers share, as they are larger.
const GRAIN: usize = 64;

/// What holds no secret, as the rules of now see it.
///
/// Callers are told apart by where they are: as long as one is remembered, no other can be there.
#[derive(Debug, Default)]
pub(super) struct Clean {
    redactor: Option<Arc<Redactor>>,
    callers: Vec<Option<Arc<Caller>>>,
    names: Vec<Option<(Depth, Box<str>)>>,
}

impl Clean {
    /// To be called before anything is asked: other rules see other secrets.
    pub fn renew(&mut self, redactor: &Arc<Redactor>) {
        if self.redactor.as_ref().is_some_and(|known| Arc::ptr_eq(known, redactor)) {
            return;
        }
        let (callers, names) = (vec![None; CALLERS], vec![None; NAMES]);
        *self = Self { redactor: Some(Arc::clone(redactor)), callers, names };
    }

    pub fn knows(&self, caller: &Arc<Caller>) -> bool {
        let known = self.callers.get(place_of(caller));
        matches!(known, Some(Some(known)) if Arc::ptr_eq(known, caller))
    }

    pub fn remember(&mut self, caller: &Arc<Caller>) {
        if let Some(known) = self.callers.get_mut(place_of(caller)) {
            *known = Some(Arc::clone(caller));
        }
    }

    /// Takes the secrets out of a name, unless it is known to have none.
    pub fn redact_name(&mut self, name: &mut String, depth: Depth, redactor: &Redactor) {
        let last = name.bytes().last().map_or(0, usize::from);
        let known = self.names.get_mut((name.len() + last) % NAMES);
        let known = known.filter(|_| name.len() <= MAX_NAME_BYTES);
        if matches!(&known, Some(Some((at, known))) if *at == depth && **known == **name) {
            return;
        }
        match redactor.redact_all(name, depth) {
            Cow::Owned(redacted) => *name = redacted,
            Cow::Borrowed(_) => {
                if let Some(known) = known {
                    *known = Some((depth, name.as_str().into()));
                }
            }
        }
    }
}

fn place_of(caller: &Arc<Caller>) -> usize {
    Arc::as_ptr(caller) as usize / GRAIN % CALLERS
}
