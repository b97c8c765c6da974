//! Families of rules: those that a text can match at the same place, in one automaton.
//!
//! Where a prefix stands only the rules of its family can match: those with this prefix, with a
//! beginning of it, or with one that goes on from it. An automaton for each family is many times
//! smaller, and sooner made, than one for all rules.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZero,
};

use regex_automata::{
    Anchored, MatchKind,
    dfa::{Automaton as _, StartKind, dense},
    nfa::thompson::{self, WhichCaptures},
    util::{alphabet, primitives::StateID, start, syntax},
};

use super::{
    candidate::MAX_CANDIDATE_BYTES,
    engine::RuleId,
    rule::{Rule, RuleError},
};

/// The automaton of one family: all that a gateway has are some times as large.
const MAX_AUTOMATON_BYTES: usize = 4 << 20;
/// That of one own rule: 64 of them must fit beside the built-in ones.
const MAX_OWN_AUTOMATON_BYTES: usize = 128 << 10;
/// What making an automaton may take beside it, and the one that it is made from.
const MAX_WORK_BYTES: usize = 16 << 20;
const MAX_NFA_BYTES: usize = 4 << 20;

type Dfa = dense::DFA<Vec<u32>>;

/// Rules that are run together, from where a prefix begins.
#[derive(Debug)]
pub(super) struct Family {
    pub dfa: Dfa,
    pub start: StateID,
    /// The rules of the patterns, in their order.
    rules: Vec<RuleId>,
    /// What may yet become of a candidate that began within a word, and of one at a boundary.
    open: [Open; 2],
    last: Last,
}

impl Family {
    fn new(members: &[(RuleId, &Rule)]) -> Result<Self, RuleError> {
        let patterns: Vec<&str> = members.iter().map(|(_, rule)| &*rule.pattern).collect();
        let dfa = builder(MAX_AUTOMATON_BYTES)
            .build_many(&patterns)
            .map_err(|error| culprit(members, &error))?;
        let start = start_of(&dfa).map_err(RuleError::TooLarge)?;
        let may_outgrow = |rule: &Rule| rule.max.is_none_or(|max| max >= MAX_CANDIDATE_BYTES);
        let rules = |bounded: bool| {
            let counts = move |rule: &Rule| may_outgrow(rule) && (bounded || !rule.boundary);
            members.iter().map(move |(_, rule)| counts(rule)).collect::<Vec<_>>()
        };
        let states = States::new(&dfa, start);
        let open = [false, true].map(|bounded| Open::new(&states, &rules(bounded)));
        let last = Last::new(&states);
        Ok(Self { dfa, start, rules: members.iter().map(|(id, _)| *id).collect(), open, last })
    }

    /// Nothing can match any more.
    #[inline]
    pub fn is_over(&self, state: StateID) -> bool {
        self.dfa.is_dead_state(state) || self.dfa.is_quit_state(state)
    }

    /// The rule that a candidate is taken for that outgrew its bound in `state` and matched nothing
    /// so far: the last one that may still match, as the general ones stand behind the special ones.
    /// None: no rule whose secrets can be so long may.
    pub fn open(&self, state: StateID, bounded: bool) -> Option<RuleId> {
        let number = self.open[usize::from(bounded)].get(&self.dfa, state)?;
        self.rules.get(number).copied()
    }

    pub fn memory_usage(&self) -> usize {
        let open = self.open.iter().map(|open| size_of_val(&*open.0));
        self.dfa.memory_usage() + open.sum::<usize>() + size_of_val(&*self.last.0)
    }

    /// Whatever follows, nothing else can match.
    #[inline]
    pub fn is_last(&self, state: StateID) -> bool {
        self.last.0.get(slot(&self.dfa, state)) == Some(&true)
    }

    /// The rules that match in this state, if it is one that they match in.
    pub fn matches(&self, state: StateID) -> impl Iterator<Item = RuleId> {
        let count = if self.dfa.is_match_state(state) { self.dfa.match_len(state) } else { 0 };
        (0..count).map(move |index| self.rules[self.dfa.match_pattern(state, index).as_usize()])
    }
}

