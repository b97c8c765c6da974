//! Where a secret may begin: all rules' prefixes in one automaton, which knows of word boundaries.
//!
//! It is the automaton of Aho and Corasick, except that a prefix begins only where its rule allows
//! it. So a word's inside leads nowhere, and the depth of a state says how much of a stream must be
//! held back: in `tokens` nothing, though `ns` may begin a prefix.

use std::collections::{BTreeMap, HashMap};

use super::{
    filter::Filter,
    rule::RuleError,
    unseen::{go_back, is_lead, transparent, transparent_before},
};

/// A state's number; from [`Prefixes::special`] on, something is to be done.
pub(super) type State = u16;

/// In place of a state: the byte may begin a character that is not seen, see [`transparent`].
const UNSURE: State = State::MAX;

/// More such characters in a row hide nothing any more: what is held back has an end.
const MAX_TRANSPARENT_RUN: usize = 8;

/// A prefix that ends in a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Ending {
    pub length: u8,
    /// Did it begin at a word's boundary? If not, only rules without such count.
    pub bounded: bool,
    /// The family of the rules that have it.
    pub family: u16,
}

#[derive(Debug, Clone, Copy)]
struct Info {
    /// The longest suffix of the text that begins a prefix, in bytes that are seen.
    depth: u8,
    /// Its part of `endings`.
    endings: (usize, usize),
}

pub(super) struct Prefixes {
    classes: Box<[u8; 256]>,
    /// A row has 2^`shift` columns, one for each class.
    shift: u32,
    table: Vec<State>,
    infos: Vec<Info>,
    endings: Vec<Ending>,
    special: State,
    filter: Filter,
}

impl Prefixes {
    /// Before a text, and after a secret.
    pub const START: State = 0;

    /// Goes on in `text` from `at`, where it is in `state`, until a prefix has ended: the state then,
    /// and where that is. If none does, the same of the text's end.
    #[inline]
    pub fn first_ending(
        &self,
        mut state: State,
        text: &[u8],
        mut at: usize,
    ) -> Result<(State, usize), (State, usize)> {
        while let Some(byte) = text.get(at) {
            let next = self.next(state, *byte);
            if Self::is_base(next) {
                (state, at) = self.skip(next, text, at + 1);
            } else if !self.is_special(next) {
                (state, at) = (next, at + 1);
            } else if next == UNSURE {
                let (next, length) = self.resolve(state, text, at);
                (state, at) = (next, at + length);
            } else {
                return Ok((next, at + 1));
            }
        }
        Err((state, at))
    }

    #[inline]
    fn next(&self, state: State, byte: u8) -> State {
        self.by_class(state, self.classes[usize::from(byte)])
    }

    #[inline]
    fn by_class(&self, state: State, class: u8) -> State {
        self.table[(usize::from(state) << self.shift) | usize::from(class)]
    }

    #[inline]
    const fn is_special(&self, state: State) -> bool {
        state >= self.special
    }

    /// Skips what can't begin a prefix, if none is live in `state` after the byte before `at`. Says
    /// which state is reached where.
    #[inline]
    fn skip(&self, state: State, text: &[u8], at: usize) -> (State, usize) {
        let to = self.filter.next(text, at);
        // The last two bytes say all of the state, if both were skipped.
        match text.get(at..to) {
            Some([.., last, byte]) => (Before::Other.after(*last).after(*byte) as State, to),
            _ => (state, at),
        }
    }

    /// Is no prefix live?
    #[inline]
    const fn is_base(state: State) -> bool {
        (state as usize) < BASES
    }

    /// After [`UNSURE`]: the state after the character at `at`, and the character's length, or that
    /// of its first byte. What is not seen changes nothing.
    fn resolve(&self, state: State, text: &[u8], at: usize) -> (State, usize) {
        let Some(length) = transparent(text, at) else {
            return (self.by_class(state, OTHER_CLASS), 1);
        };
        let mut from = at;
        for _ in 0..MAX_TRANSPARENT_RUN {
            match transparent_before(text, from) {
                Some(before) => from -= before,
                None => return (state, length),
            }
        }
        (self.by_class(state, OTHER_CLASS), length)
    }

    /// The prefixes that end here, the longest first.
    pub fn endings(&self, state: State) -> &[Ending] {
        let (from, to) = self.infos[usize::from(state)].endings;
        &self.endings[from..to]
    }

    /// Where what may become a prefix begins, `at` being where the text ends.
    pub fn live_from(&self, state: State, text: &[u8], at: usize) -> usize {
        go_back(text, at, usize::from(self.infos[usize::from(state)].depth))
    }

