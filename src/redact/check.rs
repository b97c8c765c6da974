//! What a secret must have beside its shape, so that made-up ones pass.

use super::rule::{Need, Rule};

/// Is this a secret, as far as `rule` tells? `secret` has the shape.
pub(super) fn passes(
    rule: &Rule,
    secret: &[u8],
    (stop_words, samples): (&[String], &[String]),
) -> bool {
    let meets = |need: &Need| match need {
        Need::Digit => secret.iter().any(u8::is_ascii_digit),
        Need::Letter => secret.iter().any(u8::is_ascii_alphabetic),
        Need::Mixed => kinds(secret) >= 2,
        Need::NoStopWord => !has_stop_word(secret, stop_words),
        Need::NoSample => {
            !samples.iter().any(|sample| secret.eq_ignore_ascii_case(sample.as_bytes()))
        }
    };
    rule.max.is_none_or(|max| secret.len() <= max)
        && rule.needs.iter().all(meets)
        && rule.entropy.is_none_or(|least| entropy(secret) >= least)
        && !rule.allow.iter().any(|allowed| allowed.as_bytes() == secret)
}

/// Of how many kinds its characters are: capitals, small letters, digits.
pub(super) fn kinds(secret: &[u8]) -> usize {
    [u8::is_ascii_uppercase, u8::is_ascii_lowercase, u8::is_ascii_digit]
        .iter()
        .filter(|kind| secret.iter().any(kind))
        .count()
}

pub(super) fn has_stop_word(secret: &[u8], stop_words: &[String]) -> bool {
    let has = |word: &String| {
        secret.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word.as_bytes()))
    };
    stop_words.iter().any(has)
}

/// Shannon's, of the bytes: 0 for one byte over and over, about 4 for random hexadecimal digits.
pub(super) fn entropy(secret: &[u8]) -> f64 {
    let mut counts = [0_u32; 256];
    for byte in secret {
        counts[usize::from(*byte)] += 1;
    }
    let length = f64::from(u32::try_from(secret.len()).unwrap_or(u32::MAX));
    let part = |count: u32| {
        let share = f64::from(count) / length;
        -share * share.log2()
    };
    counts.into_iter().filter(|count| *count > 0).map(part).sum()
}
