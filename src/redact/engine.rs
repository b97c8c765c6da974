//! Rules, compiled.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    fmt,
    ops::Range,
    sync::{Arc, OnceLock},
};

use regex_automata::{
    Anchored, Input, MatchKind,
    nfa::thompson::{self, pikevm::PikeVM},
};

use super::{
    RuleInfo,
    allow::AllowList,
    check,
    context::Contexts,
    family::{Family, check_own, families, reason_of, syntax},
    named, placeholder,
    prefix::Prefixes,
    rule::{Rule, RuleError, RuleSet},
    scan::{Event, Scan},
    unseen,
    view::Views,
};

/// The name of the group that is the secret, where it is not all that a pattern matches.
const SECRET_GROUP: &str = "secret";

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
    pub(super) const fn new(number: u16) -> Self {
        Self(number)
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
    families: Vec<Family>,
    rules: Vec<Rule>,
    names: Vec<Arc<str>>,
    pub(super) contexts: Contexts,
    stop_words: Vec<String>,
    samples: Vec<String>,
    /// A shorter text has no secret: most strings of a request are such.
    shortest: usize,
    allowed: AllowList,
    infos: Vec<RuleInfo>,
    /// Finds the secret in a match, of the rules where it is only a part.
    groups: HashMap<RuleId, PikeVM>,
    /// Common names of members that make no secret of their values.
    pub(super) plain_names: HashSet<&'static [u8], foldhash::fast::RandomState>,
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
        let (families, numbers) = families(&rules)?;
        let prefixes = rules.iter().zip(numbers).flat_map(|(rule, family)| {
            rule.prefixes.iter().map(move |prefix| (prefix.as_bytes(), family, rule.boundary))
        });
        let prefixes = Prefixes::new(&prefixes.collect::<Vec<_>>())?;
        let views = Views::new(rules.iter().flat_map(|rule| &rule.prefixes).map(String::as_str));
        let names = rules.iter().map(|rule| &rule.name);
        let names = names.chain(set.contexts.iter().map(|context| &context.name));
        let contexts = Contexts::new(&set.contexts);
        let mut engine = Self {
            plain_names: HashSet::default(),
            names: names.cloned().collect(),
            samples: set.samples.clone(),
            shortest: shortest(&rules, &contexts)?,
            allowed: AllowList::default(),
            infos: RuleInfo::of(set),
            stop_words: set.stop_words.iter().map(|word| word.to_ascii_lowercase()).collect(),
            contexts,
            groups: groups(&rules)?,
            prefixes,
            views,
            families,
            rules,
        };
        let plain = named::COMMON.into_iter().filter(|name| !engine.may_name_secrets(name));
        engine.plain_names = plain.collect();
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

    /// Lets these pass.
    pub(super) fn allowing(self, allowed: AllowList) -> Self {
        Self { allowed, ..self }
    }

    /// Could this be an own rule?
    ///
    /// # Errors
    /// Why not.
    pub(super) fn check_own(rule: &Rule) -> Result<(), RuleError> {
        rule.check().and_then(|()| check_own(rule))
    }

    /// The secrets in `text`, in order, none within another.
    #[must_use]
    pub fn find(&self, text: &[u8], depth: Depth) -> Vec<Hit> {
        if self.is_short(text) {
            return Vec::new();
        }
        let (mut hits, _) = self.find_formats(text);
        if depth == Depth::Complete {
            self.add_contexts(text, &mut hits);
        }
        hits
    }

    /// Is it shorter than any secret with what belongs to it?
    #[inline]
    pub(super) const fn is_short(&self, text: &[u8]) -> bool {
        text.len() < self.shortest
    }

    /// How many bytes must be looked at to find what is in `text`, each counted as often as it is:
    /// what no text may make many.
    #[must_use]
    pub fn steps(&self, text: &[u8]) -> usize {
        self.find_formats(text).1
    }

    fn find_formats(&self, text: &[u8]) -> (Vec<Hit>, usize) {
        let Some(mut scan) = Scan::at_first_prefix(&self.prefixes, text) else {
            return (Vec::new(), text.len());
        };
        let mut hits = Vec::<Hit>::new();
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

    /// A known format says more of a secret than its name does: it goes first. Contexts are looked
    /// for in what is left then, so that the same ones are found in a text that was redacted before.
    fn add_contexts(&self, text: &[u8], hits: &mut Vec<Hit>) {
        let (shown, formats) = (self.shown(text, hits), hits.len());
        let (mut next, mut taken, mut put) = (0, 0, 0);
        for (at, number) in self.contexts.find(&shown, &self.stop_words) {
            while let Some(hit) = hits[..formats].get(next)
                && hit.at.start + put < at.start + taken
            {
                taken += hit.at.len();
                put += self.stand_in(hit).len();
                next += 1;
            }
            let at = at.start + taken - put..at.end + taken - put;
            if self.allowed.has(&self.names[self.rules.len() + number], &text[at.clone()]) {
                continue;
            }
            let number = u16::try_from(self.rules.len() + number).unwrap_or(u16::MAX);
            hits.push(Hit { at, rule: RuleId(number) });
        }
        hits.sort_by_key(|hit| hit.at.start);
    }

    /// The text without what was found.
    fn shown<'a>(&self, text: &'a [u8], hits: &[Hit]) -> Cow<'a, [u8]> {
        if hits.is_empty() {
            return Cow::Borrowed(text);
        }
        let (mut shown, mut from) = (Vec::with_capacity(text.len()), 0);
        for hit in hits {
            shown.extend_from_slice(&text[from..hit.at.start]);
            shown.extend_from_slice(self.stand_in(hit).as_bytes());
            from = hit.at.end;
        }
        shown.extend_from_slice(&text[from..]);
        Cow::Owned(shown)
    }

    /// A placeholder, as far as contexts are concerned.
    fn stand_in(&self, hit: &Hit) -> String {
        format!("[REDACTED:{}:00000000]", self.name(hit.rule))
    }

    /// The rules of tier 1.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// All rules, of both tiers.
    #[must_use]
    pub fn infos(&self) -> &[RuleInfo] {
        &self.infos
    }

    /// What a person is told of a rule.
    #[must_use]
    pub fn info(&self, rule: RuleId) -> &RuleInfo {
        &self.infos[rule.index()]
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
        self.families.iter().map(Family::memory_usage).sum::<usize>()
            + self.prefixes.memory_usage()
            + self.views.memory_usage()
            + groups.sum::<usize>()
    }

    pub(super) fn family(&self, number: u16) -> &Family {
        &self.families[usize::from(number)]
    }

    pub(super) fn rule(&self, rule: RuleId) -> &Rule {
        &self.rules[rule.index()]
    }

    /// Has it what its rule needs beside the shape?
    pub(super) fn is_secret(&self, rule: RuleId, secret: &[u8]) -> bool {
        let secret = placeholder::visible(secret);
        check::passes(self.rule(rule), &secret, (&self.stop_words, &self.samples))
            && !self.allowed.has(self.name(rule), &secret)
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
        let origin = |count| unseen::go_on(seen, count);
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

/// The length of the shortest text that a rule finds something in.
fn shortest(rules: &[Rule], contexts: &Contexts) -> Result<usize, RuleError> {
    let mut shortest = contexts.shortest();
    for rule in rules {
        let pattern = regex_automata::util::syntax::parse_with(&rule.pattern, &syntax());
        let pattern = pattern.map_err(|error| RuleError::of(&rule.name, reason_of(&error)))?;
        shortest = shortest.min(pattern.properties().minimum_len().unwrap_or(0));
    }
    Ok(shortest)
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