/// The states of an automaton, and what follows each.
struct States<'a> {
    dfa: &'a Dfa,
    /// One byte of each class.
    classes: Vec<u8>,
    /// All that a way leads to from the start.
    all: Vec<StateID>,
}

impl<'a> States<'a> {
    fn new(dfa: &'a Dfa, start: StateID) -> Self {
        let classes = dfa.byte_classes().representatives(..).filter_map(alphabet::Unit::as_u8);
        let mut states = Self { dfa, classes: classes.collect(), all: vec![start] };
        let (mut seen, mut next) = (BTreeSet::from([start]), 0);
        while let Some(state) = states.all.get(next) {
            let new = states.after(*state).filter(|state| seen.insert(*state));
            let new: Vec<StateID> = new.collect();
            states.all.extend(new);
            next += 1;
        }
        states
    }

    fn after(&self, state: StateID) -> impl Iterator<Item = StateID> {
        let bytes = self.classes.iter().map(move |byte| self.dfa.next_state(state, *byte));
        bytes.chain([self.dfa.next_eoi_state(state)])
    }

    /// A place for something of each state.
    fn slots<T: Clone>(&self, empty: T) -> Vec<T> {
        let last = self.all.iter().max().map_or(0, |state| slot(self.dfa, *state));
        vec![empty; last + 1]
    }
}

fn slot(dfa: &Dfa, state: StateID) -> usize {
    state.as_usize() >> dfa.stride2()
}

/// The states that no way leads on from: who waits for another byte there waits for nothing.
#[derive(Debug)]
struct Last(Box<[bool]>);

impl Last {
    fn new(states: &States<'_>) -> Self {
        let mut last = states.slots(false);
        for state in &states.all {
            let is_over =
                |state| states.dfa.is_dead_state(state) || states.dfa.is_quit_state(state);
            last[slot(states.dfa, *state)] = states.after(*state).all(is_over);
        }
        Self(last.into())
    }
}

/// Of each state the last pattern that counts and that a way leads to.
#[derive(Debug)]
struct Open(Box<[Option<NonZero<u16>>]>);

impl Open {
    fn new(states: &States<'_>, counts: &[bool]) -> Self {
        if !counts.contains(&true) {
            return Self(Box::default());
        }
        let dfa = states.dfa;
        let matched = |state: StateID| {
            let count = if dfa.is_match_state(state) { dfa.match_len(state) } else { 0 };
            let patterns = (0..count).map(|index| dfa.match_pattern(state, index).as_usize());
            patterns.filter(|pattern| counts[*pattern]).max()
        };
        let mut open = states.slots(None);
        // What a way leads to is known last state first, but for the loops.
        let mut is_done = false;
        while !is_done {
            is_done = true;
            for state in states.all.iter().rev() {
                let own = matched(*state).and_then(|pattern| u16::try_from(pattern + 1).ok());
                let ahead = states.after(*state).map(|state| open[slot(dfa, state)]);
                let pattern = ahead.max().flatten().max(own.and_then(NonZero::new));
                let known = &mut open[slot(dfa, *state)];
                is_done &= *known == pattern;
                *known = pattern;
            }
        }
        Self(open.into())
    }

    fn get(&self, dfa: &Dfa, state: StateID) -> Option<usize> {
        let number = self.0.get(slot(dfa, state)).copied().flatten()?;
        Some(usize::from(number.get() - 1))
    }
}

/// The families, and the number of each rule's.
pub(super) fn families(rules: &[Rule]) -> Result<(Vec<Family>, Vec<u16>), RuleError> {
    let numbers = numbers(rules);
    let mut members: BTreeMap<u16, Vec<(RuleId, &Rule)>> = BTreeMap::new();
    for (id, (rule, number)) in (0..).zip(rules.iter().zip(&numbers)) {
        members.entry(*number).or_default().push((RuleId::new(id), rule));
    }
    let families = members.values().map(|members| Family::new(members));
    Ok((families.collect::<Result<_, _>>()?, numbers))
}

