//! Redaction of a text that comes in pieces.

use super::{
    Counts, Redactor,
    prefix::State,
    scan::{Event, Scan},
};

/// The state of one text of a stream: of one choice's content, say.
///
/// What comes out, put together, is what [`Redactor::redact_text`] makes of the whole text at
/// [`Depth::Formats`](super::Depth::Formats), however it is cut.
#[derive(Debug, Default)]
pub struct Window {
    /// Where the automaton is while it is all that there is to know: nearly always, and streams are
    /// open for long.
    resting: State,
    active: Option<Box<Active>>,
}

/// A window at work.
#[derive(Debug)]
struct Active {
    scan: Scan,
    /// The end of the text so far that is not out yet: where a secret may have begun.
    held: String,
}

/// What became of a piece of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fed {
    /// The piece may go out as it is; nothing was held before, and nothing is. Nothing was written.
    Untouched,
    /// What was written is what may go out: it may be nothing.
    Changed,
}

impl Window {
    /// The next piece of the text. What may go out is written behind what `out` has, unless it is
    /// just `text`.
    pub fn feed(
        &mut self,
        redactor: &Redactor,
        text: &str,
        out: &mut String,
        counts: &mut Counts,
    ) -> Fed {
        if let Some(active) = &mut self.active {
            let fed = active.feed(redactor, text, out, counts);
            if let Some(state) = active.resting() {
                *self = Self { resting: state, active: None };
            }
            return fed;
        }
        let mut active = Active::at(self.resting);
        let fed = active.feed(redactor, text, out, counts);
        match active.resting() {
            Some(state) => self.resting = state,
            None => self.active = Some(Box::new(active)),
        }
        fed
    }

    /// The text is at its end: what is held goes out. A new text may follow.
    pub fn finish(&mut self, redactor: &Redactor, out: &mut String, counts: &mut Counts) {
        if let Some(mut active) = std::mem::take(self).active {
            let held = std::mem::take(&mut active.held);
            let settled = active.run(redactor, &held, true, out, counts);
            out.push_str(&held[settled..]);
        }
    }

    /// Is nothing held?
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.active.as_ref().is_none_or(|active| active.held.is_empty() && active.scan.is_idle())
    }
}

impl Active {
    fn at(state: State) -> Self {
        Self { scan: Scan::at(state), held: String::new() }
    }

    /// The state if nothing else need be kept.
    fn resting(&self) -> Option<State> {
        self.scan.resting().filter(|_| self.held.is_empty())
    }

    fn feed(
        &mut self,
        redactor: &Redactor,
        text: &str,
        out: &mut String,
        counts: &mut Counts,
    ) -> Fed {
        if self.held.is_empty() && !self.scan.is_swallowing() {
            return self.feed_fresh(redactor, text, out, counts);
        }
        let mut held = std::mem::take(&mut self.held);
        held.push_str(text);
        let settled = self.run(redactor, &held, false, out, counts);
        held.drain(..settled);
        self.held = held;
        Fed::Changed
    }

    /// Nothing is held: `text` need not be copied.
    fn feed_fresh(
        &mut self,
        redactor: &Redactor,
        text: &str,
        out: &mut String,
        counts: &mut Counts,
    ) -> Fed {
        let engine = redactor.engine();
        let event = self.scan.next(engine, text.as_bytes(), false);
        if event.is_none() && self.scan.settled(engine, text.as_bytes()) == text.len() {
            self.scan.forget(text.len());
            return Fed::Untouched;
        }
        let settled = self.write(redactor, text, (event, false), out, counts);
        text[settled..].clone_into(&mut self.held);
        Fed::Changed
    }

    fn run(
        &mut self,
        redactor: &Redactor,
        text: &str,
        last: bool,
        out: &mut String,
        counts: &mut Counts,
    ) -> usize {
        let event = self.scan.next(redactor.engine(), text.as_bytes(), last);
        self.write(redactor, text, (event, last), out, counts)
    }

    /// Writes what is settled of `text`, from its first event on; says how much that is.
    fn write(
        &mut self,
        redactor: &Redactor,
        text: &str,
        (mut event, last): (Option<Event>, bool),
        out: &mut String,
        counts: &mut Counts,
    ) -> usize {
        let engine = redactor.engine();
        let mut from = 0;
        while let Some(found) = event {
            match found {
                Event::Hit { at, rule } | Event::Outgrown { at, rule } => {
                    out.push_str(&text[from..at.start]);
                    from = at.end;
                    let secret = &text.as_bytes()[at];
                    out.push_str(&redactor.count(rule, secret, counts));
                }
                Event::Resumed { at } => from = at,
            }
            event = self.scan.next(engine, text.as_bytes(), last);
        }
        let settled = self.scan.settled(engine, text.as_bytes());
        if !self.scan.is_swallowing() {
            out.push_str(&text[from..settled]);
        }
        self.scan.forget(settled);
        settled
    }
}