    pub fn memory_usage(&self) -> usize {
        size_of_val(&*self.table) + size_of_val(&*self.infos) + size_of_val(&*self.endings)
    }
}

/// What the byte before says of a boundary here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Before {
    Other,
    Word,
    /// An escape may follow: of `\n` the `n` belongs to no word.
    Backslash,
}

impl Before {
    const ALL: [Self; 3] = [Self::Other, Self::Word, Self::Backslash];

    const fn after(self, byte: u8) -> Self {
        match (self, byte) {
            (Self::Backslash, b'n' | b'r' | b't') => Self::Other,
            (_, b'\\') => Self::Backslash,
            _ if byte.is_ascii_alphanumeric() || byte == b'_' => Self::Word,
            _ => Self::Other,
        }
    }
}

#[derive(Default)]
struct Node {
    children: BTreeMap<u8, u32>,
    depth: u8,
    bounded: bool,
    /// The family of the prefix that ends here.
    end: Option<u16>,
}

/// The roots of the two tries: of all prefixes, and of those that may begin within words.
const BOUNDED: u32 = 0;
const FREE: u32 = 1;

/// A prefix, its rule's family, and whether it must begin at a boundary.
pub(super) type Prefix<'a> = (&'a [u8], u16, bool);

struct Tries(Vec<Node>);

impl Tries {
    fn new(prefixes: &[Prefix<'_>]) -> Self {
        let mut tries = Self(vec![Node::default(), Node::default()]);
        for &(prefix, family, boundary) in prefixes {
            tries.insert(BOUNDED, prefix, family);
            if !boundary {
                tries.insert(FREE, prefix, family);
            }
        }
        tries
    }

    fn insert(&mut self, root: u32, prefix: &[u8], family: u16) {
        let mut at = root;
        for (depth, byte) in (1u8..).zip(prefix) {
            let new = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
            let next = *self.0[at as usize].children.entry(*byte).or_insert(new);
            if next == new {
                self.0.push(Node { depth, bounded: root == BOUNDED, ..Node::default() });
            }
            at = next;
        }
        self.0[at as usize].end.get_or_insert(family);
    }

    fn child(&self, node: u32, byte: u8) -> Option<u32> {
        self.0[node as usize].children.get(&byte).copied()
    }
}

/// A state while it is made: what it is a set of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Set {
    /// Those that can go on, the deepest first.
    nodes: Vec<u32>,
    before: Before,
    endings: Vec<Ending>,
}

struct Builder {
    tries: Tries,
    classes: Box<[u8; 256]>,
    /// One byte of each class.
    bytes: Vec<u8>,
    sets: Vec<Set>,
    numbers: HashMap<Set, State>,
    rows: Vec<Vec<State>>,
}

impl Prefixes {
    /// # Errors
    /// There are too many of them.
    pub fn new(prefixes: &[Prefix<'_>]) -> Result<Self, RuleError> {
        let mut builder = Builder::new(Tries::new(prefixes));
        builder.run()?;
        let before = |byte| Before::Other.after(byte) != Before::Word || b"nrt".contains(&byte);
        let of = prefixes.iter().map(|(prefix, _, boundary)| (*prefix, *boundary));
        Ok(builder.finish(Filter::new(of, before, |byte| !byte.is_ascii())))
    }
}

/// Classes that all have: other letters and digits, other bytes, what may be transparent.
const WORD_CLASS: u8 = 0;
const OTHER_CLASS: u8 = 1;
const LEAD_CLASS: u8 = 2;

/// The numbers of the states that no prefix is live in, in the order of [`Before::ALL`].
const BASES: usize = 3;

impl Builder {
    fn new(tries: Tries) -> Self {
        let mut own = [false; 256];
        for byte in tries.0.iter().flat_map(|node| node.children.keys()) {
            own[usize::from(*byte)] = true;
        }
        for byte in *b"nrt\\" {
            own[usize::from(byte)] = true;
        }
        let (mut classes, mut bytes) = (Box::new([OTHER_CLASS; 256]), vec![0; 3]);
        for byte in 0..=u8::MAX {
            let class = if own[usize::from(byte)] {
                bytes.push(byte);
                u8::try_from(bytes.len() - 1).unwrap_or(u8::MAX)
            } else if is_lead(byte) {
                LEAD_CLASS
            } else if Before::Other.after(byte) == Before::Word {
                WORD_CLASS
            } else {
                OTHER_CLASS
            };
            if class <= LEAD_CLASS {
                bytes[usize::from(class)] = byte;
            }
            classes[usize::from(byte)] = class;
        }
        let sets = Before::ALL.map(|before| Set { nodes: Vec::new(), before, endings: Vec::new() });
        let numbers = sets.iter().cloned().zip(0..).collect();
        Self { tries, classes, bytes, sets: sets.to_vec(), numbers, rows: Vec::new() }
    }

