//! A place where a secret may begin, and what comes of it.

use std::ops::Range;

use regex_automata::{dfa::Automaton as _, util::primitives::StateID};

use super::{
    engine::{Engine, RuleId},
    placeholder,
    prefix::Ending,
    trail::{Place, STRIDE, Tip, Trail, Way},
    unseen,
};

/// What outgrows this is replaced as far as it was seen, and the rest of it swallowed: what a
/// stream holds back has an end.
pub const MAX_CANDIDATE_BYTES: usize = 8192;

/// A secret may begin this far into its candidate at most, if that outgrows the bound: as much of
/// it as a placeholder needs is held then.
const MAX_LEAD_BYTES: usize = 4096;

/// A place where a secret may begin.
#[derive(Debug)]
pub(super) struct Candidate {
    pub start: usize,
    pub bounded: bool,
    family: u16,
    state: StateID,
    /// The next byte for `state`, and the end of the last one that is seen.
    pub at: usize,
    end: usize,
    best: Option<(usize, RuleId)>,
    /// Its way as long as nothing matched.
    pub way: Option<Way>,
    /// How many bytes were looked at.
    pub steps: usize,
    /// Rules whose match was no secret.
    pub refused: Vec<RuleId>,
}

/// A secret with something before it that belongs to its match, `Bearer ` say. That must be looked
/// through first: a secret may be there, too.
#[derive(Debug)]
pub(super) struct Found {
    pub at: Range<usize>,
    pub rule: RuleId,
    /// Is a placeholder there already? Nothing is told of it then; all else is as with a secret, so
    /// that the same is found in a text that was redacted before.
    pub replaced: bool,
    /// The family and its state, if the rest is to be swallowed.
    pub outgrown: Option<(u16, StateID)>,
}

pub(super) enum Run {
    More,
    Over,
    Outgrown,
}

impl Candidate {
    pub fn new(engine: &Engine, start: usize, ending: Ending) -> Self {
        Self {
            start,
            bounded: ending.bounded,
            family: ending.family,
            state: engine.family(ending.family).start,
            at: start,
            end: start,
            best: None,
            way: None,
            steps: 0,
            refused: Vec::new(),
        }
    }

    /// The first bytes of the text will not be shown again.
    pub fn forget(&mut self, count: usize) {
        self.start -= count;
        self.at -= count;
        self.end -= count;
        self.best = self.best.map(|(end, rule)| (end - count, rule));
    }

    /// Goes on as far as there is text.
    pub fn run(
        &mut self,
        engine: &Engine,
        text: &[u8],
        last: bool,
        (forgotten, trail): (usize, &mut Option<Box<Trail>>),
    ) -> Run {
        let family = engine.family(self.family);
        let dfa = &family.dfa;
        loop {
            if self.at - self.start >= MAX_CANDIDATE_BYTES {
                return Run::Outgrown;
            }
            if (forgotten + self.at).is_multiple_of(STRIDE)
                && self.at - self.start >= STRIDE / 2
                && self.join(forgotten, trail)
            {
                return Run::Over;
            }
            let Some(byte) = text.get(self.at) else {
                if last {
                    self.note(engine, dfa.next_eoi_state(self.state));
                    return Run::Over;
                }
                return Run::More;
            };
            if unseen::is_lead(*byte)
                && let Some(length) = unseen::transparent(text, self.at)
            {
                self.at += length;
                continue;
            }
            let next = dfa.next_state(self.state, *byte);
            if dfa.is_special_state(next) {
                self.note(engine, next);
                if family.is_over(next) || family.is_last(next) {
                    return Run::Over;
                }
            }
            self.state = next;
            self.at += 1;
            self.steps += 1;
            self.end = self.at;
        }
    }

    /// Goes on where an earlier candidate ended that came by here. True: it ended for good.
    fn join(&mut self, forgotten: usize, trail: &mut Option<Box<Trail>>) -> bool {
        if self.best.is_some() || !self.refused.is_empty() {
            return false;
        }
        let trail = trail.get_or_insert_with(|| Box::new(Trail::new()));
        let way = *self.way.get_or_insert_with(|| trail.begin());
        let (at, state) = (forgotten + self.at, self.state);
        let place = Place { at, family: self.family, state, bounded: self.bounded };
        let Some((joined, tip)) = trail.join(place, way) else { return false };
        // What is forgotten is before all candidates: before this one's end, too.
        (self.at, self.end) = (tip.at - forgotten, tip.end - forgotten);
        (self.state, self.way) = (tip.state, Some(joined));
        tip.over
    }

    /// What it came to.
    pub fn found(&self, engine: &Engine, text: &[u8], outgrown: bool) -> Option<Found> {
        let (secret, rule) = match self.best {
            Some((end, rule)) => (engine.secret(rule, text, self.start..end), rule),
            // Where in it the secret begins nobody knows yet.
            None if outgrown => (self.start..self.end, self.open(engine)?),
            None => return None,
        };
        let mut at = characters(text, secret);
        if outgrown {
            at.end = self.end;
            if at.start - self.start > MAX_LEAD_BYTES {
                at.start = self.start;
            }
        }
        let replaced = placeholder::is_placeholder(&text[at.clone()]);
        Some(Found { at, rule, replaced, outgrown: outgrown.then_some((self.family, self.state)) })
    }

    /// The rule that it is taken for if it outgrows the bound and nothing matched.
    fn open(&self, engine: &Engine) -> Option<RuleId> {
        let rule = engine.family(self.family).open(self.state, self.bounded);
        rule.filter(|rule| !self.refused.contains(rule))
    }

    pub fn tip(&self, forgotten: usize) -> Tip {
        let over = self.at - self.start < MAX_CANDIDATE_BYTES;
        Tip { at: forgotten + self.at, end: forgotten + self.end, state: self.state, over }
    }

    /// A match state is reached one byte after the match's end.
    fn note(&mut self, engine: &Engine, state: StateID) {
        let counts = |rule: &RuleId| {
            (self.bounded || !engine.rule(*rule).boundary) && !self.refused.contains(rule)
        };
        if let Some(rule) = engine.family(self.family).matches(state).filter(counts).min() {
            self.best = Some((self.end, rule));
        }
    }

    /// Begins again, without `rule`.
    pub fn refuse(&mut self, engine: &Engine, rule: RuleId) {
        self.refused.push(rule);
        (self.state, self.at, self.end, self.best) =
            (engine.family(self.family).start, self.start, self.start, None);
    }
}

pub(super) const fn is_continuation(byte: u8) -> bool {
    byte & 0xC0 == 0x80
}

/// The range of whole characters: patterns know of bytes only.
fn characters(text: &[u8], at: Range<usize>) -> Range<usize> {
    let Range { mut start, mut end } = at;
    while start > 0 && text.get(start).copied().is_some_and(is_continuation) {
        start -= 1;
    }
    while text.get(end).copied().is_some_and(is_continuation) {
        end += 1;
    }
    start..end
}
