//! The machine that finds secrets of tier 1: one way through a text, wherever it is cut.

use std::ops::Range;

use regex_automata::{dfa::Automaton as _, util::primitives::StateID};

use super::{
    engine::{Engine, RuleId},
    prefix::{self, Prefixes, State, UNSURE},
};

/// What outgrows this is replaced as far as it was seen, and the rest of it swallowed: what a
/// stream holds back has an end.
pub const MAX_CANDIDATE_BYTES: usize = 8192;

/// A secret may begin this far into its candidate at most, if that outgrows the bound: as much of
/// it as a placeholder needs is held then.
const MAX_LEAD_BYTES: usize = 4096;

/// What was found. Positions are those of the text that was shown.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    Hit {
        at: Range<usize>,
        rule: RuleId,
    },
    /// What is from here on is swallowed, until a [`Event::Resumed`]. `at` is what was seen of it.
    Outgrown {
        at: Range<usize>,
        rule: RuleId,
    },
    Resumed {
        at: usize,
    },
}

/// A place where a secret may begin.
#[derive(Debug)]
struct Candidate {
    start: usize,
    bounded: bool,
    state: StateID,
    /// The next byte for `state`, and the end of the last one that is seen.
    at: usize,
    end: usize,
    best: Option<(usize, RuleId)>,
    /// Rules whose match was no secret.
    refused: Vec<RuleId>,
}

/// The machine's state between two bytes. Positions are relative to the text that it is shown,
/// which begins at what is held back.
#[derive(Debug, Default)]
pub(super) struct Scan {
    state: State,
    at: usize,
    /// How many of the prefixes that end in `state` were tried.
    tried: usize,
    candidate: Option<Candidate>,
    swallowing: Option<StateID>,
    /// Where the last candidate failed, and whether at a boundary.
    failed: Option<(usize, bool)>,
}

enum Outcome {
    More,
    Failed,
    Found(Event),
}

impl Scan {
    /// Is nothing held, and nothing begun?
    pub const fn is_idle(&self) -> bool {
        self.candidate.is_none() && self.swallowing.is_none()
    }

    pub const fn is_swallowing(&self) -> bool {
        self.swallowing.is_some()
    }

    /// The next event in `text`, of which `last` says whether it is all there is. None: more text
    /// is needed.
    pub fn next(&mut self, engine: &Engine, text: &[u8], last: bool) -> Option<Event> {
        if let Some(state) = self.swallowing {
            return self.swallow(engine, state, text, last);
        }
        loop {
            if self.candidate.is_none() && !self.find_prefix(engine, text) {
                return None;
            }
            match self.pursue(engine, text, last) {
                Outcome::More => return None,
                Outcome::Failed => {}
                Outcome::Found(event) => return Some(event),
            }
        }
    }

    /// What is before may go out; what is after must be held.
    pub fn settled(&self, engine: &Engine, text: &[u8]) -> usize {
        let live = engine.prefixes.live_from(self.state, text, self.at);
        match &self.candidate {
            Some(candidate) => live.min(candidate.start),
            None => live,
        }
    }

    /// The first `count` bytes of the text will not be shown again.
    pub fn forget(&mut self, count: usize) {
        self.at -= count;
        self.failed = self.failed.and_then(|(at, bounded)| Some((at.checked_sub(count)?, bounded)));
        if let Some(candidate) = &mut self.candidate {
            candidate.start -= count;
            candidate.at -= count;
            candidate.end -= count;
            candidate.best = candidate.best.map(|(end, rule)| (end - count, rule));
        }
    }

    /// Goes on to the next candidate. False: the text is at its end.
    fn find_prefix(&mut self, engine: &Engine, text: &[u8]) -> bool {
        let prefixes = &engine.prefixes;
        loop {
            while let Some(ending) = prefixes.endings(self.state).get(self.tried) {
                self.tried += 1;
                let start = prefix::go_back(text, self.at, usize::from(ending.length));
                if self.failed.is_some_and(|failed| failed.0 == start && failed.1 >= ending.bounded)
                {
                    continue;
                }
                self.candidate = Some(Candidate {
                    start,
                    bounded: ending.bounded,
                    state: engine.start,
                    at: start,
                    end: start,
                    best: None,
                    refused: Vec::new(),
                });
                return true;
            }
            if !self.step(prefixes, text) {
                return false;
            }
        }
    }

    /// Goes on to the next state that ends a prefix. False: the text is at its end.
    fn step(&mut self, prefixes: &Prefixes, text: &[u8]) -> bool {
        let (mut state, mut at) = (self.state, self.at);
        while let Some(byte) = text.get(at) {
            let next = prefixes.next(state, *byte);
            if !prefixes.is_special(next) {
                (state, at) = (next, at + 1);
            } else if next == UNSURE {
                let (next, length) = prefixes.resolve(state, text, at);
                (state, at) = (next, at + length);
            } else {
                (self.state, self.at, self.tried) = (next, at + 1, 0);
                return true;
            }
        }
        (self.state, self.at, self.tried) = (state, at, usize::MAX);
        false
    }

