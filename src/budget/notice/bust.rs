//! Which busted budgets were told of.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use jiff::Timestamp;

/// Busts that are remembered: about 200 bytes each. With more budgets busted at once than this,
/// the oldest may be told of twice in its window.
const MAX_BUSTS: usize = 8_192;

/// Knows, in this process, which budgets were told of in which window. Bounded: the oldest are
/// forgotten first.
#[derive(Debug)]
pub struct Busts {
    known: Mutex<Known>,
    most: usize,
}

#[derive(Debug, Default)]
struct Known {
    newest: HashMap<Arc<str>, Timestamp>,
    /// In the order of arrival; an entry whose window `newest` has moved past is a leftover.
    order: VecDeque<(Arc<str>, Timestamp)>,
}

impl Default for Busts {
    fn default() -> Self {
        Self::bounded(MAX_BUSTS)
    }
}

impl Busts {
    /// One that remembers at most so many.
    #[must_use]
    pub fn bounded(most: usize) -> Self {
        Self { known: Mutex::default(), most }
    }

    /// Is this the first bust of the budget `key` in this window? True once, whoever asks; false
    /// for a window that is over too.
    pub fn first(&self, key: &str, window_start: Timestamp) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.newest.get(key).is_some_and(|newest| window_start <= *newest) {
            return false;
        }
        let key: Arc<str> = key.into();
        known.newest.insert(Arc::clone(&key), window_start);
        known.order.push_back((key, window_start));
        if known.order.len() > self.most {
            known.forget_oldest();
        }
        true
    }
}

impl Known {
    fn forget_oldest(&mut self) {
        if let Some((key, window_start)) = self.order.pop_front()
            && self.newest.get(&key) == Some(&window_start)
        {
            self.newest.remove(&key);
        }
    }
}
