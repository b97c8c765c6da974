//! A value for each choice of an answer.

/// In the order of the choices' numbers. Nearly every answer has one choice, and its stream is open
/// for long: there is room for no more of them than there are.
#[derive(Debug)]
pub struct ByChoice<T>(Vec<(u64, T)>);

impl<T> Default for ByChoice<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Default> ByChoice<T> {
    /// The value of the choice `index`, which is a default one if there is none and there are fewer
    /// than `most`.
    pub fn get_or_default(&mut self, index: u64, most: usize) -> Option<&mut T> {
        let at = match self.0.binary_search_by_key(&index, |(index, _)| *index) {
            Ok(at) => at,
            Err(_) if self.0.len() >= most => return None,
            Err(at) => {
                self.0.reserve_exact(1);
                self.0.insert(at, (index, T::default()));
                at
            }
        };
        self.0.get_mut(at).map(|(_, value)| value)
    }
}

impl<T> ByChoice<T> {
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.0.iter().map(|(index, value)| (*index, value))
    }

    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, value)| value)
    }
}
