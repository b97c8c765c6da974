//! Skips what can begin no prefix, many times as fast as the automaton walks it.
//!
//! Prefixes are sorted into 64 buckets. A table says for each byte in which buckets a prefix may
//! have it first, second or third, or right before itself. Where no bucket agrees to all four bytes,
//! no prefix begins; and unlike the automaton's, these look-ups need not wait for one another.
//!
//! Of a longer text only the places are looked up where a word begins, or what needs no boundary. Those
//! are found for a block of bytes at once, in steps that compilers turn into vector instructions.

use std::collections::BTreeSet;

/// How many bytes from where a prefix begins are looked at.
pub(super) const SPAN: usize = 3;

/// A word of bits: as many buckets.
const BUCKETS: usize = u64::BITS as usize;

/// The places that are sorted out at once: a bit of a word for each.
const BLOCK: usize = u64::BITS as usize;

/// What buckets a byte may have a role in.
#[derive(Debug, Clone, Copy, Default)]
struct Roles {
    before: u64,
    at: [u64; SPAN],
}

#[derive(Debug)]
pub(super) struct Filter {
    roles: Box<[Roles; 256]>,
    /// What those prefixes begin with that need no boundary. `None`: with too many bytes to look for.
    free: Option<[u8; 2]>,
}

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
        let free: BTreeSet<u8> = sorted.iter().filter(|it| !it.1).map(|(it, _)| it[0]).collect();
        let free = match *free.into_iter().collect::<Vec<_>>() {
            // No prefix begins with a byte that is no ASCII.
            [] => Some([u8::MAX; 2]),
            [first] => Some([first; 2]),
            [first, second] => Some([first, second]),
            _ => None,
        };
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
        Self { roles, free }
    }

    /// The first place from `from` on, which is not 0, where a prefix may begin; at most where the
    /// text has fewer than [`SPAN`] bytes left.
    #[inline]
    pub fn next(&self, text: &[u8], from: usize) -> usize {
        let mut from = from;
        if let Some(free) = self.free {
            // What is two bytes before the first place may not be shown any more.
            if from == 1 && text.len() > BLOCK {
                if text.first_chunk().is_some_and(|bytes| self.agrees(*bytes)) {
                    return from;
                }
                from = 2;
            }
            while let Some(block) = text.get(from.wrapping_sub(2)..from + BLOCK + SPAN - 1) {
                if let Some(place) = self.next_in(block, free) {
                    return from + place;
                }
                from += BLOCK;
            }
        }
        let skipped = text[from - 1..].array_windows().position(|bytes| self.agrees(*bytes));
        skipped.map_or(text.len().saturating_sub(SPAN - 1).max(from), |skipped| from + skipped)
    }

    /// May a prefix begin after the first of these bytes?
    #[inline]
    fn agrees(&self, [before, first, second, third]: [u8; SPAN + 1]) -> bool {
        let roles = |byte: u8| &self.roles[usize::from(byte)];
        let [at, next, last] = [roles(first).at[0], roles(second).at[1], roles(third).at[2]];
        roles(before).before & at & next & last != 0
    }

    /// The first such place of a block, which begins at the third byte.
    #[inline]
    fn next_in(&self, block: &[u8], free: [u8; 2]) -> Option<usize> {
        let mut places = places(block, free);
        while places != 0 {
            let place = places.trailing_zeros() as usize;
            if self.agrees(*block[place + 1..].first_chunk()?) {
                return Some(place);
            }
            places &= places - 1;
        }
        None
    }
}

/// A bit for each place of a block that is at a boundary, or has a byte that needs none. In `\nkey` the
/// `n` may belong to an escape.
#[expect(clippy::needless_bitwise_bool, reason = "a branch would keep it from becoming vectors")]
#[inline]
fn places(block: &[u8], free: [u8; 2]) -> u64 {
    let mut flags = [0; BLOCK];
    let bytes = block.iter().zip(&block[1..]).zip(&block[2..]);
    for (flag, ((escape, before), byte)) in flags.iter_mut().zip(bytes) {
        let is_letter = (before | 0x20).wrapping_sub(b'a') < 26;
        let is_word = is_letter | (before.wrapping_sub(b'0') < 10) | (*before == b'_');
        let is_free = (*byte == free[0]) | (*byte == free[1]);
        *flag = u8::from(!is_word | is_free | (*escape == b'\\'));
    }
    let (eights, _) = flags.as_chunks();
    eights.iter().rev().fold(0, |places, flags| places << 8 | gathered(*flags))
}

/// The lowest bits of eight bytes side by side.
#[inline]
const fn gathered(flags: [u8; 8]) -> u64 {
    u64::from_le_bytes(flags).wrapping_mul(0x0102_0408_1020_4080) >> 56
}
