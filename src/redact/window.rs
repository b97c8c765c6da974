//! Redaction of a text that comes in pieces.

use super::{
    Counts, Redactor,
    scan::{Event, Scan},
};

/// The state of one text of a stream: of one choice's content, say.
///
/// What comes out, put together, is what [`Redactor::redact_text`] makes of the whole text at
/// [`Depth::Formats`](super::Depth::Formats), however it is cut.
#[derive(Debug, Default)]
pub struct Window {
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

    /// The text is at its end: what is held goes out. A new text may follow.
    pub fn finish(&mut self, redactor: &Redactor, out: &mut String, counts: &mut Counts) {
        let held = std::mem::take(&mut self.held);
        let settled = self.run(redactor, &held, true, out, counts);
        out.push_str(&held[settled..]);
        *self = Self::default();
    }

    /// Is nothing held?
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.held.is_empty() && self.scan.is_idle()
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
