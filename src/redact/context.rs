//! Tier 2: what is no known format, but is assigned to a name like `password`.
//!
//! It looks for `=` and `:`, which are rare, and then at what stands on both sides of them. Only
//! complete texts can be looked at so: what a value is may be known only after its end.

use std::ops::Range;

use super::{
    check, placeholder,
    rule::ContextRule,
    value::{Value, looks_secret},
};

/// Before an operator: more blanks and quotes are no assignment.
const MAX_GAP_BYTES: usize = 8;
/// The longest name that is looked at, with all that qualifies it.
const MAX_NAME_BYTES: usize = 64;
/// A shorter name must be a word of its own: `compass` is no `pass`.
const MIN_SUFFIX_BYTES: usize = 6;

/// The names of all context rules.
#[derive(Debug)]
pub(super) struct Contexts {
    rules: Vec<ContextRule>,
    /// Names without `_` and `-`, and their rules; the longest first.
    names: Vec<(Vec<u8>, usize)>,
    /// For each byte, whether a name has it last; and for each of those before it, a bit of
    /// [`bit`]. Both in both cases.
    endings: Box<[u32; 256]>,
}

impl Contexts {
    pub fn new(rules: &[ContextRule]) -> Self {
        let bare = |name: &String| -> Vec<u8> {
            name.bytes().filter(|byte| !is_joint(*byte)).map(|b| b.to_ascii_lowercase()).collect()
        };
        let mut names: Vec<_> = rules
            .iter()
            .enumerate()
            .flat_map(|(number, rule)| rule.names.iter().map(move |name| (bare(name), number)))
            .collect();
        names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        let mut endings = Box::new([0; 256]);
        for (name, _) in &names {
            let Some((last, rest)) = name.split_last() else { continue };
            // A joint may stand between them.
            let joints = bit(b'_') | bit(b'-');
            let before = rest.last().map_or(u32::MAX, |before| bit(*before) | joints);
            endings[usize::from(*last)] |= before;
            endings[usize::from(last.to_ascii_uppercase())] |= before;
        }
        Self { rules: rules.to_vec(), names, endings }
    }

    /// The length of the shortest text that has such a value in it.
    pub fn shortest(&self) -> usize {
        let value = self.rules.iter().map(|rule| rule.min).min();
        let name = self.names.iter().map(|(name, _)| name.len()).min();
        let of = |name: usize, value: usize| name.saturating_add(1).saturating_add(value);
        name.zip(value).map_or(usize::MAX, |(name, value)| of(name, value))
    }

    /// Values that look secret, and the number of the rule whose name they are assigned to.
    pub fn find<'a>(
        &'a self,
        text: &'a [u8],
        stop_words: &'a [String],
    ) -> impl Iterator<Item = (Range<usize>, usize)> + 'a {
        let (mut from, mut taken) = (0, 0);
        memchr::memchr2_iter(b'=', b':', text).filter_map(move |at| {
            if at < from {
                return None;
            }
            let number = self.name_before(text, at, taken)?;
            let value = Value::after(text, at)?;
            from = value.at.end;
            let rule = &self.rules[number];
            let bytes = &*placeholder::visible(&text[value.at.clone()]);
            let secret = (rule.min..=rule.max).contains(&bytes.len())
                && looks_secret(&value, bytes)
                && check::entropy(bytes) >= rule.entropy
                && !check::has_stop_word(bytes, stop_words)
                && !placeholder::occurs_in(bytes);
            if secret {
                taken = value.at.end;
            }
            secret.then_some((value.at, number))
        })
    }

    /// Is this the name of secrets?
    pub fn is_name(&self, name: &[u8]) -> bool {
        self.name_ending(name, name.len()).is_some()
    }

    /// The rule of the name that an operator at `at` assigns to. What is `taken` names nothing: its
    /// placeholder would not either.
    fn name_before(&self, text: &[u8], at: usize, taken: usize) -> Option<usize> {
        let end = skip_gap(text, at).filter(|end| *end > taken)?;
        if let Some(number) = self.name_ending(text, end) {
            return Some(number);
        }
        // `password: string = …`: a type may stand between.
        if text[at] != b'=' {
            return None;
        }
        let start = name_start(text, end);
        let colon = skip_gap(text, start)?.checked_sub(1).filter(|colon| text[*colon] == b':')?;
        self.name_ending(text, skip_gap(text, colon).filter(|end| *end > taken)?)
    }

    fn name_ending(&self, text: &[u8], end: usize) -> Option<usize> {
        let (last, before) = text.get(..end)?.split_last()?;
        let before = before.last().map_or(u32::MAX, |before| bit(*before));
        if self.endings[usize::from(*last)] & before == 0 {
            return None;
        }
        let start = name_start(text, end);
        if text[..start].ends_with(placeholder::OPENING) {
            return None;
        }
        let word = &text[start..end];
        self.names.iter().find(|(name, _)| ends_with(word, name)).map(|(_, number)| *number)
    }
}

/// One of 32 bits: the same for a letter in both cases.
const fn bit(byte: u8) -> u32 {
    1 << (byte % 32)
}

/// Between the words of a name.
const fn is_joint(byte: u8) -> bool {
    matches!(byte, b'_' | b'-')
}

/// Goes back over blanks, quotes and the like to where a name may end.
fn skip_gap(text: &[u8], at: usize) -> Option<usize> {
    let between = |byte: &u8| matches!(byte, b' ' | b'\t' | b'"' | b'\'' | b'`' | b'\\' | b']');
    let gap = text[..at].iter().rev().take(MAX_GAP_BYTES + 1).take_while(|byte| between(byte));
    let gap = gap.count();
    (gap <= MAX_GAP_BYTES).then_some(at - gap)
}

fn name_start(text: &[u8], end: usize) -> usize {
    let in_name = |byte: &u8| byte.is_ascii_alphanumeric() || is_joint(*byte);
    let name = text[..end].iter().rev().take(MAX_NAME_BYTES).take_while(|byte| in_name(byte));
    end - name.count()
}

/// Is `name`, which has no joints, what `word` ends with?
fn ends_with(word: &[u8], name: &[u8]) -> bool {
    let mut rest = word;
    for expected in name.iter().rev() {
        while let Some((last, before)) = rest.split_last()
            && is_joint(*last)
            && rest.len() < word.len()
        {
            rest = before;
        }
        match rest.split_last() {
            Some((last, before)) if last.to_ascii_lowercase() == *expected => rest = before,
            _ => return false,
        }
    }
    if name.len() >= MIN_SUFFIX_BYTES {
        return true;
    }
    let first = word.get(rest.len()).copied().unwrap_or_default();
    rest.last().is_none_or(|before| {
        !before.is_ascii_alphabetic() || before.is_ascii_lowercase() && first.is_ascii_uppercase()
    })
}
