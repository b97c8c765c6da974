//! Characters that nobody sees: a secret is one with them in it, too.

/// The length of the character at `at` if it has no width: a soft hyphen, zero-width space,
/// joiner or non-joiner, word joiner, or byte order mark. Nobody sees them in a secret.
pub(super) fn transparent(text: &[u8], at: usize) -> Option<usize> {
    match text.get(at..)? {
        [0xC2, 0xAD, ..] => Some(2),
        [0xE2, 0x80, 0x8B..=0x8D, ..] | [0xE2, 0x81, 0xA0, ..] | [0xEF, 0xBB, 0xBF, ..] => Some(3),
        _ => None,
    }
}

/// Can a [`transparent`] character begin so?
pub(super) const fn is_lead(byte: u8) -> bool {
    matches!(byte, 0xC2 | 0xE2 | 0xEF)
}

/// The length of the transparent character before `at`.
pub(super) fn transparent_before(text: &[u8], at: usize) -> Option<usize> {
    [2, 3].into_iter().find(|length| {
        at.checked_sub(*length).and_then(|start| transparent(text, start)) == Some(*length)
    })
}

/// Goes back over `count` bytes that are seen.
pub(super) fn go_back(text: &[u8], mut at: usize, mut count: usize) -> usize {
    while count > 0 {
        while let Some(length) = transparent_before(text, at) {
            at -= length;
        }
        at = at.saturating_sub(1);
        count -= 1;
    }
    at
}

/// Where in `text` the byte number `count` of those that are seen is.
pub(super) fn go_on(text: &[u8], mut count: usize) -> usize {
    let mut at = 0;
    while count > 0 {
        if let Some(length) = transparent(text, at) {
            at += length;
        } else {
            (at, count) = (at + 1, count - 1);
        }
    }
    at
}
