//! Which values a set may hold, in a few bits for each.

/// Bits that are set for each value. Of a filter that is half full one look-up in 256 finds what is not
/// there; of one as they are written, one in some 2,000.
const HASHES: u32 = 8;
/// Room for as many values as a block has rows, at 16 bits each.
const WORDS: usize = 1_024;
/// The least that is kept of it.
const LEAST_WORDS: usize = 1;

/// A Bloom filter that is folded to the size that its values need.
#[derive(Debug, Clone)]
pub(super) struct Bloom {
    words: Box<[u64; WORDS]>,
    /// What was added last: values often come again and again.
    last: Option<u64>,
}

impl Default for Bloom {
    fn default() -> Self {
        Self { words: Box::new([0; WORDS]), last: None }
    }
}

impl Bloom {
    pub(super) fn add(&mut self, value: &str) {
        let hash = hash(value);
        if self.last.replace(hash) == Some(hash) {
            return;
        }
        for bit in bits(hash) {
            self.words[bit / 64 % WORDS] |= 1 << (bit % 64);
        }
    }

    pub(super) fn clear(&mut self) {
        if self.last.take().is_some() {
            self.words.fill(0);
        }
    }

    /// As it is stored, which [`may_hold`] reads; `None` if it holds nothing.
    pub(super) fn fold(&self) -> Option<Vec<u8>> {
        self.last?;
        let mut words = self.words.to_vec();
        while words.len() > LEAST_WORDS {
            // The places are taken modulo the size, so both halves can lie on each other.
            let (low, high) = words.split_at(words.len() / 2);
            let half: Vec<u64> = low.iter().zip(high).map(|(low, high)| low | high).collect();
            let set: u32 = half.iter().map(|word| word.count_ones()).sum();
            // Half full is as full as it may be.
            if set as usize > half.len() * 32 {
                break;
            }
            words = half;
        }
        Some(words.iter().flat_map(|word| word.to_le_bytes()).collect())
    }
}

/// Was this value perhaps added to the filter? Of what is no filter it is not known.
pub(super) fn may_hold(filter: &[u8], value: &str) -> bool {
    let size = filter.len() * 8;
    if !size.is_power_of_two() {
        return true;
    }
    bits(hash(value)).all(|bit| {
        let bit = bit % size;
        filter.get(bit / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
    })
}

/// The places of a value, before they are taken modulo the size.
#[expect(clippy::cast_possible_truncation, reason = "each half is taken by itself")]
fn bits(hash: u64) -> impl Iterator<Item = usize> {
    let (first, step) = (hash as u32, (hash >> 32) as u32 | 1);
    (0..HASHES).map(move |at| first.wrapping_add(at.wrapping_mul(step)) as usize)
}

/// Part of what is stored, so it never changes: a crate's may with its version. Who makes two values
/// collide on purpose has a block read in vain.
#[expect(clippy::cast_possible_truncation, reason = "each half is taken by itself")]
fn hash(value: &str) -> u64 {
    const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |word: u64| {
        let product = u128::from(word) * u128::from(SEED);
        (product as u64) ^ (product >> 64) as u64
    };
    let (words, rest) = value.as_bytes().as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let hash = words.iter().fold(value.len() as u64 ^ SEED, |hash, word| {
        mix(hash ^ u64::from_le_bytes(*word)).wrapping_add(SEED)
    });
    mix(mix(hash ^ u64::from_le_bytes(last)) ^ SEED)
}
