//! The machine that finds secrets of tier 1: one way through a text, wherever it is cut.

use std::ops::Range;

use regex_automata::{dfa::Automaton as _, util::primitives::StateID};

use super::{
    candidate::{Candidate, Found, Run, is_continuation},
    engine::{Engine, RuleId},
    prefix::{Prefixes, State},
    trail::Trail,
    unseen,
};

/// So often in a row what has a secret's shape may be none. Then it is taken for one: who puts so
/// many prefixes into one word wants to hide something, or to keep the gateway busy.
const MAX_REFUSALS: usize = 8;

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

/// The rest of what outgrew the bound.
#[derive(Debug, Clone, Copy)]
struct Swallow {
    family: u16,
    state: StateID,
    /// The last byte, if a match ended before it: it is swallowed if the next one goes on.
    last: Option<usize>,
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
    found: Option<Found>,
    swallowing: Option<Swallow>,
    /// Where the last candidate failed, and whether at a boundary.
    failed: Option<(usize, bool)>,
    /// How far those that were refused reached, and how many they are.
    refused: (usize, usize),
    /// How much of the text is not shown any more.
    forgotten: usize,
    /// Made when a candidate is long.
    trail: Option<Box<Trail>>,
    /// How many bytes were looked at.
    steps: usize,
}

impl Scan {
    /// Of a whole text: at the first prefix that ends in it. Most texts have none, and then there is
    /// nothing to find.
    pub fn at_first_prefix(prefixes: &Prefixes, text: &[u8]) -> Option<Self> {
        let (state, at) = prefixes.first_ending(Prefixes::START, text, 0).ok()?;
        Some(Self { state, at, steps: at, ..Self::default() })
    }

    /// In `state`, before a text of which no byte was shown.
    pub fn at(state: State) -> Self {
        Self { state, tried: usize::MAX, ..Self::default() }
    }

    /// The state, if that is all: what was shown is settled, and nothing of it matters any more.
    pub fn resting(&self) -> Option<State> {
        let rests = self.is_idle()
            && (self.at, self.refused.0) == (0, 0)
            && self.failed.is_none()
            && self.found.is_none();
        rests.then_some(self.state)
    }

    /// Is nothing held, and nothing begun?
    pub const fn is_idle(&self) -> bool {
        self.candidate.is_none() && self.swallowing.is_none()
    }

    /// How many bytes were looked at so far, each as often as it was.
    pub const fn steps(&self) -> usize {
        self.steps
    }

    pub const fn is_swallowing(&self) -> bool {
        self.swallowing.is_some()
    }

    /// The next event in `text`, of which `last` says whether it is all there is. None: more text
    /// is needed.
    pub fn next(&mut self, engine: &Engine, text: &[u8], last: bool) -> Option<Event> {
        if let Some(swallow) = self.swallowing {
            return self.swallow(engine, swallow, text, last);
        }
        loop {
            if self.candidate.is_none() && !self.find_prefix(engine, text) {
                let at = self.at;
                let found = self.found.take_if(|found| found.at.start <= at)?;
                if let Some(event) = self.leave(found) {
                    return Some(event);
                }
                continue;
            }
            match self.pursue(engine, text, last) {
                Outcome::More => return None,
                Outcome::Over(None) => {}
                Outcome::Over(event) => return event,
            }
        }
    }

    /// Goes on behind a secret, where a new word begins.
    fn leave(&mut self, Found { at, rule, replaced, outgrown }: Found) -> Option<Event> {
        self.restart(at.end);
        self.swallowing = outgrown.map(|(family, state)| Swallow { family, state, last: None });
        let event = match outgrown {
            Some(_) => Event::Outgrown { at, rule },
            None => Event::Hit { at, rule },
        };
        (!replaced).then_some(event)
    }

    /// What is before may go out; what is after must be held.
    pub fn settled(&self, engine: &Engine, text: &[u8]) -> usize {
        let live = engine.prefixes.live_from(self.state, text, self.at);
        match (&self.candidate, self.swallowing) {
            (Some(candidate), _) => live.min(candidate.start),
            (None, Some(Swallow { last: Some(last), .. })) => last,
            (None, _) => live,
        }
    }

    /// The first `count` bytes of the text will not be shown again.
    pub fn forget(&mut self, count: usize) {
        self.at -= count;
        self.forgotten += count;
        self.refused.0 = self.refused.0.saturating_sub(count);
        self.failed = self.failed.and_then(|(at, bounded)| Some((at.checked_sub(count)?, bounded)));
        if let Some(Swallow { last: Some(last), .. }) = &mut self.swallowing {
            *last -= count;
        }
        if let Some(found) = &mut self.found {
            found.at = found.at.start - count..found.at.end - count;
        }
        if let Some(candidate) = &mut self.candidate {
            candidate.forget(count);
        }
    }

