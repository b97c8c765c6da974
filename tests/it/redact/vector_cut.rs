//! The vectors of all rules, as streams: however they are cut, the same comes out.

use super::{REDACTOR, marked::vectors, pieces, stream, whole};

/// Longer texts are cut in two places at so many steps of equal length.
const STEPS: usize = 40;

fn texts() -> Vec<String> {
    let of = |vectors: super::marked::Vectors| vectors.positive.into_iter().chain(vectors.negative);
    vectors().into_iter().flat_map(of).map(|marked| marked.text).collect()
}

fn check(text: &str, expected: &(String, tollgate::redact::Counts), cuts: &[usize]) {
    let cut = pieces(text, cuts);
    assert_eq!(&stream(&REDACTOR, cut.iter().copied()), expected, "{cut:?}");
}

#[test]
fn one_cut_anywhere_and_a_character_at_a_time_change_no_vector() {
    for text in texts() {
        let expected = whole(&REDACTOR, &text);
        for cut in 0..=text.len() {
            check(&text, &expected, &[cut]);
        }
        let every: Vec<usize> = (0..text.len()).collect();
        check(&text, &expected, &every);
    }
}

#[test]
fn two_cuts_change_no_vector() {
    for text in texts() {
        let expected = whole(&REDACTOR, &text);
        let places: Vec<usize> = (0..=text.len()).step_by(text.len() / STEPS + 1).collect();
        for (nth, first) in places.iter().enumerate() {
            for second in &places[nth..] {
                check(&text, &expected, &[*first, *second]);
            }
        }
    }
}
