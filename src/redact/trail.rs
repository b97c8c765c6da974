//! What candidates that came to nothing left behind, so that the next ones need not go the same way.
//!
//! In `eyJ-eyJ-eyJ-…` each `eyJ` is a candidate that may go on for kilobytes. But what follows
//! depends on the automaton's state and the place alone: a candidate that is in the state that an
//! earlier one was in, at the same place, goes on where that one ended.

use regex_automata::util::primitives::StateID;

/// A mark is set once in so many bytes: short candidates, which are most, set none.
pub(super) const STRIDE: usize = 64;
/// Several ways lead through each stretch of the longest candidate.
const MARKS: usize = 512;
/// The ways that are remembered.
const WAYS: usize = 16;

/// The way of a candidate that has matched nothing so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Way(u32);

/// Where a way ended. Positions are counted from the text's beginning.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tip {
    pub at: usize,
    /// The end of the last byte that the state has seen.
    pub end: usize,
    pub state: StateID,
    /// Nothing can match any more.
    pub over: bool,
}

/// What a candidate's further way depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub at: usize,
    pub family: u16,
    pub state: StateID,
    /// Do rules count that must begin at a boundary?
    pub bounded: bool,
}

#[derive(Debug, Clone, Copy)]
struct Mark {
    place: Place,
    way: Way,
}

/// Newer entries replace older ones.
#[derive(Debug)]
pub(super) struct Trail {
    marks: Box<[Option<Mark>]>,
    tips: [Option<(Way, Tip)>; WAYS],
    ways: u32,
}

impl Trail {
    pub fn new() -> Self {
        Self { marks: vec![None; MARKS].into_boxed_slice(), tips: [None; WAYS], ways: 0 }
    }

    pub fn begin(&mut self) -> Way {
        self.ways = self.ways.wrapping_add(1);
        Way(self.ways)
    }

    /// The way that went through this place before, and where it ended. If there is none, `way`
    /// goes through it from now on.
    pub fn join(&mut self, place: Place, way: Way) -> Option<(Way, Tip)> {
        let slot =
            (place.at / STRIDE).wrapping_mul(31).wrapping_add(place.state.as_usize()) % MARKS;
        let before = self.marks[slot].filter(|mark| mark.place == place);
        let joined = before.and_then(|mark| {
            let (way, tip) = self.tips[mark.way.0 as usize % WAYS]?;
            (way == mark.way && tip.at > place.at).then_some((way, tip))
        });
        if joined.is_none() {
            self.marks[slot] = Some(Mark { place, way });
        }
        joined
    }

    /// `way` came to nothing.
    pub fn end(&mut self, way: Way, tip: Tip) {
        self.tips[way.0 as usize % WAYS] = Some((way, tip));
    }
}
