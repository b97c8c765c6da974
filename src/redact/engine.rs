//! Rules, compiled.

use std::{
    collections::HashMap,
    fmt,
    ops::Range,
    sync::{Arc, OnceLock},
};

use regex_automata::{
    Anchored, Input, MatchKind, PatternID,
    dfa::{Automaton as _, StartKind, dense},
    nfa::thompson::{self, WhichCaptures, pikevm::PikeVM},
    util::{primitives::StateID, start, syntax},
};

use super::{
    check,
    context::Contexts,
    placeholder,
    prefix::Prefixes,
    rule::{Rule, RuleError, RuleSet},
    scan::{Event, Scan},
    view::Views,
};

/// The automaton of all rules together: what a gateway gives for them.
const MAX_AUTOMATON_BYTES: usize = 16 << 20;
/// That of one own rule: 64 of them must fit beside the built-in ones.
const MAX_OWN_AUTOMATON_BYTES: usize = 128 << 10;
/// What making an automaton may take beside it.
const MAX_WORK_BYTES: usize = 64 << 20;
/// The automaton that the other is made from.
const MAX_NFA_BYTES: usize = 4 << 20;

/// The name of the group that is the secret, where it is not all that a pattern matches.
const SECRET_GROUP: &str = "secret";

pub(super) type Dfa = dense::DFA<Vec<u32>>;

/// How much is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Tier 1: what has a known format.
    Formats,
    /// Also tier 2: what its context says is secret. Only of complete texts.
    Complete,
}

/// A rule of an [`Engine`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(u16);

impl RuleId {
    pub(super) fn of(pattern: PatternID) -> Self {
        Self(u16::try_from(pattern.as_usize()).unwrap_or(u16::MAX))
    }

    const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A secret in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    /// Where the secret itself is.
    pub at: Range<usize>,
    pub rule: RuleId,
}

/// Rules, compiled. It is the same for all texts, and never changes.
pub struct Engine {
    pub(super) prefixes: Prefixes,
    pub(super) views: Views,
    pub(super) dfa: Dfa,
    pub(super) start: StateID,
    rules: Vec<Rule>,
    names: Vec<Arc<str>>,
    contexts: Contexts,
    stop_words: Vec<String>,
    /// Finds the secret in a match, of the rules where it is only a part.
    groups: HashMap<RuleId, PikeVM>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("rules", &self.rules.len()).finish_non_exhaustive()
    }
}

impl Engine {
    /// # Errors
    /// The rule at fault, and why; or that all together are too large.
    pub fn compile(set: &RuleSet) -> Result<Self, RuleError> {
        let rules = set.rules.clone();
        for own in &rules[rules.len() - set.own..] {
            check_own(own)?;
        }
        let patterns: Vec<&str> = rules.iter().map(|rule| &*rule.pattern).collect();
        let dfa = builder(MAX_AUTOMATON_BYTES)
            .build_many(&patterns)
            .map_err(|error| culprit(&rules, &error))?;
        let start = start_of(&dfa).map_err(RuleError::TooLarge)?;
        let prefixes = (0..).zip(&rules).flat_map(|(number, rule)| {
            rule.prefixes.iter().map(move |prefix| (prefix.as_bytes(), number, rule.boundary))
        });
        let prefixes = Prefixes::new(prefixes)?;
        let views = Views::new(rules.iter().flat_map(|rule| &rule.prefixes).map(String::as_str));
        let names = rules.iter().map(|rule| &rule.name);
        let names = names.chain(set.contexts.iter().map(|context| &context.name));
        let engine = Self {
            names: names.cloned().collect(),
            stop_words: set.stop_words.iter().map(|word| word.to_ascii_lowercase()).collect(),
            contexts: Contexts::new(&set.contexts),
            groups: groups(&rules)?,
            prefixes,
            views,
            dfa,
            start,
            rules,
        };
        engine.check_placeholders()?;
        Ok(engine)
    }

    /// The engine of the built-in rules; it is compiled once.
    ///
    /// # Errors
    /// None, as a test holds.
    pub fn built_in() -> Result<Arc<Self>, RuleError> {
        static BUILT_IN: OnceLock<Arc<Engine>> = OnceLock::new();
        if let Some(engine) = BUILT_IN.get() {
            return Ok(Arc::clone(engine));
        }
        let engine = Arc::new(Self::compile(&RuleSet::built_in()?)?);
        Ok(Arc::clone(BUILT_IN.get_or_init(|| engine)))
    }

    /// The secrets in `text`, in order, none within another.
    #[must_use]
    pub fn find(&self, text: &[u8], depth: Depth) -> Vec<Hit> {
        let (mut hits, _) = self.find_formats(text);
        if depth == Depth::Complete {
            self.add_contexts(text, &mut hits);
        }
        hits
    }

    /// How many bytes must be looked at to find what is in `text`, each counted as often as it is:
    /// what no text may make many.
    #[must_use]
    pub fn steps(&self, text: &[u8]) -> usize {
        self.find_formats(text).1
    }

