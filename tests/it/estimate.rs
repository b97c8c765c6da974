//! Estimates of tokens: within their bounds whatever was seen, and right once enough was.

use proptest::prelude::*;
use tollgate::budget::Estimator;

/// Which of a model's corrections.
#[derive(Debug, Clone, Copy)]
enum Of {
    Input,
    Output,
    Counted,
}

impl Of {
    const ALL: [Self; 3] = [Self::Input, Self::Output, Self::Counted];

    fn observe(self, estimator: &Estimator, amount: usize, tokens: u64) {
        match self {
            Self::Input => estimator.observe_input("m", amount, tokens),
            Self::Output => estimator.observe_output("m", amount, tokens),
            Self::Counted => estimator.observe_counted("m", amount as u64, tokens),
        }
    }

    fn estimate(self, estimator: &Estimator, amount: usize) -> u64 {
        match self {
            Self::Input => estimator.input_tokens("m", amount),
            Self::Output => estimator.output_tokens("m", amount),
            Self::Counted => estimator.own_tokens("m", amount as u64),
        }
    }

    /// What one token is before anything was seen.
    fn prior(self) -> u64 {
        if matches!(self, Self::Counted) { 1 } else { 4 }
    }
}

fn which() -> impl Strategy<Value = Of> {
    prop::sample::select(Of::ALL.to_vec())
}

/// Any amount, the extreme ones often.
fn tokens() -> impl Strategy<Value = u64> {
    prop_oneof![0..100_000_u64, Just(0), Just(u64::MAX), any::<u64>()]
}

proptest! {
    #[test]
    fn an_estimate_stays_within_its_bounds_whatever_was_seen(
        seen in prop::collection::vec((which(), 0..200_000_usize, tokens()), 0..200),
        amount in 0..10_000_000_usize,
    ) {
        let estimator = Estimator::new(["m"]);
        for (of, amount, tokens) in seen {
            of.observe(&estimator, amount, tokens);
        }
        for of in Of::ALL {
            let wide = amount as u64;
            let (least, most) = (wide.div_ceil(of.prior() * 4), (wide * 4).div_ceil(of.prior()));
            let estimate = of.estimate(&estimator, amount);
            prop_assert!((least..=most).contains(&estimate), "{of:?}: {estimate} of {amount}");
            prop_assert!(of.estimate(&estimator, amount + 1) >= estimate, "more is not less");
        }
    }

    #[test]
    fn a_ratio_that_is_seen_again_and_again_is_found(
        of in which(),
        before in prop::collection::vec((64..10_000_usize, tokens()), 0..50),
        percent in 25..=400_u64,
    ) {
        let estimator = Estimator::new(["m"]);
        for (amount, tokens) in before {
            of.observe(&estimator, amount, tokens);
        }
        for _ in 0..150 {
            of.observe(&estimator, 100 * 1_000, percent * 1_000 / of.prior());
        }
        let (found, wanted) = (of.estimate(&estimator, 1_000_000), percent * 10_000 / of.prior());
        let off = found.abs_diff(wanted);
        prop_assert!(off * 1_000 <= wanted, "{found}, not {wanted}");
    }

    #[test]
    fn one_answer_alone_moves_an_estimate_little(of in which(), amount in 64..100_000_usize, tokens in tokens()) {
        let estimator = Estimator::new(["m"]);
        let before = of.estimate(&estimator, 1_000_000);
        of.observe(&estimator, amount, tokens);
        let after = of.estimate(&estimator, 1_000_000);
        prop_assert!(after <= before + before * 3 / 10 + 1 && after >= before - before * 75 / 1_000 - 1);
    }
}

#[test]
fn before_anything_was_seen_four_bytes_are_a_token_and_a_count_is_right() {
    let estimator = Estimator::new(["m"]);
    for (bytes, tokens) in [(0, 0), (1, 1), (4, 1), (5, 2), (4_000, 1_000)] {
        assert_eq!(estimator.input_tokens("m", bytes), tokens);
        assert_eq!(estimator.output_tokens("m", bytes), tokens);
        assert_eq!(estimator.input_tokens("unknown", bytes), tokens);
    }
    assert_eq!(estimator.own_tokens("m", 12_345), 12_345);
    assert_eq!(estimator.input_tokens("m", usize::MAX), 1 << 62, "no overflow");
    assert_eq!(estimator.own_tokens("m", u64::MAX), u64::MAX);
}

#[test]
fn what_says_nothing_is_not_learnt_from() {
    let estimator = Estimator::new(["m"]);
    estimator.observe_input("m", 63, 63);
    estimator.observe_output("m", 63, 1);
    estimator.observe_counted("m", 15, 30);
    estimator.observe_output("m", 10_000, 0);
    assert_eq!(estimator.input_tokens("m", 4_000), 1_000);
    assert_eq!(estimator.output_tokens("m", 4_000), 1_000);
    assert_eq!(estimator.own_tokens("m", 1_000), 1_000);
}

#[test]
fn each_model_has_corrections_of_its_own_and_keeps_them_over_a_reload() {
    let estimator = Estimator::new(["m", "n"]);
    estimator.observe_input("m", 4_000, 2_000);
    estimator.observe_input("unknown", 4_000, 2_000);
    assert_eq!(estimator.input_tokens("m", 4_000), 1_100, "a tenth of the way to 2,000");
    assert_eq!(estimator.output_tokens("m", 4_000), 1_000);
    assert_eq!(estimator.input_tokens("n", 4_000), 1_000);

    estimator.retain(["m", "unknown"]);
    assert_eq!(estimator.input_tokens("m", 4_000), 1_100);
    assert_eq!(estimator.input_tokens("unknown", 4_000), 1_000, "it was not known then");
    estimator.retain(["n"]);
    estimator.retain(["m"]);
    assert_eq!(estimator.input_tokens("m", 4_000), 1_000, "forgotten with its model");
}

#[test]
fn threads_that_learn_at_once_lose_nothing() {
    let estimator = Estimator::new(["m"]);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..100).for_each(|_| estimator.observe_input("m", 4_000, 3_000)));
        }
    });
    let found = estimator.input_tokens("m", 4_000_000);
    assert!((2_999_900..=3_000_000).contains(&found), "{found}");
}