    /// Goes on to the next candidate. False: the text is at its end, or at a secret.
    fn find_prefix(&mut self, engine: &Engine, text: &[u8]) -> bool {
        let prefixes = &engine.prefixes;
        let text = match &self.found {
            Some(found) if found.at.start <= self.at => return false,
            Some(found) => &text[..found.at.start],
            None => text,
        };
        loop {
            while let Some(ending) = prefixes.endings(self.state).get(self.tried) {
                self.tried += 1;
                let start = unseen::go_back(text, self.at, usize::from(ending.length));
                if self.failed.is_some_and(|failed| failed.0 == start && failed.1 >= ending.bounded)
                {
                    continue;
                }
                let candidate = Candidate::new(engine, start, *ending);
                self.candidate = Some(candidate);
                return true;
            }
            if !self.step(prefixes, text) {
                return false;
            }
        }
    }

    /// Goes on to the next state that ends a prefix. False: the text is at its end.
    fn step(&mut self, prefixes: &Prefixes, text: &[u8]) -> bool {
        let (ended, (state, at), tried) = match prefixes.first_ending(self.state, text, self.at) {
            Ok(reached) => (true, reached, 0),
            Err(reached) => (false, reached, usize::MAX),
        };
        self.steps += at - self.at;
        (self.state, self.at, self.tried) = (state, at, tried);
        ended
    }

    /// Runs the candidate until it is decided.
    fn pursue(&mut self, engine: &Engine, text: &[u8], last: bool) -> Outcome {
        let Some(candidate) = &mut self.candidate else { return Outcome::Over(None) };
        let many = self.refused.1 >= MAX_REFUSALS && candidate.start < self.refused.0;
        let found = loop {
            let run = candidate.run(engine, text, last, (self.forgotten, &mut self.trail));
            self.steps += std::mem::take(&mut candidate.steps);
            if matches!(run, Run::More) {
                return Outcome::More;
            }
            let Some(found) = candidate.found(engine, text, matches!(run, Run::Outgrown)) else {
                self.give_up();
                return Outcome::Over(None);
            };
            if many || found.replaced || engine.is_secret(found.rule, &text[found.at.clone()]) {
                break found;
            }
            candidate.refuse(engine, found.rule);
        };
        self.failed = Some((candidate.start, candidate.bounded));
        self.candidate = None;
        match &self.found {
            None => {
                self.found = Some(found);
                Outcome::Over(None)
            }
            Some(before) if found.at.end <= before.at.start => Outcome::Over(self.leave(found)),
            // It reaches into the secret that was found before, which goes anyway.
            Some(_) => Outcome::Over(None),
        }
    }

    /// The candidate is no secret.
    fn give_up(&mut self) {
        let Some(candidate) = self.candidate.take() else { return };
        self.failed = Some((candidate.start, candidate.bounded));
        if !candidate.refused.is_empty() {
            let (reach, count) = self.refused;
            let count = if candidate.start < reach { count + 1 } else { 1 };
            self.refused = (reach.max(candidate.at), count);
        } else if let (Some(way), Some(trail)) = (candidate.way, &mut self.trail) {
            trail.end(way, candidate.tip(self.forgotten));
        }
    }

    /// Goes on at `at`, where a new word begins.
    fn restart(&mut self, at: usize) {
        (self.state, self.at, self.tried) = (Prefixes::START, at, usize::MAX);
        (self.candidate, self.swallowing, self.failed) = (None, None, None);
    }

    fn swallow(
        &mut self,
        engine: &Engine,
        Swallow { family: number, mut state, last: mut pending }: Swallow,
        text: &[u8],
        last: bool,
    ) -> Option<Event> {
        let family = engine.family(number);
        while let Some(byte) = text.get(self.at) {
            if let Some(length) = unseen::transparent(text, self.at) {
                self.at += length;
                continue;
            }
            let next = family.dfa.next_state(state, *byte);
            if !family.is_over(next) {
                let ended = family.dfa.is_match_state(next) && !is_continuation(*byte);
                (state, pending) = (next, ended.then_some(self.at));
                if ended && family.is_last(next) {
                    return Some(self.resume(pending));
                }
            } else if pending.is_some() || !is_continuation(*byte) {
                return Some(self.resume(pending));
            }
            // The rest of a character goes with its beginning.
            self.at += 1;
        }
        if last {
            let goes_on = family.dfa.is_match_state(family.dfa.next_eoi_state(state));
            return Some(self.resume(pending.filter(|_| !goes_on)));
        }
        self.swallowing = Some(Swallow { family: number, state, last: pending });
        None
    }

    fn resume(&mut self, pending: Option<usize>) -> Event {
        let at = pending.unwrap_or(self.at);
        self.restart(at);
        Event::Resumed { at }
    }
}

enum Outcome {
    /// More text is needed.
    More,
    Over(Option<Event>),
}
