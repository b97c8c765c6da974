//! The machine against what it is said to do, done slowly.

use std::{cmp::Reverse, ops::Range};

use proptest::prelude::*;
use regex_automata::{
    Anchored, Input, MatchKind,
    dfa::{Automaton as _, OverlappingState, StartKind, dense},
    util::syntax,
};
use tollgate::redact::{Depth, Need, Rule, RuleSet};

use super::{SMALL, hits};

/// As `SMALL`, but one rule at a time; without entropy, and for texts that are short.
struct Slow {
    rules: Vec<(Rule, dense::DFA<Vec<u32>>)>,
}

impl Slow {
    fn new() -> Self {
        let set = RuleSet::parse(include_str!("rules.toml")).unwrap();
        let compile = |rule: &Rule| {
            let config =
                dense::Config::new().match_kind(MatchKind::All).start_kind(StartKind::Anchored);
            let dfa = dense::Builder::new()
                .configure(config)
                .syntax(syntax::Config::new().unicode(false).utf8(false))
                .build(&rule.pattern)
                .unwrap();
            (rule.clone(), dfa)
        };
        Self { rules: set.rules().iter().map(compile).collect() }
    }

    /// The secrets, and the rules' names.
    fn find(&self, text: &[u8]) -> Vec<(String, Range<usize>)> {
        let (mut found, mut from, mut end) = (Vec::new(), 0, 0);
        while end <= text.len() {
            let first = self.ending(text, from, end, text.len()).next();
            if let Some((name, secret)) = first {
                self.find_before(text, from, end, secret.start, &mut found);
                (from, end) = (secret.end, secret.end);
                found.push((name, secret));
            }
            end += 1;
        }
        found
    }

    /// What is between a prefix, which ends at `end`, and its secret.
    fn find_before(
        &self,
        text: &[u8],
        mut from: usize,
        mut end: usize,
        limit: usize,
        found: &mut Vec<(String, Range<usize>)>,
    ) {
        while end < limit {
            if let Some((name, secret)) = self.ending(text, from, end, limit).next() {
                (from, end) = (secret.end, secret.end);
                found.push((name, secret));
            }
            end += 1;
        }
        if end == limit
            && let Some(last) = self.ending(text, from, end, limit).next()
        {
            found.push(last);
        }
    }

    /// The secrets of the prefixes that end at `end`.
    fn ending<'a>(
        &'a self,
        text: &'a [u8],
        from: usize,
        end: usize,
        limit: usize,
    ) -> impl Iterator<Item = (String, Range<usize>)> + 'a {
        let mut starts: Vec<(usize, bool)> = Vec::new();
        for (rule, _) in &self.rules {
            for prefix in &rule.prefixes {
                if text[from..end].ends_with(prefix.as_bytes()) {
                    let start = end - prefix.len();
                    let bounded = boundary(text, from, start);
                    if bounded || !rule.boundary {
                        starts.push((start, bounded));
                    }
                }
            }
        }
        starts.sort_by_key(|(start, _)| Reverse(end - start));
        let secrets = starts.into_iter().filter_map(move |(start, bounded)| {
            let ends = self.rules.iter().enumerate().filter_map(|(number, (rule, dfa))| {
                let end = longest(dfa, text, start)?;
                let secret = secret(rule, text, start..end);
                let counts = (bounded || !rule.boundary) && passes(rule, &text[secret.clone()]);
                counts.then_some((end, Reverse(number), secret.start, secret.end))
            });
            let (_, Reverse(number), start, end) = ends.max()?;
            Some((self.rules[number].0.name.to_string(), start..end))
        });
        secrets.filter(move |(_, secret)| secret.end <= limit)
    }
}

/// The part that is the secret.
fn secret(rule: &Rule, text: &[u8], at: Range<usize>) -> Range<usize> {
    let whole = std::str::from_utf8(&text[at.clone()]).unwrap();
    let (before, after) = match &*rule.name {
        "part" => (whole.find('=').unwrap() + 1, 2),
        "behind" => (whole.find(':').unwrap() + 1, 1),
        _ => (0, 0),
    };
    at.start + before..at.end - after
}

fn boundary(text: &[u8], from: usize, start: usize) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let before = &text[from..start];
    let escape = before.len() > 1
        && before[before.len() - 2] == b'\\'
        && b"nrt".contains(&before[before.len() - 1]);
    before.last().is_none_or(|last| !word(*last)) || escape
}

fn longest(dfa: &dense::DFA<Vec<u32>>, text: &[u8], start: usize) -> Option<usize> {
    let input = Input::new(text).range(start..).anchored(Anchored::Yes);
    let (mut state, mut end) = (OverlappingState::start(), None);
    loop {
        dfa.try_search_overlapping_fwd(&input, &mut state).unwrap();
        match state.get_match() {
            Some(found) => end = end.max(Some(found.offset())),
            None => return end,
        }
    }
}

fn passes(rule: &Rule, secret: &[u8]) -> bool {
    let needs = rule.needs.iter().all(|need| match need {
        Need::Digit => secret.iter().any(u8::is_ascii_digit),
        Need::NoStopWord => !secret.windows(4).any(|part| part == b"fake"),
        _ => true,
    });
    // Of the small rules only `dots` looks at the entropy: what begins with `a1` and has a dot has it.
    needs && !rule.allow.iter().any(|allowed| allowed.as_bytes() == secret)
}

fn agrees(slow: &Slow, text: &str) {
    let expected = slow.find(text.as_bytes()).into_iter();
    let expected: Vec<_> = expected.map(|(name, secret)| (name, text[secret].to_owned())).collect();
    let found = hits(&SMALL, text, Depth::Formats).into_iter();
    let found: Vec<_> = found.map(|(name, secret)| (name, secret.to_owned())).collect();
    assert_eq!(found, expected, "{text:?}");
}

#[test]
fn it_finds_what_the_rules_say() {
    let slow = Slow::new();
    let config = ProptestConfig::with_cases(2_000);
    let parts = prop_oneof![
        6 => "[ab1_.-]{1,6}",
        3 => prop::sample::select(vec![
            "ab_", "ab-", "ab-b-", "b-", "1a1", "b=", "a b=", "--a-", "--b", "a1b", "@a", "fake", "//", "//b", ":", "//", "//b", ":",
        ]).prop_map(str::to_owned),
        2 => "[ \\\\nrt@\n]{1,2}",
    ];
    let texts = prop::collection::vec(parts, 0..24).prop_map(|parts| parts.concat());
    proptest!(config, |(text in texts)| agrees(&slow, &text));
}
