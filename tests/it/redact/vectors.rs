//! Each rule finds its vectors, to the byte, and lets pass what only looks like them.

use std::collections::BTreeSet;

use tollgate::redact::Depth;

use super::{
    REDACTOR, hits,
    marked::{Marked, vectors},
};

/// So many formats are promised.
const LEAST_RULES: usize = 120;
const LEAST_EACH: usize = 3;

#[test]
fn each_rule_has_vectors_and_a_source() {
    let vectors = vectors();
    let rules = REDACTOR.engine().rules();
    assert!(rules.len() >= LEAST_RULES, "{} rules", rules.len());
    let named: BTreeSet<&str> = rules.iter().map(|rule| &*rule.name).collect();
    let tested: BTreeSet<&str> = vectors.iter().map(|vectors| &*vectors.rule).collect();
    assert_eq!(named, tested);
    for rule in rules {
        assert!(rule.source.starts_with("https://"), "{}: no public source", rule.name);
    }
    for vectors in vectors {
        let enough = vectors.positive.len().min(vectors.negative.len()) >= LEAST_EACH;
        assert!(enough, "{}: too few vectors", vectors.rule);
    }
}

#[test]
fn what_is_a_secret_is_found_to_the_byte() {
    let found = |rule: &str, marked: &Marked| {
        let secret = &marked.text[marked.secret.clone().unwrap()];
        let all = hits(&REDACTOR, &marked.text, Depth::Formats);
        (all != [(rule.to_owned(), secret)])
            .then(|| format!("{rule}: {:?}\n  wants {secret:?}\n  found {all:?}\n", marked.text))
    };
    let wrong: String = vectors()
        .iter()
        .flat_map(|vectors| vectors.positive.iter().filter_map(|text| found(&vectors.rule, text)))
        .collect();
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn what_is_no_secret_passes() {
    let found = |rule: &str, marked: &Marked| {
        let all = hits(&REDACTOR, &marked.text, Depth::Formats);
        let at_fault = all.iter().any(|(name, _)| name == rule);
        at_fault.then(|| format!("{rule}: {:?}\n  found {all:?}\n", marked.text))
    };
    let wrong: String = vectors()
        .iter()
        .flat_map(|vectors| vectors.negative.iter().filter_map(|text| found(&vectors.rule, text)))
        .collect();
    assert!(wrong.is_empty(), "{wrong}");
}
