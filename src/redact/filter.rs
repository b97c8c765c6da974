//! Skips what can begin no prefix, many times as fast as the automaton walks it.
//!
//! Prefixes are sorted into 64 buckets. A table says for each byte in which buckets a prefix may
//! have it first, second or third, or right before itself. Where no bucket agrees to all four bytes,
//! no prefix begins; and unlike the automaton's, these look-ups need not wait for one another.

/// How many bytes from where a prefix begins are looked at.
pub(super) const SPAN: usize = 3;

/// A word of bits: as many buckets.
const BUCKETS: usize = u64::BITS as usize;

/// What buckets a byte may have a role in.
#[derive(Debug, Clone, Copy, Default)]
struct Roles {
    before: u64,
    at: [u64; SPAN],
}

#[derive(Debug)]
pub(super) struct Filter(Box<[Roles; 256]>);

impl Filter {
    /// Each prefix, and whether it must begin at a boundary. `before` says whether a byte may stand
    /// before one that must; `hidden` whether it may be part of a character that is not seen.
    pub fn new<'a>(
        prefixes: impl Iterator<Item = (&'a [u8], bool)>,
        before: impl Fn(u8) -> bool,
        hidden: impl Fn(u8) -> bool,
    ) -> Self {
        let mut sorted: Vec<(&[u8], bool)> = prefixes.collect();
        // Those that begin alike share a bucket: it agrees to little else.
        sorted.sort_unstable();
        let mut roles = Box::new([Roles::default(); 256]);
        for (number, (prefix, boundary)) in sorted.iter().enumerate() {
            let bucket = 1 << (number * BUCKETS / sorted.len());
            for byte in 0..=u8::MAX {
                let roles = &mut roles[usize::from(byte)];
                if !boundary || before(byte) {
                    roles.before |= bucket;
                }
                for (place, role) in roles.at.iter_mut().enumerate() {
                    let expected = prefix.get(place).copied();
                    if expected.is_none_or(|expected| expected == byte) || place > 0 && hidden(byte)
                    {
                        *role |= bucket;
                    }
                }
            }
        }
        Self(roles)
    }

    /// The first place from `from` on, which is not 0, where a prefix may begin; at most where the
    /// text has fewer than [`SPAN`] bytes left.
    #[inline]
    pub fn next(&self, text: &[u8], from: usize) -> usize {
        let roles = |byte: u8| &self.0[usize::from(byte)];
        let agrees = |[before, first, second, third]: &[u8; SPAN + 1]| {
            let [at, next, last] = [roles(*first).at[0], roles(*second).at[1], roles(*third).at[2]];
            roles(*before).before & at & next & last != 0
        };
        let skipped = text[from - 1..].array_windows().position(agrees);
        skipped.map_or(text.len().saturating_sub(SPAN - 1).max(from), |skipped| from + skipped)
    }
}
