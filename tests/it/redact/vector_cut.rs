//! The vectors of all rules, as streams: however they are cut, the same comes out.

use proptest::{
    prelude::RngExt as _,
    test_runner::{RngAlgorithm, TestRng},
};

use super::{REDACTOR, marked::vectors, pieces, stream, whole};

/// Longer texts are cut in two places at so many steps of equal length; shorter ones everywhere. (All
/// pairs of places of all texts hold as well, and take five minutes of CPU.)
const STEPS: usize = 128;
/// The texts are dealt out to so many tests, as one would take minutes.
const TESTS: usize = 12;

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
fn many_cuts_anywhere_change_no_vector() {
    let mut random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    for text in texts() {
        let expected = whole(&REDACTOR, &text);
        for seldom in [2, 3, 5, 8, 13, 21, 34, 55] {
            let places = 0..=text.len();
            let cuts = places.filter(|_| random.random_ratio(1, seldom)).collect::<Vec<_>>();
            check(&text, &expected, &cuts);
        }
    }
}

fn two_cuts_change_no_vector(test: usize) {
    for text in texts().into_iter().skip(test).step_by(TESTS) {
        let expected = whole(&REDACTOR, &text);
        let places: Vec<usize> = (0..=text.len()).step_by(text.len() / STEPS + 1).collect();
        for (nth, first) in places.iter().enumerate() {
            for second in &places[nth..] {
                check(&text, &expected, &[*first, *second]);
            }
        }
    }
}

macro_rules! two_cuts {
    ($($name:ident: $test:literal),*) => {
        $(#[test]
        fn $name() {
            two_cuts_change_no_vector($test);
        })*

        #[test]
        fn all_texts_are_dealt_out() {
            assert_eq!([$($test),*], std::array::from_fn::<usize, TESTS, _>(|test| test));
        }
    };
}

two_cuts!(
    two_cuts_0: 0, two_cuts_1: 1, two_cuts_2: 2, two_cuts_3: 3, two_cuts_4: 4, two_cuts_5: 5,
    two_cuts_6: 6, two_cuts_7: 7, two_cuts_8: 8, two_cuts_9: 9, two_cuts_10: 10, two_cuts_11: 11
);
