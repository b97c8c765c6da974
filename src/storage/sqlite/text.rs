//! Texts that are written again and again: a model's name, a caller's subject, a kind.

use std::sync::Arc;

use crate::audit::FIELDS;

/// A longer text is seldom the same as another one.
const MAX_BYTES: usize = 256;
/// So many texts are known of each column.
const WAYS: usize = 8;

/// The texts of last, by column. What is in it need not be copied to be bound: that is an allocation
/// here, which the connection's thread would free.
#[derive(Debug)]
pub(super) struct KnownTexts(Vec<[Option<Arc<str>>; WAYS]>);

impl Default for KnownTexts {
    fn default() -> Self {
        Self(vec![const { [const { None }; WAYS] }; FIELDS.len() + 1])
    }
}

impl KnownTexts {
    /// Of the next batch none is known: as long as the connection's thread lets go of the last one's,
    /// both would write to the same counts.
    pub fn forget(&mut self) {
        self.0.fill(const { [const { None }; WAYS] });
    }

    /// `text`, which stands in this column.
    pub fn get(&mut self, column: usize, text: &str) -> Arc<str> {
        let known = self.0.get_mut(column).filter(|_| text.len() <= MAX_BYTES);
        let Some(known) = known else { return Arc::from(text) };
        let known = &mut known[way(text)];
        if let Some(known) = known
            && **known == *text
        {
            return Arc::clone(known);
        }
        let text = Arc::from(text);
        *known = Some(Arc::clone(&text));
        text
    }
}

/// Where a text is looked for. Names that differ mostly do so in their last byte or their length.
fn way(text: &str) -> usize {
    let last = text.as_bytes().last().copied().unwrap_or_default();
    (usize::from(last) + text.len()) % WAYS
}