    /// Runs the candidate until it is decided.
    fn pursue(&mut self, engine: &Engine, text: &[u8], last: bool) -> Outcome {
        let Some(candidate) = &mut self.candidate else { return Outcome::Failed };
        loop {
            match candidate.run(engine, text, last) {
                Run::More => return Outcome::More,
                Run::Outgrown => return self.outgrown(engine, text),
                Run::Over => {}
            }
            let Some((end, rule)) = candidate.best else { return self.fail() };
            let whole = candidate.start..end;
            let at = characters(text, engine.secret(rule, text, whole.clone()));
            if engine.is_secret(rule, &text[at.clone()]) {
                let end = characters(text, whole).end;
                self.restart(end);
                return Outcome::Found(Event::Hit { at, rule });
            }
            candidate.refuse(engine, rule);
        }
    }

    fn fail(&mut self) -> Outcome {
        self.failed = self.candidate.take().map(|candidate| (candidate.start, candidate.bounded));
        Outcome::Failed
    }

    /// After a secret a new word begins.
    fn restart(&mut self, at: usize) {
        *self = Self { at, tried: usize::MAX, ..Self::default() };
    }

    fn outgrown(&mut self, engine: &Engine, text: &[u8]) -> Outcome {
        let Some(candidate) = &self.candidate else { return Outcome::Failed };
        let Some((end, rule)) = candidate.best else { return self.fail() };
        let (start, seen, state) = (candidate.start, candidate.end, candidate.state);
        let mut at = characters(text, engine.secret(rule, text, start..end));
        if at.start - start > MAX_LEAD_BYTES {
            at.start = start;
        }
        self.restart(seen);
        self.swallowing = Some(state);
        Outcome::Found(Event::Outgrown { at: at.start..seen, rule })
    }

    fn swallow(
        &mut self,
        engine: &Engine,
        mut state: StateID,
        text: &[u8],
        last: bool,
    ) -> Option<Event> {
        while let Some(byte) = text.get(self.at) {
            if let Some(length) = prefix::transparent(text, self.at) {
                self.at += length;
                continue;
            }
            let next = engine.dfa.next_state(state, *byte);
            // The rest of a character goes with its beginning.
            if engine.is_over(next) && !is_continuation(*byte) {
                return Some(self.resume());
            }
            if !engine.is_over(next) {
                state = next;
            }
            self.at += 1;
        }
        self.swallowing = Some(state);
        last.then(|| self.resume())
    }

    fn resume(&mut self) -> Event {
        self.restart(self.at);
        Event::Resumed { at: self.at }
    }
}

enum Run {
    More,
    Over,
    Outgrown,
}

impl Candidate {
    fn run(&mut self, engine: &Engine, text: &[u8], last: bool) -> Run {
        let dfa = &engine.dfa;
        loop {
            if self.at - self.start >= MAX_CANDIDATE_BYTES {
                return Run::Outgrown;
            }
            let Some(byte) = text.get(self.at) else {
                if last {
                    self.note(engine, dfa.next_eoi_state(self.state));
                    return Run::Over;
                }
                return Run::More;
            };
            if prefix::is_lead(*byte)
                && let Some(length) = prefix::transparent(text, self.at)
            {
                self.at += length;
                continue;
            }
            let next = dfa.next_state(self.state, *byte);
            if dfa.is_special_state(next) {
                self.note(engine, next);
                if engine.is_over(next) {
                    return Run::Over;
                }
            }
            self.state = next;
            self.at += 1;
            self.end = self.at;
        }
    }

    /// A match state is reached one byte after the match's end.
    fn note(&mut self, engine: &Engine, state: StateID) {
        if engine.dfa.is_match_state(state) {
            let counts = |rule: &RuleId| {
                (self.bounded || !engine.rule(*rule).boundary) && !self.refused.contains(rule)
            };
            let rules = (0..engine.dfa.match_len(state))
                .map(|index| RuleId::of(engine.dfa.match_pattern(state, index)));
            if let Some(rule) = rules.filter(counts).min() {
                self.best = Some((self.end, rule));
            }
        }
    }

    /// Begins again, without `rule`.
    fn refuse(&mut self, engine: &Engine, rule: RuleId) {
        self.refused.push(rule);
        (self.state, self.at, self.end, self.best) = (engine.start, self.start, self.start, None);
    }
}

const fn is_continuation(byte: u8) -> bool {
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