    fn run(&mut self) -> Result<(), RuleError> {
        while let Some(set) = self.sets.get(self.rows.len()).cloned() {
            let number = self.rows.len();
            let mut row = if number < BASES {
                vec![0; self.bytes.len()]
            } else {
                // Where no prefix goes on, only what begins here counts.
                self.rows[set.before as usize].clone()
            };
            let bytes = if number < BASES { self.bytes.clone() } else { self.going_on(&set) };
            for byte in bytes {
                let class = self.classes[usize::from(byte)];
                row[usize::from(class)] = self.number(self.after(&set, byte))?;
            }
            if !set.nodes.is_empty() {
                row[usize::from(LEAD_CLASS)] = UNSURE;
            }
            self.rows.push(row);
        }
        Ok(())
    }

    /// The bytes that a prefix of `set` goes on with.
    fn going_on(&self, set: &Set) -> Vec<u8> {
        let nodes = set.nodes.iter().map(|node| &self.tries.0[*node as usize]);
        nodes.flat_map(|node| node.children.keys().copied()).collect()
    }

    /// What `set` becomes by a byte.
    fn after(&self, set: &Set, byte: u8) -> Set {
        let mut nodes: Vec<u32> =
            set.nodes.iter().filter_map(|node| self.tries.child(*node, byte)).collect();
        if set.before != Before::Word {
            nodes.extend(self.tries.child(BOUNDED, byte));
        }
        nodes.extend(self.tries.child(FREE, byte));
        let node = |number: &u32| &self.tries.0[*number as usize];
        let ending = |node: &Node| {
            Some(Ending { length: node.depth, bounded: node.bounded, family: node.end? })
        };
        let mut endings: Vec<Ending> =
            nodes.iter().filter_map(|number| ending(node(number))).collect();
        // The longest first. Where it is a boundary, rules that need none count as well.
        endings.sort_by_key(|ending| std::cmp::Reverse((ending.length, ending.bounded)));
        endings.dedup_by_key(|ending| ending.length);
        nodes.retain(|number| !node(number).children.is_empty());
        nodes.sort_by_key(|number| (std::cmp::Reverse(node(number).depth), *number));
        Set { nodes, before: set.before.after(byte), endings }
    }

    fn number(&mut self, set: Set) -> Result<State, RuleError> {
        if let Some(number) = self.numbers.get(&set) {
            return Ok(*number);
        }
        let number = State::try_from(self.sets.len()).ok().filter(|number| *number < UNSURE);
        let number = number.ok_or_else(|| RuleError::TooLarge("too many prefixes".to_owned()))?;
        self.sets.push(set.clone());
        self.numbers.insert(set, number);
        Ok(number)
    }

    /// States that end a prefix come last.
    fn finish(self, filter: Filter) -> Prefixes {
        let (plain, special): (Vec<_>, Vec<_>) =
            (0..self.sets.len()).partition(|number| self.sets[*number].endings.is_empty());
        let mut numbers = vec![0; self.sets.len()];
        for (number, old) in (0..).zip(plain.iter().chain(&special)) {
            numbers[*old] = number;
        }
        let shift = self.rows[0].len().next_power_of_two().ilog2();
        let (mut table, mut infos, mut endings) = (Vec::new(), Vec::new(), Vec::new());
        for old in plain.iter().chain(&special) {
            let renumber = |state: &State| match *state {
                UNSURE => UNSURE,
                state => numbers[usize::from(state)],
            };
            table.extend(self.rows[*old].iter().map(renumber));
            table.resize(table.len().next_multiple_of(1 << shift), Prefixes::START);
            let set = &self.sets[*old];
            let from = endings.len();
            endings.extend(&set.endings);
            let depth = set.nodes.first().map_or(0, |node| self.tries.0[*node as usize].depth);
            infos.push(Info { depth, endings: (from, endings.len()) });
        }
        Prefixes {
            special: State::try_from(plain.len()).unwrap_or(UNSURE),
            classes: self.classes,
            shift,
            table,
            infos,
            endings,
            filter,
        }
    }
}