/// Numbers without gaps: equal ones for rules one of whose prefixes begins with one of another's.
fn numbers(rules: &[Rule]) -> Vec<u16> {
    let mut prefixes: Vec<(&str, usize)> = rules
        .iter()
        .enumerate()
        .flat_map(|(rule, of)| of.prefixes.iter().map(move |prefix| (&**prefix, rule)))
        .collect();
    // What begins with a prefix comes right behind it.
    prefixes.sort_unstable();
    let mut parents: Vec<usize> = (0..rules.len()).collect();
    let mut shortest: Option<(&str, usize)> = None;
    for (prefix, rule) in prefixes {
        match shortest.filter(|(before, _)| prefix.starts_with(before)) {
            Some((_, other)) => {
                let (one, other) = (root(&parents, rule), root(&parents, other));
                parents[one.max(other)] = one.min(other);
            }
            None => shortest = Some((prefix, rule)),
        }
    }
    let mut given = BTreeMap::new();
    (0..rules.len())
        .map(|rule| {
            let next = u16::try_from(given.len()).unwrap_or(u16::MAX);
            *given.entry(root(&parents, rule)).or_insert(next)
        })
        .collect()
}

fn root(parents: &[usize], mut of: usize) -> usize {
    while parents[of] != of {
        of = parents[of];
    }
    of
}

pub(super) fn syntax() -> syntax::Config {
    syntax::Config::new().unicode(false).utf8(false)
}

fn builder(limit: usize) -> dense::Builder {
    let config = dense::Config::new()
        .match_kind(MatchKind::All)
        .start_kind(StartKind::Anchored)
        .accelerate(false)
        .dfa_size_limit(Some(limit))
        .determinize_size_limit(Some(MAX_WORK_BYTES));
    let mut builder = dense::Builder::new();
    let thompson = thompson::Config::new()
        .utf8(false)
        .which_captures(WhichCaptures::None)
        .nfa_size_limit(Some(MAX_NFA_BYTES));
    builder.configure(config).syntax(syntax()).thompson(thompson);
    builder
}

fn start_of(dfa: &Dfa) -> Result<StateID, String> {
    let config = start::Config::new().anchored(Anchored::Yes);
    dfa.start_state(&config).map_err(|error| error.to_string())
}

/// An own rule is compiled by itself first, so that what is wrong with it can be said.
pub(super) fn check_own(rule: &Rule) -> Result<(), RuleError> {
    let fault = |reason: String| RuleError::of(&rule.name, reason);
    let dfa = builder(MAX_OWN_AUTOMATON_BYTES).build(&rule.pattern).map_err(|error| {
        fault(if error.is_size_limit_exceeded() {
            format!("the pattern needs an automaton of more than {MAX_OWN_AUTOMATON_BYTES} bytes")
        } else {
            reason_of(&error)
        })
    })?;
    let start = start_of(&dfa).map_err(fault)?;
    for prefix in &rule.prefixes {
        let end = prefix.bytes().fold(start, |state, byte| dfa.next_state(state, byte));
        if dfa.is_dead_state(end) {
            return Err(fault(format!("the pattern can't begin with the prefix {prefix:?}")));
        }
    }
    Ok(())
}

pub(super) fn reason_of(error: &(dyn std::error::Error + 'static)) -> String {
    // The innermost says what is wrong where.
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// Which rule is it that they don't compile for?
fn culprit(members: &[(RuleId, &Rule)], error: &dense::BuildError) -> RuleError {
    let names: Vec<&str> = members.iter().map(|(_, rule)| &*rule.name).collect();
    let names = names.join(", ");
    if error.is_size_limit_exceeded() {
        return RuleError::TooLarge(names);
    }
    let fails = |rule: &&Rule| syntax::parse_with(&rule.pattern, &syntax()).is_err();
    let name = members.iter().map(|(_, rule)| *rule).find(fails).map_or(&*names, |rule| &rule.name);
    RuleError::of(name, reason_of(error))
}