    fn find_formats(&self, text: &[u8]) -> (Vec<Hit>, usize) {
        let (mut scan, mut hits) = (Scan::default(), Vec::<Hit>::new());
        while let Some(event) = scan.next(self, text, true) {
            match event {
                Event::Hit { at, rule } | Event::Outgrown { at, rule } => {
                    hits.push(Hit { at, rule });
                }
                Event::Resumed { at } => {
                    if let Some(hit) = hits.last_mut() {
                        hit.at.end = at;
                    }
                }
            }
        }
        (hits, scan.steps())
    }

    /// A known format says more of a secret than its name does: it goes first.
    fn add_contexts(&self, text: &[u8], hits: &mut Vec<Hit>) {
        let formats = hits.len();
        for (at, number) in self.contexts.find(text, &self.stop_words) {
            let before = hits[..formats].partition_point(|hit| hit.at.end <= at.start);
            if hits[..formats].get(before).is_none_or(|hit| hit.at.start >= at.end) {
                let number = u16::try_from(self.rules.len() + number).unwrap_or(u16::MAX);
                hits.push(Hit { at, rule: RuleId(number) });
            }
        }
        hits.sort_by_key(|hit| hit.at.start);
    }

    /// The rules of tier 1.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// A rule's name.
    #[must_use]
    pub fn name(&self, rule: RuleId) -> &Arc<str> {
        &self.names[rule.index()]
    }

    /// The bytes that the compiled rules take.
    #[must_use]
    pub fn memory_usage(&self) -> usize {
        let groups = self.groups.values().map(|vm| vm.get_nfa().memory_usage());
        let automata = self.dfa.memory_usage() + self.prefixes.memory_usage();
        automata + self.views.memory_usage() + groups.sum::<usize>()
    }

    pub(super) fn rule(&self, rule: RuleId) -> &Rule {
        &self.rules[rule.index()]
    }

    /// Nothing can match any more.
    pub(super) fn is_over(&self, state: StateID) -> bool {
        self.dfa.is_dead_state(state) || self.dfa.is_quit_state(state)
    }

    /// Has it what its rule needs beside the shape?
    pub(super) fn is_secret(&self, rule: RuleId, secret: &[u8]) -> bool {
        check::passes(self.rule(rule), &placeholder::visible(secret), &self.stop_words)
    }

    /// Where in a match the secret is. What is after it in `text` is what was seen so far.
    pub(super) fn secret(&self, rule: RuleId, text: &[u8], at: Range<usize>) -> Range<usize> {
        let Some(vm) = self.groups.get(&rule) else { return at };
        // One more byte, for patterns that look at what follows.
        let seen = &text[at.start..text.len().min(at.end + 1)];
        let visible = placeholder::visible(seen);
        let length = placeholder::visible(&text[at.clone()]).len();
        let input = Input::new(&*visible).range(..length).anchored(Anchored::Yes);
        let mut captures = vm.create_captures();
        vm.search(&mut vm.create_cache(), &input, &mut captures);
        let Some(span) = captures.get_group_by_name(SECRET_GROUP) else { return at };
        let origin = |count| super::prefix::go_on(seen, count);
        at.start + origin(span.start)..at.start + origin(span.end)
    }

    /// A placeholder is no secret, or texts that are redacted twice would change.
    fn check_placeholders(&self) -> Result<(), RuleError> {
        for name in &self.names {
            for tag in ["00000000", "deadbeef", "0a1b2c3d"] {
                let placeholder = format!("x [REDACTED:{name}:{tag}] x");
                if let Some(hit) = self.find(placeholder.as_bytes(), Depth::Complete).first() {
                    let reason = format!("it finds the placeholders of `{name}`");
                    return Err(RuleError::of(self.name(hit.rule), reason));
                }
            }
        }
        Ok(())
    }
}

fn syntax() -> syntax::Config {
    syntax::Config::new().unicode(false).utf8(false)
}

/// All patterns at once, from where a candidate begins.
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
fn check_own(rule: &Rule) -> Result<(), RuleError> {
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

fn reason_of(error: &(dyn std::error::Error + 'static)) -> String {
    // The innermost says what is wrong where.
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// Which rule is it that they don't compile for?
fn culprit(rules: &[Rule], error: &dense::BuildError) -> RuleError {
    if error.is_size_limit_exceeded() {
        return RuleError::TooLarge(error.to_string());
    }
    let fails = |rule: &&Rule| syntax::parse_with(&rule.pattern, &syntax()).is_err();
    let name = rules.iter().find(fails).map_or("?", |rule| &*rule.name);
    RuleError::of(name, reason_of(error))
}

fn groups(rules: &[Rule]) -> Result<HashMap<RuleId, PikeVM>, RuleError> {
    let opening = format!("(?<{SECRET_GROUP}>");
    let mut groups = HashMap::new();
    for (number, rule) in (0..).zip(rules) {
        if !rule.pattern.contains(&opening) {
            continue;
        }
        let vm = PikeVM::builder()
            .configure(PikeVM::config().match_kind(MatchKind::All))
            .syntax(syntax())
            .thompson(thompson::Config::new().utf8(false))
            .build(&rule.pattern)
            .map_err(|error| RuleError::of(&rule.name, reason_of(&error)))?;
        groups.insert(RuleId(number), vm);
    }
    Ok(groups)
}
